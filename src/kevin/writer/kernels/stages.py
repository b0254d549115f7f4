"""A sequence cut into stages: a main operator, then element-wise ones, each stage from one buffer to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kevin.core.errors import TaskError
from kevin.core.types import OpCall
from kevin.tasks.operators import Attrs
from kevin.tasks.ops import Step
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.dims import DimNames, Dims, wrapped
from kevin.writer.kernels.elementwise import LINES, is_pointwise

SCORES, VALUES = "attention_scores", "attention_values"
"""The two products of attention, which are stages of their own."""


@dataclass(frozen=True)
class Stage:
    """A part of a kernel: ``main`` (None: nothing but a read), then ``chain``, element by element."""

    main: Step | None
    chain: tuple[Step, ...]
    number: int
    """Results that are there before the first of ``chain``: the input is result 0."""
    in_dims: Dims
    out_dims: Dims
    source: str = ""
    target: str = ""
    function: str = ""
    """Name of the function that stands for ``chain``; empty when there is none."""
    others: tuple[tuple[int, str, Dims], ...] = ()
    """Earlier results that ``chain`` reads from memory: number, buffer, dimensions."""

    @property
    def name(self) -> str:
        return self.main.op.name if self.main else ""

    @property
    def kind(self) -> str:
        return self.main.kind if self.main else ""

    @property
    def step(self) -> Step:
        """``main``, where there is one."""
        assert self.main is not None
        return self.main

    @property
    def attrs(self) -> Attrs:
        return self.step.op.attrs

    @property
    def is_transposed(self) -> bool:
        return self.name.startswith("conv_transpose")

    @property
    def steps(self) -> tuple[Step, ...]:
        return ((self.main,) if self.main else ()) + self.chain

    @property
    def keeps_shape(self) -> bool:
        """Each element is written where it was read, so that it can work in place."""
        return self.in_dims.sizes == self.out_dims.sizes and self.kind in ("", "row", "norm", "scan")

    @property
    def uses_index(self) -> bool:
        """Whether ``function`` has to know where its value lies."""
        return any(
            s.parameters
            or (s.second and s.op.name != "scale_input")
            or (s.kind == "residual" and not self.is_local(int(s.op.attrs["of"])))
            for s in self.chain
        )

    @property
    def bare(self) -> Stage:
        """Its main operator alone."""
        return replace(self, chain=(), function="", others=())

    def applied(self, value: str, index: str) -> str:
        """``value``, run through ``chain``."""
        if not self.function:
            return value
        return f"{self.function}({value}, {index})" if self.uses_index else f"{self.function}({value})"

    def is_local(self, result: int) -> bool:
        """Whether an earlier result is at hand as the value that the stage just made."""
        return result >= self.number

    def wanted(self) -> tuple[int, ...]:
        """Earlier results that have to be read from memory."""
        of = (int(s.op.attrs["of"]) for s in self.chain if s.kind == "residual")
        return tuple(dict.fromkeys(n for n in of if not self.is_local(n)))


@dataclass(frozen=True)
class Program:
    """All stages, the names of sizes, and the scratch buffers with their dimensions."""

    stages: tuple[Stage, ...]
    declarations: tuple[tuple[str, str], ...]
    scratch: tuple[tuple[str, Dims], ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for stage in self.stages for step in stage.steps)


def _expands(step: Step) -> bool:
    return step.kind == "residual" and step.in_shape != step.out_shape


def _cut(steps: Sequence[Step], *, fused: bool, ends: set[int]) -> list[tuple[Step | None, list[Step], int]]:
    """Main operator, chain and number of its first result, stage by stage; a stage ends at each result of ``ends``."""
    parts: list[tuple[Step | None, list[Step], int]] = []
    at = 0
    while at < len(steps):
        main = None if is_pointwise(steps[at]) else steps[at]
        run = at + 1
        while run < len(steps) and run not in ends and is_pointwise(steps[run]) and not _expands(steps[run]):
            run += 1
        if main is None:
            parts.append((None, list(steps[at:run]), at))
        elif fused or run == at + 1:
            parts.append((main, list(steps[at + 1 : run]), at + 1))
        else:
            parts += [(main, [], at + 1), (None, list(steps[at + 1 : run]), at + 1)]
        at = run
    return parts


def _attention(step: Step) -> tuple[Step, ...]:
    """Attention as scores, a softmax and a product with the values."""
    *lead, width = step.in_shape
    scores = (*lead, lead[-1])
    return (
        Step(op=OpCall(name=SCORES), kind="contract", in_shape=step.in_shape, out_shape=scores, second=step.second),
        Step(op=OpCall(name="softmax", attrs={"dim": 3}), kind="row", in_shape=scores, out_shape=scores),
        Step(op=OpCall(name=VALUES), kind="contract", in_shape=scores, out_shape=(*lead, width), second=step.third),
    )


def cut(steps: Sequence[Step], *, fused: bool) -> Program:
    """Stages with buffers: scratch only where neither the output nor working in place will do.

    Raises TaskError for attention in a sequence that reads earlier results.
    """
    if any(s.op.name == "attention" for s in steps):
        if any(s.kind == "residual" for s in steps):
            raise TaskError("the kernel writer knows no attention with an earlier result added")
        steps = [part for s in steps for part in (_attention(s) if s.op.name == "attention" else (s,))]
    names = DimNames(steps[0].in_shape)
    results = [names.x]
    for step in steps:
        other = results[int(step.op.attrs["of"])] if step.kind == "residual" else None
        results.append(names.after(step, results[-1], other))
    ends: set[int] = set()
    while True:
        stages, at, reached = [], 0, {0}
        for main, chain, number in _cut(steps, fused=fused, ends=ends):
            end = at + len(chain) + (main is not None)
            stages.append(Stage(main, tuple(chain), number, results[at], results[end]))
            at = end
            reached.add(end)
        inside = {n for s in stages for n in s.wanted()} - reached
        if not inside:
            return _with_buffers(stages, names.declarations, results)
        ends |= inside


def _with_buffers(stages: list[Stage], declarations: list[tuple[str, str]], results: list[Dims]) -> Program:
    scratch: list[tuple[str, Dims]] = []
    holds = {0: "x"}
    done: list[Stage] = []
    source = "x"
    at = 0
    num_functions = 0
    for i, stage in enumerate(stages):
        end = at + len(stage.steps)
        later = stages[i + 1 :]
        wanted_later = {n for s in later for n in s.wanted()}
        source_pinned = at in wanted_later.union(stage.wanted())
        rest_in_place = all(s.keeps_shape for s in later)
        if not later or (rest_in_place and end not in wanted_later and not source_pinned and source == "out"):
            target = "out"
        elif stage.keeps_shape and source not in ("x", "out") and not source_pinned:
            target = source
        elif rest_in_place and max(wanted_later, default=-1) < end:  # else the output's buffer would be read again
            target = "out"
        else:
            target = f"t{len(scratch) + 1}"
            scratch.append((target, stage.out_dims))
        others = tuple((n, holds[n], results[n]) for n in stage.wanted())
        num_functions += bool(stage.chain)
        function = f"f{num_functions}" if stage.chain else ""
        done.append(replace(stage, source=source, target=target, function=function, others=others))
        holds[end] = target
        source, at = target, end
    return Program(tuple(done), tuple(declarations), tuple(scratch))


# --- a chain as text -------------------------------------------------------------------------------------------


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
