"""Muon: the optimizer of PyTorch, without bfloat16."""

from __future__ import annotations

import pytest
import torch

from kevin.train.base_model import Muon, orthogonalised


def stepped(make, shape: tuple[int, int], num_steps: int = 3) -> list[torch.Tensor]:
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape)) for _ in range(2)]
    optimizer = make(params)
    for _ in range(num_steps):
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("shape", [(32, 32), (96, 32), (32, 96)])
def test_it_steps_as_pytorch_s_does_up_to_bfloat16(shape):
    settings = {"lr": 0.02, "weight_decay": 0.05}
    ours = stepped(lambda params: Muon(params, **settings), shape)
    theirs = stepped(lambda params: torch.optim.Muon(params, **settings, adjust_lr_fn="original"), shape)
    start = stepped(lambda params: Muon(params, lr=0.0, weight_decay=0.0), shape)
    for a, b, s in zip(ours, theirs, start, strict=True):
        assert (a - b).norm() < 0.02 * (b - s).norm()


@pytest.mark.parametrize("shape", [(2, 24, 40), (3, 48, 16), (1, 16, 48)])
def test_singular_values_come_near_one(shape):
    values = torch.linalg.svdvals(orthogonalised(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
    assert values.min() > 0.3 and values.max() < 1.3


def test_only_float32_matrices_are_taken():
    for wrong in (torch.zeros(3), torch.zeros(3, 3, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match="float32 matrices"):
            Muon([torch.nn.Parameter(wrong)], lr=0.1, weight_decay=0.0)
