import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(257, 100)
        nn.init.normal_(self.linear.weight, std=0.06)
        nn.init.normal_(self.linear.bias)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(130, 257)]


def get_init_inputs():
    return []
