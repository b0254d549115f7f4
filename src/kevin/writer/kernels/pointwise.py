"""Element-wise operators as statements on a value ``v`` at flat index ``i`` of a tensor of any rank."""

from __future__ import annotations

from kevin.tasks.ops import Step
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.dims import Dims, wrapped
from kevin.writer.kernels.elementwise import LINES
from kevin.writer.kernels.stages import Stage


def add_function(code: Code, stage: Stage, dims: Dims) -> None:
    """A function of a value, and of its flat index where that matters, that runs it through the stage's chain."""
    if not stage.function:
        return
    kept = {int(s.op.attrs["of"]) for s in stage.chain if s.kind == "residual"}
    code.add(f"auto {stage.function} = [=](real v{', idx i' if stage.uses_index else ''}) {{")
    with code.indented():
        result = stage.number
        for step in stage.chain:
            if result in kept:
                code.add(f"real r{result} = v;")
            _add_statements(code, stage, step, dims)
            result += 1
        code.add("return v;", missing_semicolon="return v")
    code.add("};")


def _add_statements(code: Code, stage: Stage, step: Step, dims: Dims) -> None:
    fields: dict[str, str | float] = {k: float(v) for k, v in step.op.attrs.items()}
    fields["second"] = step.second or ""
    if step.parameters:
        place = _place(step, dims)
        fields["parameter"] = f"{step.parameters[-1]}[{place}]"
        fields["wrong"] = f"{step.parameters[-1]}[0]" if place != "0" else f"0.5f * {step.parameters[-1]}[0]"
    if step.kind == "residual":
        fields["other"] = _other(stage, int(step.op.attrs["of"]), dims)
    for right, wrong in LINES[step.op.name]:
        code.add(right.format(**fields), wrong_formula=wrong.format(**fields), op_left_out=None)


def _place(step: Step, dims: Dims) -> str:
    """Index into a parameter."""
    attrs = step.op.attrs
    axis, ndim = int(attrs.get("axis", 1)), int(attrs.get("ndim", len(dims.names) - 1))
    has_axis = bool(attrs.get("view")) or (axis >= 0 and axis >= len(dims.names) - ndim)
    if not has_axis or axis >= len(dims.names) or dims.sizes[axis] == 1:
        return "0"
    return dims.coordinate(axis)


def _other(stage: Stage, result: int, dims: Dims) -> str:
    """An earlier result: a local value, or an element of a buffer."""
    if stage.is_local(result):
        return f"r{result}"
    buffer, other = next((b, d) for n, b, d in stage.others if n == result)
    return f"{buffer}[{broadcast_index(other, dims)}]"


def broadcast_index(other: Dims, dims: Dims) -> str:
    """Flat index into a tensor that is broadcast against ``dims``, of element ``i``."""
    if other.sizes == dims.sizes:
        return "i"
    shift = len(dims.sizes) - len(other.sizes)
    terms = []
    for axis, size in enumerate(other.sizes):
        if size > 1:
            stride = other.after(axis)
            place = dims.coordinate(axis + shift)
            terms.append(place if stride == "1" else f"{wrapped(place)} * {stride}")
    return " + ".join(terms) or "0"
