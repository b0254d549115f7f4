"""Element-wise operators as C statements on a variable ``v``, the same in C++ and CUDA."""

from __future__ import annotations

from kevin.tasks.ops import Step
from kevin.writer.code import Code

_LINES: dict[str, tuple[tuple[str, str], ...]] = {
    "relu": (("v = v > 0 ? v : 0;", "v = v < 0 ? v : 0;"),),
    "leaky_relu": (("v = v > 0 ? v : {slope}f * v;", "v = v > 0 ? v : v - {slope}f;"),),
    "sigmoid": (("v = 1 / (1 + expf(-v));", "v = 1 / (1 + expf(v));"),),
    "tanh": (("v = tanhf(v);", "v = tanhf(v) + 1;"),),
    "gelu": (("v = 0.5f * v * (1 + erff(0.70710678f * v));", "v = v * (1 + erff(0.70710678f * v));"),),
    "silu": (("v = v / (1 + expf(-v));", "v = v / (1 + expf(v));"),),
    "softplus": (("v = (v > 0 ? v : 0) + log1pf(expf(-fabsf(v)));", "v = (v > 0 ? v : 0) + expf(-fabsf(v));"),),
    "elu": (
        (
            "v = (v > 0 ? v : 0) + {alpha}f * expm1f(v < 0 ? v : 0);",
            "v = (v > 0 ? v : 0) + {alpha}f * expf(v < 0 ? v : 0);",
        ),
    ),
    "hardtanh": (
        ("v = v < {min}f ? {min}f : v;", "v = v < 0 ? 0 : v;"),
        ("v = v > {max}f ? {max}f : v;", "v = v > 6 ? 6 : v;"),
    ),
    "hardswish": (("v = v * (v < -3 ? 0 : v > 3 ? 6 : v + 3) / 6;", "v = v * (v < -3 ? 0 : v > 3 ? 6 : v + 3);"),),
    "softsign": (("v = v / (1 + fabsf(v));", "v = v / (1 + v);"),),
    "mish": (("v = v * tanhf(log1pf(expf(v)));", "v = tanhf(log1pf(expf(v)));"),),
    "scale": (("v = v * {c}f;", "v = v + {c}f;"),),
    "add_scalar": (("v = v + {c}f;", "v = v - {c}f;"),),
    "clamp": (
        ("v = v < {min}f ? {min}f : v;", "v = v < 0 ? 0 : v;"),
        ("v = v > {max}f ? {max}f : v;", "v = v > 6 ? 6 : v;"),
    ),
    "bias_add": (("v = v + {bias}[{channel}];", "v = v + {bias}[0];"),),
    "add_input": (("v = v + {second}[{index}];", "v = v - {second}[{index}];"),),
    "mul_input": (("v = v * {second}[{index}];", "v = v + {second}[{index}];"),),
}
"""By operator: pairs of the right statement and a wrong one. ``{c}f`` and the like are the operator's attributes."""

_DOUBLE = ("expf", "tanhf", "erff", "log1pf", "logf", "expm1f", "fabsf", "sqrtf")


def is_pointwise(step: Step) -> bool:
    return step.op.name in _LINES


def in_double(text: str) -> str:
    """The same statement with C's functions for double."""
    for name in _DOUBLE:
        text = text.replace(f"{name}(", f"{name[:-1]}(")
    return text


def add_pointwise(code: Code, step: Step, *, index: str, channel: str, real: str = "float") -> None:
    """Statements of one operator on ``v`` of type ``real``.

    Args:
        index: C expression of the element's offset, for a second input.
        channel: C expression of its channel, for a bias.
    """
    fields: dict[str, str | int | float] = {**step.op.attrs, "index": index, "channel": channel}
    fields |= {"bias": step.parameters[-1] if step.parameters else "", "second": step.second or ""}
    for right, wrong in _LINES[step.op.name]:
        texts = right.format(**fields), wrong.format(**fields)
        if real == "double":
            texts = in_double(texts[0]), in_double(texts[1])
        code.add(texts[0], wrong_formula=texts[1], op_left_out=None)
