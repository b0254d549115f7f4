import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x > y


def get_inputs():
    return [torch.randn(130, 257).round(), torch.randn(130, 257).round()]


def get_init_inputs():
    return []
