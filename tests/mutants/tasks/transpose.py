import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(301, 257)]


def get_init_inputs():
    return []
