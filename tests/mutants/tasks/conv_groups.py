import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False)
        nn.init.normal_(self.conv.weight, std=0.3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 4, 33, 35)]


def get_init_inputs():
    return []
