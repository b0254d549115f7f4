import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
        nn.init.normal_(self.conv.weight, std=0.5)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 16, 27, 30)]


def get_init_inputs():
    return []
