import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        values, indices = torch.max(x, dim=1)
        return values, indices


def get_inputs():
    return [torch.randn(64, 17, 45)]


def get_init_inputs():
    return []
