"""What drawing the inputs of a trial takes: they may be as large as the device allows."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kevin.judge.correctness.trials import redraw

SHAPE = (64, 32)


class Alive(TorchDispatchMode):
    """The most bytes of tensors made by operators that were alive at once."""

    def __init__(self):
        super().__init__()
        self._made, self.most = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self._made.append(weakref.ref(out))
            alive = {t.data_ptr(): t.nbytes for ref in self._made if (t := ref()) is not None}
            self.most = max(self.most, sum(alive.values()))
        return out


@pytest.mark.parametrize("distribution", ["normal", "wide", "shifted"])
def test_one_tensor_of_its_size_is_made_for_an_input(distribution):
    x = torch.rand(SHAPE)

    with Alive() as alive:
        redraw(x, distribution, torch.Generator().manual_seed(1))

    assert alive.most == x.nbytes


@pytest.mark.parametrize(("distribution", "mean", "std"), [("normal", 0, 1), ("wide", 0, 4), ("shifted", 1.5, 0.5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_drawn_is_distributed_as_its_name_says(distribution, mean, std, dtype):
    x = torch.rand(SHAPE).to(dtype)

    drawn = redraw(x, distribution, torch.Generator().manual_seed(1))

    assert drawn.dtype == dtype
    assert drawn.float().mean().item() == pytest.approx(mean, abs=0.1 * std)
    assert drawn.float().std().item() == pytest.approx(std, rel=0.1)
