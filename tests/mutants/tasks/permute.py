import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.permute(2, 0, 1).contiguous()


def get_inputs():
    return [torch.randn(21, 34, 55)]


def get_init_inputs():
    return []
