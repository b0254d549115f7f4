"""Which operators are element-wise, and the statements that each of them is."""

from __future__ import annotations

from kevin.tasks.ops import Step
from kevin.writer import pointwise

LINES: dict[str, tuple[tuple[str, str], ...]] = {
    **{name: lines for name, lines in pointwise.LINES.items() if name not in ("bias_add", "add_input", "mul_input")},
    "selu": (
        (
            "v = 1.050700987f * (v > 0 ? v : 1.673263242f * expm1(v));",
            "v = 1.050700987f * (v > 0 ? v : 1.673263242f * exp(v));",
        ),
    ),
    "hardsigmoid": (("v = v < -3 ? 0 : v > 3 ? 1 : v / 6 + 0.5f;", "v = v < -3 ? 0 : v > 3 ? 1 : v / 6;"),),
    "new_gelu": (
        (
            "v = 0.5f * v * (1 + tanh(0.7978845608f * (v + 0.044715f * v * v * v)));",
            "v = 0.5f * v * (1 + tanh(0.7978845608f * v));",
        ),
    ),
    "abs": (("v = fabs(v);", "v = -v;"),),
    "square": (("v = v * v;", "v = 2 * v;"),),
    "sub_scalar": (("v = v - {c}f;", "v = {c}f - v;"),),
    "div_scalar": (("v = v / {c}f;", "v = v * {c}f;"),),
    "clamp_min": (("v = v < {min}f ? {min}f : v;", "v = v > {min}f ? {min}f : v;"),),
    "min_scalar": (("v = v < {c}f ? v : {c}f;", "v = v > {c}f ? v : {c}f;"),),
    "max_scalar": (("v = v > {c}f ? v : {c}f;", "v = v < {c}f ? v : {c}f;"),),
    "bias_add": (("v = v + {parameter};", "v = v + {wrong};"),),
    "add_param": (("v = v + {parameter};", "v = v + {wrong};"),),
    "sub_param": (("v = v - {parameter};", "v = v + {parameter};"),),
    "mul_param": (("v = v * {parameter};", "v = v + {parameter};"),),
    "min_param": (("v = v < {parameter} ? v : {parameter};", "v = v > {parameter} ? v : {parameter};"),),
    "add_input": (("v = v + {second}[i];", "v = v - {second}[i];"),),
    "mul_input": (("v = v * {second}[i];", "v = v + {second}[i];"),),
    "scale_input": (("v = v * (real){second};", "v = v + (real){second};"),),
    "add_residual": (("v = v + {other};", "v = v - {other};"),),
    "mul_residual": (("v = v * {other};", "v = v + {other};"),),
    "residual_sub": (("v = {other} - v;", "v = v - {other};"),),
    "dropout": (),
}
"""By operator: pairs of the right statement and a wrong one."""


def is_pointwise(step: Step) -> bool:
    return step.op.name in LINES
