import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.cat([x, y], dim=1)


def get_inputs():
    return [torch.randn(60, 70, 9), torch.randn(60, 31, 9)]


def get_init_inputs():
    return []
