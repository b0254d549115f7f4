"""Shapes after an operator, from the shape before it."""

from __future__ import annotations

from collections.abc import Callable

from kevin.core.errors import TaskError
from kevin.tasks.operators.base import ONE, Attrs, Dim, Shape, Sizes, along

_SPATIAL = {1: ("out_length",), 2: ("out_height", "out_width"), 3: ("out_depth", "out_height", "out_width")}


def to_last(size: str) -> Callable[[Shape, Attrs, Sizes], Shape]:
    """The last dimension becomes ``size``; an attribute ``out`` says another number for a later layer."""
    return lambda x, attrs, sizes: (*x[:-1], _out(size, attrs, sizes))


def _out(size: str, attrs: Attrs, sizes: Sizes) -> Dim:
    return Dim(f"{size}_2", int(attrs["out"])) if "out" in attrs else Dim(size, sizes[size])


def reduced_dims(x: Shape, attrs: Attrs) -> tuple[int, int]:
    """The dimensions that a reduction takes away: first and number."""
    return int(attrs["dim"]) % len(x), int(attrs.get("num_dims", 1))


def without_dims(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    first, num = reduced_dims(x, attrs)
    kept = (ONE,) * num if attrs.get("keepdim") else ()
    return (*x[:first], *kept, *x[first + num :])


def _named(dims: Shape, sizes: list[int]) -> Shape:
    """Spatial dimensions with new sizes: those that changed get a new name. Raises TaskError where nothing is left."""
    if min(sizes) < 1:
        raise TaskError(f"a window does not fit into {[d.size for d in dims]}; use a smaller kernel or a larger input")
    return tuple(
        d if d.size == n else Dim(f"{name}_2" if d.name == name else name, n)
        for d, name, n in zip(dims, _SPATIAL[len(dims)], sizes, strict=True)
    )


def _split(x: Shape) -> tuple[Shape, Shape]:
    """Batch and channels, then spatial dimensions; a matrix is rows of signals."""
    return (x[:1], x[1:]) if len(x) == 2 else (x[:2], x[2:])


def window(x: Shape, attrs: Attrs) -> Shape:
    """Spatial dimensions after a window moved over them."""
    dims = _split(x)[1]
    sizes = []
    for axis, d in enumerate(dims):
        extent = along(attrs, "dilation", axis, 1) * (along(attrs, "kernel", axis) - 1) + 1
        sizes.append((d.size + 2 * along(attrs, "padding", axis) - extent) // along(attrs, "stride", axis, 1) + 1)
    return _named(dims, sizes)


def pooled(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    return (*_split(x)[0], *window(x, attrs))


def adaptively_pooled(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    size = int(attrs["size"])
    dims = x[2:]
    return (*x[:2], *((ONE,) * len(dims) if size == 1 else _named(dims, [size] * len(dims))))


def convolved(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    return (x[0], _out("out_channels", attrs, sizes), *window(x, attrs))


def transposed(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    """After a transposed convolution."""
    dims = []
    for axis, d in enumerate(x[2:]):
        extent = along(attrs, "dilation", axis, 1) * (along(attrs, "kernel", axis) - 1) + 1
        length = (d.size - 1) * along(attrs, "stride", axis, 1) - 2 * along(attrs, "padding", axis) + extent
        dims.append(length + along(attrs, "output_padding", axis))
    return (x[0], _out("out_channels", attrs, sizes), *_named(x[2:], dims))


def broadcast(x: Shape, other: Shape) -> Shape:
    """Shape of an element-wise operator on two tensors that fit each other."""
    rank = max(len(x), len(other))
    pairs = zip((ONE,) * (rank - len(x)) + x, (ONE,) * (rank - len(other)) + other, strict=True)
    return tuple(b if a.size == 1 and b.size != 1 else a for a, b in pairs)
