import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b.transpose(1, 2)


def get_inputs():
    return [torch.randn(5, 33, 64), torch.randn(5, 47, 64)]


def get_init_inputs():
    return []
