"""What a module computes, in one normalised line an operator: names of the pointers, shapes in numbers, no style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kevin.core.types import TaskSpec
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
        further += [said for name, value in step.op.attrs.items() if (said := _said(step, name, value, names))]
        given = f" with {', '.join(further)}" if further else ""
        target = "out " if i == len(steps) - 1 else ""
        lines.append(f"{step.op.name} of {read}{given} -> {target}{_shape(step.out_shape)}")
    return lines


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


_SEEN_IN_SHAPES = ("out", "bias", "ndim", "axis", "view", "again", "track")


def _said(step: Step, name: str, value: float, names: Mapping[str, str]) -> str:
    """An attribute, empty where the shapes say it. A dimension counts from the front; results are those of lines."""
    if name in _SEEN_IN_SHAPES:
        return ""
    if name == "of":
        return names["x"] if value == 0 else f"line {int(value)}"
    return f"{name} {int(value) % len(step.in_shape) if name == 'dim' else value}"
