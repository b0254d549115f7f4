import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(5, 7, 5, padding=2)
        nn.init.normal_(self.conv.weight, std=0.3)
        nn.init.normal_(self.conv.bias)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(3, 5, 1001)]


def get_init_inputs():
    return []
