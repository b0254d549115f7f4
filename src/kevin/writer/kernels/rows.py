"""Rows of elements that share a statistic, a maximum or a running sum, wherever they lie in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kevin.writer.kernels.dims import Dims, product, reduced_dims_of, wrapped
from kevin.writer.kernels.stages import Stage

SHORTEST_TO_SHARE = 32
LONGEST_FOR_ONE_THREAD = 16384


ROW_KINDS = ("row", "norm", "reduce", "scan", "loss")


@dataclass(frozen=True)
class Rows:
    """``num`` rows of ``length`` elements; ``start`` is where row ``r`` begins, ``at`` where its element ``n`` lies."""

    num: str
    length: str
    start: str
    at: str
    num_elements: int
    """Of one row."""
    apart: bool
    """Neighbours in memory belong to different rows: a thread for each row reads side by side."""
    first: str = "o"
    """Where its first element lies."""
    parts: tuple[str, str, str] | None = None
    """Of rows made of parts that are together in memory: their number, their length, and ``at`` for part ``c``."""

    @property
    def in_parts(self) -> Rows:
        """With element ``n`` of part ``c`` in place of element ``n`` of the row."""
        return replace(self, at=self.parts[2]) if self.parts else self

    @property
    def is_in_parts(self) -> bool:
        return self.parts is not None and self.at == self.parts[2]


def _strided(dims: Dims, first: int, num: int) -> Rows:
    inner, length = product(dims.names[first + num :]), product(dims.names[first : first + num])
    outer = product(dims.names[:first])
    elements = 1
    for size in dims.sizes[first : first + num]:
        elements *= size
    if all(size == 1 for size in dims.sizes[first + num :]):
        return Rows(outer, length, f"r * {wrapped(length)}", "o + n", elements, False)
    start = f"r / {wrapped(inner)} * {length} * {inner} + r % {wrapped(inner)}" if outer != "1" else "r"
    step = f"n * {wrapped(inner)}"
    return Rows(product([outer, inner]), length, start, f"o + {step}", elements, True)


def is_row_product(stage: Stage) -> bool:
    return stage.name == "matvec" or (stage.name == "matmul" and stage.out_dims.sizes[-1] == 1)


def is_global_pool(stage: Stage) -> bool:
    return stage.name == "adaptive_avg_pool" and all(size == 1 for size in stage.out_dims.sizes[2:])


def is_over_rows(stage: Stage) -> bool:
    """Whether each row of a stage's input, wherever it lies, makes one result or one row of results."""
    return stage.kind in ROW_KINDS or is_row_product(stage) or is_global_pool(stage)


def rows_of(stage: Stage) -> Rows:
    """The rows of a stage that normalises, reduces or scans."""
    dims, name = stage.in_dims, stage.name
    if is_row_product(stage):
        length = dims.names[1]
        return Rows(dims.names[0], length, f"r * {length}", "o + n", dims.sizes[1], False)
    if stage.kind == "loss":
        return _strided(dims, 1, 1)
    if name == "group_norm":
        groups = int(stage.attrs["groups"])
        length = product([f"{dims.names[1]} / {groups}", *dims.names[2:]])
        elements = dims.num // dims.sizes[0] // groups
        rows = Rows(f"{dims.names[0]} * {groups}", length, f"r * ({length})", "o + n", elements, False)
        inner = product(dims.names[2:])
        parts = (f"{dims.names[1]} / {groups}", inner, f"o + c * {wrapped(inner)} + n")
        return rows if inner == "1" else replace(rows, parts=parts)
    if name == "batch_norm":
        batch, channels, inner = dims.names[0], dims.names[1], wrapped(product(dims.names[2:]))
        elements = dims.num // dims.sizes[1]
        if inner == "1":
            return Rows(channels, batch, "r", f"o + n * {channels}", elements, True)
        at = f"(n / {inner} * {channels} + r) * {inner} + n % {inner}"
        parts = (batch, product(dims.names[2:]), f"(c * {channels} + r) * {inner} + n")
        length = product([batch, *dims.names[2:]])
        return Rows(channels, length, "0", at, elements, False, f"r * {inner}", parts)
    return _strided(dims, *reduced_dims_of(stage.step))


def is_shared(stage: Stage) -> bool:
    """Whether several threads can own one of its rows together."""
    rows = rows_of(stage)
    return not rows.apart and rows.num_elements >= SHORTEST_TO_SHARE and stage.name != "prod_dim"
