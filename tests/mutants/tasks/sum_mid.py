import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randn(16, 129, 65)]


def get_init_inputs():
    return []
