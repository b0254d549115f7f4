"""What a module computes, in one normalised line an operator: names of the pointers, shapes in numbers, no style."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kevin.core.types import OpCall, TaskSpec
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import Step


def restated(steps: Sequence[Step], spec: TaskSpec, names: Mapping[str, str]) -> list[str]:
    """Lines such as ``conv2d of x (16, 3, 64, 64) with conv_weight (32, 3, 3, 3), stride 2 -> (16, 32, 31, 31)``.

    Args:
        spec: the plain task's.
        names: by its names those that the kernel is given.
    """
    shapes = {s.name: s.shape for s in (*spec.inputs, *spec.parameters) if s.kind == "tensor"}
    lines = []
    for i, step in enumerate(steps):
        read = f"{names['x']} {_shape(step.in_shape)}" if i == 0 else "it"
        tensors = [n for n in (step.second, step.third, *step.parameters) if n]
        further = [f"{names[n]} {_shape(shapes[n])}" if n in shapes else names[n] for n in tensors]
        further += [said for name, value in _attributes(step.op) if (said := _said(step, i, name, value, names))]
        given = f" with {', '.join(further)}" if further else ""
        target = "out " if i == len(steps) - 1 else ""
        lines.append(f"{step.op.name} of {read}{given} -> {target}{_shape(step.out_shape)}")
    return lines


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


_ORDER = ("kernel", "stride", "padding", "output_padding", "dilation", "groups")
_DEFAULTS = {"padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}
_SEEN_IN_SHAPES = ("out", "bias", "ndim", "axis", "view", "again", "track")
"""Attributes that are not said."""


def _attributes(op: OpCall) -> list[tuple[str, float]]:
    """Those of a window in one order, and all that it could have been given: copying is easier than leaving out."""
    given = {_base(name) for name in op.attrs}
    unsaid = {n: _DEFAULTS[n] for n in OPERATORS[op.name].optional if n in _DEFAULTS and n not in given}
    attributes = {**op.attrs, **unsaid}
    return sorted(attributes.items(), key=lambda pair: _ORDER.index(_base(pair[0])) if _base(pair[0]) in _ORDER else -1)


def _base(name: str) -> str:
    """``kernel`` of ``kernel_0``, which is that along one axis."""
    return re.sub(r"_\d$", "", name)


def _said(step: Step, at: int, name: str, value: float, names: Mapping[str, str]) -> str:
    """An attribute, empty where the shapes say it. A dimension counts from the front; results are those of lines."""
    if name in _SEEN_IN_SHAPES:
        return ""
    if name == "of":
        return "itself" if value == at else names["x"] if value == 0 else f"line {int(value)}"
    return f"{name} {int(value) % len(step.in_shape) if name == 'dim' else f'{value:g}'}"
