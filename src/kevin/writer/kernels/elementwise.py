"""Element-wise operators as C statements on a variable ``v``, the same in C++ and CUDA."""

from __future__ import annotations

from kevin.tasks.ops import Step

LINES: dict[str, tuple[tuple[str, str], ...]] = {
    "relu": (("v = v > 0 ? v : 0;", "v = v < 0 ? v : 0;"),),
    "leaky_relu": (("v = v > 0 ? v : {slope}f * v;", "v = v > 0 ? v : v - {slope}f;"),),
    "sigmoid": (("v = 1 / (1 + exp(-v));", "v = 1 / (1 + exp(v));"),),
    "tanh": (("v = tanh(v);", "v = tanh(v) + 1;"),),
    "gelu": (("v = 0.5f * v * (1 + erf(0.70710678f * v));", "v = v * (1 + erf(0.70710678f * v));"),),
    "silu": (("v = v / (1 + exp(-v));", "v = v / (1 + exp(v));"),),
    "softplus": (("v = (v > 0 ? v : 0) + log1p(exp(-fabs(v)));", "v = (v > 0 ? v : 0) + exp(-fabs(v));"),),
    "elu": (
        (
            "v = (v > 0 ? v : 0) + {alpha}f * expm1(v < 0 ? v : 0);",
            "v = (v > 0 ? v : 0) + {alpha}f * exp(v < 0 ? v : 0);",
        ),
    ),
    "hardtanh": (
        ("v = v < {min}f ? {min}f : v;", "v = v < 0 ? 0 : v;"),
        ("v = v > {max}f ? {max}f : v;", "v = v > 6 ? 6 : v;"),
    ),
    "hardswish": (("v = v * (v < -3 ? 0 : v > 3 ? 6 : v + 3) / 6;", "v = v * (v < -3 ? 0 : v > 3 ? 6 : v + 3);"),),
    "softsign": (("v = v / (1 + fabs(v));", "v = v / (1 + v);"),),
    "mish": (("v = v * tanh(log1p(exp(v)));", "v = tanh(log1p(exp(v)));"),),
    "scale": (("v = v * {c}f;", "v = v + {c}f;"),),
    "add_scalar": (("v = v + {c}f;", "v = v - {c}f;"),),
    "clamp": (
        ("v = v < {min}f ? {min}f : v;", "v = v < 0 ? 0 : v;"),
        ("v = v > {max}f ? {max}f : v;", "v = v > 6 ? 6 : v;"),
    ),
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
"""By operator, of element ``i`` of a tensor: pairs of the right statement and a wrong one. ``{c}f`` and the like are
the operator's attributes."""


def is_pointwise(step: Step) -> bool:
    return step.op.name in LINES
