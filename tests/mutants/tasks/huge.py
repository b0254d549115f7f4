import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 1e18


def get_inputs():
    return [torch.randn(128, 513)]


def get_init_inputs():
    return []
