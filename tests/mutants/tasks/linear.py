import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.2 * torch.randn(48, 64))
        self.bias = nn.Parameter(torch.randn(48))

    def forward(self, x):
        return x @ self.weight.t() + self.bias


def get_inputs():
    return [torch.randn(128, 64)]


def get_init_inputs():
    return []
