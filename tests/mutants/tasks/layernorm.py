import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.5 * torch.randn(501))
        self.bias = nn.Parameter(torch.randn(501))

    def forward(self, x):
        return F.layer_norm(x, (501,), self.weight, self.bias)


def get_inputs():
    return [torch.randn(64, 501)]


def get_init_inputs():
    return []
