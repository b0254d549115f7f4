"""The same operators at other sizes, ranks and constants: powers of two, odd numbers, those that benchmarks use."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

from kevin.core.errors import TaskError
from kevin.core.types import OpCall, Task
from kevin.tasks.operators import NAMES_BY_RANK, OPERATORS, Sizes
from kevin.tasks.ops import Step, Trace, render_module, sizes_of, trace

LARGEST = 2**29
"""Elements of a tensor: 2 GB of float32."""

_ATTEMPTS = 12
_FIRST_ONLY = ("elementwise", "second", "row", "reduce", "scan")
"""Kinds that work on tensors of several ranks in the same way."""

_USUAL: dict[str, tuple[int, ...]] = {
    "batch_size": (1, 2, 4, 8, 10, 16, 16, 32, 32, 64, 64, 100, 112, 128, 128, 256, 512, 1024),
    "dim": (64, 100, 128, 255, 256, 512, 768, 1000, 1024, 2048, 4096, 4095, 8192, 16384, 32768, 65536, 393216),
    "channels": (1, 3, 8, 16, 24, 32, 32, 48, 64, 64, 96, 128, 256, 512),
    "in_channels": (1, 3, 3, 4, 8, 16, 16, 32, 32, 64, 64, 128, 256),
    "out_channels": (8, 16, 16, 24, 32, 32, 64, 64, 96, 128, 128, 256),
    "length": (64, 128, 256, 500, 512, 1000, 1024, 4095, 4096, 8192, 16384, 65536, 131072),
    "depth": (4, 8, 16, 16, 24, 32, 64),
    "height": (7, 14, 16, 28, 32, 32, 56, 64, 64, 112, 128, 128, 224, 256, 256, 512, 1024),
    "in_features": (10, 32, 64, 100, 128, 256, 512, 768, 1000, 1024, 2048, 4096, 8192, 8192, 16384, 32768),
    "rows": (16, 32, 64, 100, 128, 256, 512, 1000, 1024, 2048, 2048, 4096, 4096, 8192, 16384, 32768),
    "classes": (10, 100, 128, 512, 1000, 1024, 4096, 32000),
}
_USUAL |= {"width": _USUAL["height"], "out_features": _USUAL["in_features"]}
_USUAL |= {"inner": _USUAL["rows"], "cols": _USUAL["rows"]}
_FLAT_BATCH = (16, 32, 64, 128, 128, 256, 512, 1024, 1024, 2048, 4096, 4096, 8192, 16384, 32768, 65536)
_SQUARE = ("matmul_symmetric", "matmul_upper_triangular", "matmul_lower_triangular")
_OF_RESULT = ("out_channels", "out_features")
"""Sizes of a result that are given; all other ``out_*`` follow."""
_FLAT = ("dim", "in_features", "classes")
_OF_INPUTS = frozenset(name for of_rank in NAMES_BY_RANK.values() for name in of_rank)
"""Sizes of inputs of any rank; a sequence with others has an operator that needs them."""

_CONSTANTS: dict[str, tuple[float, ...]] = {
    "eps": (1e-5, 1e-5, 1e-5, 1e-6, 1e-3, 1e-4),
    "slope": (0.01, 0.01, 0.1, 0.2, 0.3, 0.05),
    "c": (0.5, 2.0, 1.5, 0.1, 3.0, 0.25, 10.0, -0.5, -1.0, 1.0, 0.75),
    "alpha": (1.0, 1.0, 0.5, 1.5),
    "kernel": (2, 3, 3, 3, 4, 5, 7, 11),
    "stride": (1, 1, 2, 2, 3, 4),
    "padding": (0, 0, 1, 1, 2, 3),
    "groups": (2, 4, 8, 8, 16, 32),
    "dim": (-1, -1, -1, 1, 1, 2, 0),
}
_OPTIONAL: dict[str, tuple[float, tuple[int, ...]]] = {
    "padding": (0.4, (1, 1, 2, 3, 4)),
    "dilation": (0.2, (2, 2, 3, 4)),
    "groups": (0.1, (2, 4, 8, 16)),
    "output_padding": (0.2, (1, 1, 2)),
}
"""What pools and convolutions may have besides: how often, and which values."""
_LIMITS = ((-1.0, 1.0), (-0.5, 0.5), (0.0, 1.0), (-2.0, 2.0), (-1.0, 2.0), (0.0, 6.0), (-10.0, 10.0), (0.1, 0.9))


def vary_sizes(task: Task, rng: random.Random, *, largest: int = LARGEST) -> Task:
    """The operators of ``task`` at sizes, and with constants, drawn anew; where no draw fits, the task itself.

    The rank changes too where the first operator allows it. No tensor has more than ``largest`` elements.
    """
    plain = sizes_of(task.source)
    for _ in range(_ATTEMPTS):
        ops = [_varied(op, rng) for op in task.ops]
        sizes = _sizes(ops, plain, rng)
        try:
            fitting = _fitted(ops, sizes, largest)
        except (TaskError, IndexError, ValueError):
            continue
        if fitting:
            ops = [s.op for s in fitting[0].steps]
            return task.model_copy(
                update={"ops": tuple(ops), "source": render_module(ops, fitting[1]), "spec": fitting[0].spec}
            )
    return task


def _sizes(ops: Sequence[OpCall], plain: Sizes, rng: random.Random) -> dict[str, int]:
    operator = OPERATORS[ops[0].name]
    names: Sequence[str] = [n for n in plain if not n.startswith("out_") or n in _OF_RESULT]
    ranks = [r for r in operator.ranks if r in NAMES_BY_RANK and r > 1]
    any_rank = operator.kind in _FIRST_ONLY and operator.constructor is None and set(names) <= _OF_INPUTS
    if any_rank and len(names) in ranks and rng.random() < 0.4:
        names = NAMES_BY_RANK[rng.choice(ranks)]
    sizes = {name: _size(name, names, rng) for name in names}
    if {"height", "width"} <= sizes.keys() and rng.random() < 0.7:
        sizes["width"] = sizes["height"]
    if {"rows", "inner", "cols"} <= sizes.keys() and rng.random() < 0.3:
        sizes |= dict.fromkeys(("rows", "inner", "cols"), sizes["rows"])
    if ops[0].name in _SQUARE:
        sizes["inner"] = sizes["rows"]
    return sizes


def _size(name: str, names: Sequence[str], rng: random.Random) -> int:
    usual = _USUAL.get(name, (2, 4, 8, 16, 32, 64))
    if name == "batch_size" and any(flat in names for flat in _FLAT):
        usual = _FLAT_BATCH
    size = rng.choice(usual)
    match rng.randrange(6):
        case 0:
            return rng.randint(min(usual), min(max(usual), 8 * size))
        case 1:
            return max(1, size + rng.choice((-1, 1, 3, size // 2)))
    return size


def _varied(op: OpCall, rng: random.Random) -> OpCall:
    attrs = dict(op.attrs)
    by_axis = any(name.endswith(("_0", "_1", "_2")) for name in attrs)
    if rng.random() < 0.3 or attrs.get("kernel") == 1 or by_axis:
        return op
    for name in op.attrs:
        if name in _CONSTANTS and (name != "dim" or rng.random() < 0.5):
            attrs[name] = rng.choice(_CONSTANTS[name])
    if "min" in attrs and "max" in attrs:
        attrs["min"], attrs["max"] = rng.choice(_LIMITS)
    if "kernel" in attrs and "padding" not in attrs and rng.random() < 0.6:
        attrs["stride"] = attrs["kernel"]
    for name, (share, values) in _OPTIONAL.items():
        if name in OPERATORS[op.name].optional and name not in attrs and rng.random() < share:
            attrs[name] = rng.choice(values)
    return op.model_copy(update={"attrs": attrs})


def _fitted(ops: Sequence[OpCall], sizes: dict[str, int], largest: int) -> tuple[Trace, dict[str, int]] | None:
    """The trace at these sizes, halved until every tensor is small enough; None where the operators do not fit."""
    while True:
        traced = trace(ops, sizes)
        shapes = _all_shapes(traced)
        if min(min(shape, default=1) for shape in shapes) < 1 or not all(map(_is_sound, traced.steps)):
            return None
        if not all(_is_fitting(traced, at) for at in range(len(ops))):
            return None
        if max(map(prod, shapes)) <= largest:
            return traced, sizes
        longest = max(sizes.values())  # equal ones stay equal
        sizes = {name: size // 2 if size == longest else size for name, size in sizes.items()}


def _all_shapes(traced: Trace) -> list[list[int]]:
    """Of inputs, parameters and every step's result."""
    shapes = [[d.size for d in shape] for shape in traced.shapes]
    shapes += [[d.size for d in shape] for _, shape, *_ in traced.inputs]
    shapes += [[d.size for d in s] for c in traced.constructors if c for _, s in c.parameters]
    return shapes


def largest_tensor(traced: Trace) -> int:
    """Elements of the largest tensor that is read or made."""
    return max(map(prod, _all_shapes(traced)))


def _is_fitting(traced: Trace, at: int) -> bool:
    """Whether an earlier result can be broadcast against what a step reads it with."""
    if traced.steps[at].kind != "residual":
        return True
    now, earlier = (traced.shapes[i][::-1] for i in (at, int(traced.steps[at].op.attrs["of"])))
    return all(a.size == b.size or 1 in (a.size, b.size) for a, b in zip(now, earlier, strict=False))


def _is_sound(step: Step) -> bool:
    """Whether PyTorch takes these sizes."""
    attrs, shape = step.op.attrs, step.in_shape
    channels = (shape[1:2], step.out_shape[1:2]) if "groups" in attrs else ()
    if any(c % int(attrs["groups"]) for (c,) in channels):
        return False
    if step.kind == "norm" and prod(shape[2:]) < 2:
        return False
    if "dim" in attrs and not -len(shape) <= attrs["dim"] <= len(shape) - attrs.get("num_dims", 1):
        return False
    if attrs.get("num_dims", 1) > 1 and attrs.get("dim", 0) < 0:
        return False
    if attrs.get("output_padding", 0) >= max(attrs.get("stride", 1), attrs.get("dilation", 1)):
        return False
    if step.kind in ("pool", "contract") and 2 * attrs.get("padding", 0) > attrs.get("kernel", 1):
        return False
    if step.kind == "pool" and "kernel" in attrs:
        return min(shape[-1:] if len(shape) == 2 else shape[2:]) >= attrs["kernel"]
    return True
