import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(96, 200), torch.randn(200, 130)]


def get_init_inputs():
    return []
