"""Element-wise operators as C statements on a variable ``v``, the same in C++ and CUDA."""

from __future__ import annotations

from collections.abc import Sequence

from kevin.core.errors import TaskError
from kevin.tasks.ops import Step
from kevin.writer import layout
from kevin.writer.code import Code

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
    "bias_add": (("v = v + {bias}[{channel}];", "v = v + {bias}[0];"),),
    "add_input": (("v = v + {second}[{index}];", "v = v - {second}[{index}];"),),
    "mul_input": (("v = v * {second}[{index}];", "v = v + {second}[{index}];"),),
}
"""By operator: pairs of the right statement and a wrong one. ``{c}f`` and the like are the operator's attributes."""


def is_pointwise(step: Step) -> bool:
    return step.op.name in LINES


def end_of_run(steps: Sequence[Step], at: int) -> int:
    """Where the element-wise operators that follow step ``at`` end."""
    run = at + 1
    while run < len(steps) and is_pointwise(steps[run]):
        run += 1
    return run


def add_function(code: Code, name: str, steps: Sequence[Step], rank: int | None) -> None:
    """A function ``name`` of a value, and of its row and element where the tensor is not flat (``rank``)."""
    place = ", int64_t r, int64_t n" if rank is not None else ""
    code.add(f"auto {name} = [=](real v{place}) {{")
    with code.indented():
        for step in steps:
            _add_statements(code, step, layout.channel(rank) if rank is not None else "")
        code.add("return v;", missing_semicolon="return v")
    code.add("};")


def _add_statements(code: Code, step: Step, channel: str) -> None:
    if not channel and (step.parameters or step.second):
        raise TaskError(f"the kernel writer knows no {step.op.name} after a reduction")
    fields: dict[str, str | int | float] = {**step.op.attrs, "index": "r * N + n", "channel": channel}
    fields |= {"bias": step.parameters[-1] if step.parameters else "", "second": step.second or ""}
    for right, wrong in LINES[step.op.name]:
        code.add(right.format(**fields), wrong_formula=wrong.format(**fields), op_left_out=None)
