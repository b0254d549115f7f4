"""Tensors that lie in memory otherwise than contiguously: transposed, sliced, expanded."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements between the first and the last one of a tensor in memory, both counted; 0 for an empty one."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def core(x: torch.Tensor) -> torch.Tensor:
    """The part of an expanded tensor that is not repeated; the whole of another one."""
    for dim, (size, step) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if step == 0 and size > 1:
            x = x.narrow(dim, 0, 1)
    return x


def flat(x: torch.Tensor) -> torch.Tensor:
    """All memory between the first and the last element, (span,), what lies between them included."""
    return x.as_strided((span(x.shape, x.stride()),), (1,))


def stride_of(x: torch.Tensor) -> tuple[int, ...] | None:
    """Strides to be kept; None for a contiguous tensor, and for one whose elements share memory without repetition,
    such as windows.
    """
    if x.is_contiguous():
        return None
    reach = 0
    kept = core(x)
    for size, step in sorted(zip(kept.shape, kept.stride(), strict=True), key=lambda pair: pair[1]):
        if size > 1 and step <= reach:
            return None
        reach += (size - 1) * step
    return tuple(x.stride())


def laid_out(x: torch.Tensor, stride: tuple[int, ...] | None) -> torch.Tensor:
    """``x`` where it lies so already, else a copy that does; contiguous where ``stride`` is None."""
    if stride is None or tuple(x.stride()) == stride:
        return x.contiguous() if stride is None else x
    made = x.new_empty(span(x.shape, stride)).as_strided(x.shape, stride)
    kept = core(made)
    for dim, size in enumerate(kept.shape):
        x = x.narrow(dim, 0, size)
    kept.copy_(x)
    return made


def like(x: torch.Tensor, values: torch.Tensor | None = None) -> torch.Tensor:
    """New memory that lies as ``x`` does, with its values or with others, of the shape of its `core`."""
    made = x.new_empty(span(x.shape, x.stride())).as_strided(x.shape, x.stride())
    core(made).copy_(core(x) if values is None else values)
    return made
