import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(30 * x, dim=1)


def get_inputs():
    return [torch.randn(88, 513)]


def get_init_inputs():
    return []
