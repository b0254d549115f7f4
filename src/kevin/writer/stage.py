"""One operator of a kernel with what is fused into it, and how a result is stored."""

from __future__ import annotations

from dataclasses import dataclass

from kevin.core.errors import TaskError
from kevin.tasks.ops import Step
from kevin.writer import layout
from kevin.writer.code import Code
from kevin.writer.layout import Rows
from kevin.writer.pointwise import add_pointwise, in_double
from kevin.writer.slots import Slots


@dataclass(frozen=True)
class Stage:
    """An operator that reads ``source`` and writes ``target``, with element-wise operators fused into its store."""

    step: Step
    source: str
    target: str
    chain: tuple[Step, ...] = ()
    reduced: bool = False
    """Whether a dimension of the first operator's result is gone already."""

    @property
    def rows(self) -> Rows:
        """The contiguous rows that it works over. Raises TaskError for an operator that works over the channels."""
        rows = Rows("R / C", "C") if self.reduced else layout.rows(self.step)
        if rows is None:
            raise TaskError(f"the kernel writer knows no {self.step.op.name} over the channels")
        return rows

    @property
    def weight(self) -> str:
        return self.step.parameters[0]

    @property
    def bias(self) -> str:
        return self.step.parameters[1]


def math(text: str, slots: Slots) -> str:
    """The expression with C's functions for the type of the ``real`` slot."""
    return in_double(text) if slots["real"] == "double" else text


def add_store(
    code: Code,
    stage: Stage,
    slots: Slots,
    value: str,
    *,
    index: str,
    channel: str = "0",
    place: str | None = None,
    **wrong: str,
) -> None:
    """Run ``value`` through the fused operators and store it.

    Args:
        index: offset of the result, for second inputs.
        place: where it is stored; the target at ``index`` when absent.
        wrong: by mistake, the text that stands in place of ``value``.
    """
    place = place or f"{stage.target}[{index}]"
    value = math(value, slots)
    wrong = {m: math(v, slots) for m, v in wrong.items()}
    if not stage.chain:
        texts = {m: f"{place} = {v};" for m, v in wrong.items()}
        code.add(f"{place} = {value};", **texts, missing_semicolon=f"{place} = {value}")
        return
    code.add(f"{slots['real']} v = {value};", **{m: f"{slots['real']} v = {v};" for m, v in wrong.items()})
    for step in stage.chain:
        add_pointwise(code, step, index=index, channel=channel, real=slots["real"])
    code.add(f"{place} = v;", missing_semicolon=f"{place} = v")
