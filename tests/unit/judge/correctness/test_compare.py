"""How a wrong output is told, and what telling it costs."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kevin.judge.correctness.compare import compare

SHAPE = (4, 16, 32)


class _Largest(TorchDispatchMode):
    """Bytes of the largest tensor that any operator made."""

    num_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.num_bytes = max(self.num_bytes, out.nbytes)
        return out


@pytest.mark.parametrize(
    ("where", "at"), [((2, 3, 4), "out[2, 3, 4]"), ((slice(1, None), 5), "out[1, 5, 0]"), ((), "out[0, 0, 0]")]
)
def test_the_first_wrong_element_is_told_in_no_more_memory_than_the_output_takes(where, at):
    """Inputs of KernelBench's largest tasks take 8 GB: a list of all wrong indices took 56 and failed on a GPU."""
    ref = torch.randn(SHAPE)
    out = ref.clone()
    out[where] += 1.0
    with _Largest() as largest:
        found = compare("out", out, ref, atol=1e-4, rtol=1e-4)
    assert not found.passed and found.reason == "wrong_values"
    first = tuple(int(i) for i in at[4:-1].split(", "))
    assert f"{at} is {out[first].item():.6g}, expected {ref[first].item():.6g}" in found.message
    assert largest.num_bytes <= ref.nbytes


def test_a_wrong_number_has_no_index():
    found = compare("out", torch.tensor(1.0), torch.tensor(2.0), atol=1e-4, rtol=1e-4)
    assert found.message == "out: the value is wrong; out is 1, expected 2"


def test_one_wrong_element_of_many_large_ones_is_wrong() -> None:
    """The absolute tolerance grows with their root mean square, not with their norm."""
    ref = torch.full((10_000,), 100.0)
    out = ref.clone()
    out[7] += 0.5
    assert not compare("out", out, ref, atol=1e-4, rtol=1e-4).passed
    out[7] = 100.015
    assert compare("out", out, ref, atol=1e-4, rtol=1e-4).passed


@pytest.mark.parametrize("mask", [-1e9, 3e38])
def test_a_mask_does_not_hide_what_stands_beside_it(mask: float) -> None:
    hidden = torch.ones(64, 64).triu(1) > 0
    ref = torch.randn(64, 64).masked_fill(hidden, mask)
    assert compare("out", ref + 1e-5, ref, atol=1e-4, rtol=1e-4).passed
    zeros = torch.zeros(64, 64).masked_fill(hidden, mask)
    assert compare("out", zeros, ref, atol=1e-4, rtol=1e-4).reason == "wrong_values"
    large = 1e5 * torch.randn(64, 64)  # one alone may be the largest of many
    assert compare("out", large + 1.0, large, atol=1e-4, rtol=1e-4).passed


def test_when_timed_there_is_more_room_for_tiny_values_too() -> None:
    """A sum of very many elements, off by 1.5 % and a little more once a part of them was rescaled."""
    ref = torch.full((8,), 1e-5)
    for off, room, reason in ((1.015, 2.0, None), (1.015, 1.0, "wrong_tiny_values"), (1.03, 2.0, "wrong_tiny_values")):
        assert compare("out", off * ref, ref, atol=1e-4, rtol=1e-4, room=room).reason == reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("shape", [(0, 5), (0,), (3, 0, 2)])
def test_outputs_without_elements_are_equal(shape, dtype):
    found = compare("out", torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype), atol=1e-4, rtol=1e-4)
    assert found.passed
    assert (found.max_abs_error, found.max_rel_error) == (0.0, 0.0)
