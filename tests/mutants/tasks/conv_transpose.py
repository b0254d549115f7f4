import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(5, 4, 3, stride=2, padding=1, output_padding=1)
        nn.init.normal_(self.conv.weight, std=0.3)
        nn.init.normal_(self.conv.bias)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 5, 13, 11)]


def get_init_inputs():
    return []
