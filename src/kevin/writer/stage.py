"""One operator of a kernel with what is fused into it, and how a result is stored."""

from __future__ import annotations

from dataclasses import dataclass

from kevin.core.errors import TaskError
from kevin.tasks.ops import Step
from kevin.writer import layout
from kevin.writer.code import Code
from kevin.writer.layout import Rows


@dataclass(frozen=True)
class Stage:
    """An operator that reads ``source`` and writes ``target``, with element-wise operators fused into its store."""

    step: Step
    source: str
    target: str
    function: str | None = None
    """Name of the function that stands for the operators fused into the store."""
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
    def flat_result(self) -> bool:
        """Whether the result has lost a dimension, so that its elements have one index only."""
        return self.reduced or self.step.kind == "reduce"

    def applied(self, value: str) -> str:
        """The fused operators' function of a value."""
        if self.function is None:
            return value
        return f"{self.function}({value})" if self.flat_result else f"{self.function}({value}, r, n)"

    @property
    def weight(self) -> str:
        return self.step.parameters[0]

    @property
    def bias(self) -> str:
        return self.step.parameters[1]


def add_store(
    code: Code,
    stage: Stage,
    value: str,
    *,
    index: str,
    place: str | None = None,
    **wrong: str,
) -> None:
    """Store ``value``, run through the fused operators' function where there is one.

    Args:
        index: offset of the result; where the function asks for row and element they are in scope as ``r`` and ``n``.
        place: where it is stored; the target at ``index`` when absent.
        wrong: by mistake, the text that stands in place of ``value``.
    """
    place = place or f"{stage.target}[{index}]"
    texts = {m: f"{place} = {stage.applied(v)};" for m, v in wrong.items()}
    right = f"{place} = {stage.applied(value)}"
    code.add(f"{right};", **texts, missing_semicolon=right)
