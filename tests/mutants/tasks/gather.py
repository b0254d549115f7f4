import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, index):
        return torch.gather(x, 1, index)


def get_inputs():
    return [torch.randn(64, 200), torch.randint(0, 200, (64, 31))]


def get_init_inputs():
    return []
