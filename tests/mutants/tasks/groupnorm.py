import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.5 * torch.randn(24))
        self.bias = nn.Parameter(torch.randn(24))

    def forward(self, x):
        return F.group_norm(x, 6, self.weight, self.bias)


def get_inputs():
    return [torch.randn(4, 24, 15, 15) + torch.randn(4, 24, 1, 1)]


def get_init_inputs():
    return []
