"""Operator sequence and sizes -> the text of a module in KernelBench's format, short and regular."""

from __future__ import annotations

from collections.abc import Sequence

from kevin.core.types import OpCall, Task
from kevin.tasks.operators import Sizes
from kevin.tasks.ops import Trace, expression, sizes_of, trace


def _forward(traced: Trace) -> list[str]:
    """One line a step; a result that a later step reads is kept under a name of its own."""
    wanted = sorted({int(s.op.attrs["of"]) for s in traced.steps if s.kind == "residual" and s.op.attrs["of"]})
    kept = {of: "residual" if i == 1 else f"residual_{i}" for i, of in enumerate(wanted, 1)}
    lines = []
    x = "x"
    for i, step in enumerate(traced.steps):
        residual = kept.get(int(step.op.attrs["of"]), "x") if step.kind == "residual" else None
        lines.append(f"        out = {expression(step, traced.shapes[i], x, residual)}")
        x = "out"
        if i + 1 in kept:
            lines.append(f"        {kept[i + 1]} = out")
    return lines


def _constants(traced: Trace, sizes: Sizes, text: str) -> list[str]:
    """The given sizes, then derived ones that the text uses."""
    named = (d for shape in traced.shapes for d in shape if not d.name.isdigit())
    derived = {d.name: d.size for d in named if d.name not in sizes}
    return [
        *(f"{name} = {size}" for name, size in sizes.items()),
        *(f"{name} = {size}" for name, size in derived.items() if name in text),
    ]


def render(ops: Sequence[OpCall], sizes: Sizes) -> str:
    """Source of a module in KernelBench's format. Raises TaskError as `trace` does."""
    traced = trace(ops, sizes)
    constructors = [c for c in traced.constructors if c]
    init_args = list(dict.fromkeys(name for c in constructors for name in c.sizes))
    body = []
    if constructors:
        body += [f"    def __init__({', '.join(['self', *init_args])}):", "        super().__init__()"]
        body += [f"        self.{c.attribute} = {c.text}" for c in constructors]
        body.append("")
    body += [
        f"    def forward({', '.join(['self', *(name for name, *_ in traced.inputs)])}):",
        *_forward(traced),
        "        return out",
    ]
    inputs = [
        "def get_inputs():",
        *(f"    {name} = {sample}" for name, _, _, sample in traced.inputs),
        f"    return [{', '.join(name for name, *_ in traced.inputs)}]",
        "",
        "def get_init_inputs():",
        f"    return [{', '.join(init_args)}]",
    ]
    imports = ["import torch", "import torch.nn as nn"]
    if any("F." in line for line in body):
        imports.append("import torch.nn.functional as F")
    constants = _constants(traced, sizes, "\n".join(body + inputs))
    lines = [*imports, "", *constants, "", "class Model(nn.Module):", *body, "", *inputs]
    return "\n".join(lines) + "\n"


def trace_task(task: Task) -> Trace:
    """`trace` of an own task, from its operators and the sizes in its source. Raises TaskError for others."""
    return trace(task.ops, sizes_of(task.source))
