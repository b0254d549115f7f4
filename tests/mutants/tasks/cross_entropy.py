import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, target):
        return F.cross_entropy(x, target)


def get_inputs():
    return [torch.randn(200, 131), torch.randint(0, 131, (200,))]


def get_init_inputs():
    return []
