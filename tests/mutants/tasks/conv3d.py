import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 4, 3, padding=1, bias=False)
        nn.init.normal_(self.conv.weight, std=0.3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(1, 3, 9, 10, 11)]


def get_init_inputs():
    return []
