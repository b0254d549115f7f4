"""Transposed convolutions with a stride, as products that multiply no zeros.

Of the results along an axis, those whose places leave the same rest by the stride, a phase, read the same taps of the
window, one in ``stride``; so each phase is a convolution of its own with a smaller window and stride one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kevin.tasks.operators import along
from kevin.writer.general.dims import plus, product, wrapped
from kevin.writer.general.products import Product, product_of
from kevin.writer.general.stages import Stage


def by_phases(stage: Stage) -> Product:
    """The stage's product; of a transposed convolution with a stride and no dilation one product a phase and sample."""
    if not _has_phases(stage):
        return product_of(stage)
    assert stage.main is not None
    attrs, x, out = stage.main.op.attrs, stage.in_dims, stage.out_dims
    num = len(x.names) - 2
    groups = int(attrs.get("groups", 1))
    strides = [along(attrs, "stride", axis, 1) for axis in range(num)]
    kernels = [along(attrs, "kernel", axis) for axis in range(num)]
    taps = [-(-kernel // stride) for kernel, stride in zip(kernels, strides, strict=True)]
    phases, volume = prod(strides), prod(taps)
    sample = f"g / {phases}" if groups == 1 else f"g / {phases * groups}"
    group = "" if groups == 1 else f"g / {phases} % {groups} * "
    channels = x.names[1] if groups == 1 else f"({x.names[1]} / {groups})"
    filters = out.names[1] if groups == 1 else f"({out.names[1]} / {groups})"
    channel = "k" if volume == 1 else f"k / {volume}"
    source_channel = f"{group}{channels} + {channel}" if group else channel
    row = f"{group}{filters} + m" if group else "m"
    spread = [
        (letter, f"({plus(name, s - 1)}) / {s}")
        for letter, name, s in zip("DHW"[-num:], out.names[2:], strides, strict=True)
        if s > 1
    ]
    extents = [letter if s > 1 else name for letter, name, s in zip("DHW"[-num:], out.names[2:], strides, strict=True)]
    weight, *bias = stage.main.parameters
    names, left_places, places, spots, inside, left_inside, outside = "abc"[-num:], [], [], [], [], [], []
    for axis, name in enumerate(names):
        stride, padding = strides[axis], along(attrs, "padding", axis)
        phase = plus(_digit("g", strides, axis), padding) if stride > 1 else ""
        step, spot = _digit("k", taps, axis), _digit("n", extents, axis) or "0"
        tap = f"({phase}) % {stride} + {step} * {stride}" if stride > 1 and step else f"({phase}) % {stride}"
        left_places.append(f"{name} = {tap if stride > 1 else step or '0'}")
        if taps[axis] * stride != kernels[axis]:
            left_inside.append(f"{name} < {kernels[axis]}")
        shift = f"{spot} + ({phase}) / {stride}" if stride > 1 else plus(spot, padding)
        places.append(f"{name} = {shift}" + (f" - {step}" if step else ""))
        inside += [f"{name} >= 0", f"{name} < {x.names[2 + axis]}"]
        spots.append(f"{name} = {spot} * {stride} + {_digit('g', strides, axis)}" if stride > 1 else f"{name} = {spot}")
        if out.sizes[2 + axis] % stride:
            outside.append(f"{name} >= {out.names[2 + axis]}")
    tap = f"({source_channel}) * {filters} + m" if " " in source_channel else f"{source_channel} * {filters} + m"
    for name, kernel in zip(names, kernels, strict=True):
        tap = f"({tap}) * {kernel} + {name}"
    num_places = prod(-(-size // s) for size, s in zip(out.sizes[2:], strides, strict=True))
    return Product(
        product([out.names[0], str(phases * groups)]),
        filters,
        product(extents),
        channels if volume == 1 else f"{channels} * {volume}",
        (out.sizes[0] * groups * phases, out.sizes[1] // groups, num_places, x.sizes[1] // groups * volume),
        f"{weight}[{tap}]",
        f"{stage.source}[{_flat(f'{sample} * {x.names[1]} + {source_channel}', x.names[2:], names)}]",
        f"{bias[0]}[{row}]" if bias else None,
        tuple(places),
        " && ".join(inside),
        left_together=False,
        right_together=False,
        left_place=tuple(left_places),
        left_inside=" && ".join(left_inside) or None,
        result_place=tuple(spots),
        outside=tuple(outside),
        names=tuple(spread),
        at=_flat(f"{sample} * {out.names[1]} + {row}", out.names[2:], names),
    )


def _has_phases(stage: Stage) -> bool:
    if not stage.name.startswith("conv_transpose"):
        return False
    assert stage.main is not None
    attrs, num = stage.main.op.attrs, len(stage.in_dims.names) - 2
    strides = [along(attrs, "stride", axis, 1) for axis in range(num)]
    return max(strides) > 1 and all(along(attrs, "dilation", axis, 1) == 1 for axis in range(num))


def _digit(number: str, sizes: Sequence[int | str], axis: int) -> str:
    """The index along one axis of a flat one; empty where it can only be zero."""
    if str(sizes[axis]) == "1":
        return ""
    numbers = [s for s in sizes[axis + 1 :] if isinstance(s, int)]
    names = [wrapped(s) for s in sizes[axis + 1 :] if isinstance(s, str)]
    below = product([*names, str(prod(numbers))])
    below = wrapped(below) if len(names) > 1 else below
    text = number if below == "1" else f"{number} / {below}"
    is_first = number == "n" and axis == 0
    return text if is_first else f"{text} % {wrapped(str(sizes[axis]))}"


def _flat(row: str, dims: tuple[str, ...], names: str) -> str:
    for dim, name in zip(dims, names, strict=True):
        row = f"({row}) * {dim} + {name}"
    return row
