"""One operator of a kernel with what is fused into it: its sizes by name, its rows, and how a result is stored.

Names of sizes are the same for every rank, so that kernels of one family read alike. A tensor of rank 2 has ``R`` rows
of ``N``; of rank 3 or 4 it has ``R`` = batch times ``C`` channels, each of ``N`` elements (``H`` times ``W`` for
pictures). After a reduction it is flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kevin.core.errors import TaskError
from kevin.tasks.ops import Step
from kevin.writer.code import Code
from kevin.writer.pointwise import SPECIAL_LINES


class Rows(NamedTuple):
    """C expressions: ``num`` rows of ``length`` contiguous elements."""

    num: str
    length: str

    def start(self, row: str = "r") -> str:
        """Offset of a row."""
        return f"{row} * {self.length}" if " " not in self.length else f"{row} * ({self.length})"


def _channel(rank: int) -> str:
    """Channel of element ``n`` of row ``r``."""
    return "n" if rank == 2 else "r % C"


def _input_sizes(rank: int) -> str:
    """Constants of an input tensor of this rank."""
    dims = [f"x_d{i}" for i in range(rank)]
    if rank == 2:
        return f"R = {dims[0]}, N = {dims[1]}"
    if rank == 3:
        return f"C = {dims[1]}, R = {dims[0]} * C, N = {dims[2]}"
    return f"C = {dims[1]}, R = {dims[0]} * C, H = {dims[2]}, W = {dims[3]}, N = H * W"


def _window(dim: str, kernel: str, step: Step) -> str:
    """Size of a dimension after a window moved over it."""
    stride, padding = int(step.op.attrs["stride"]), int(step.op.attrs.get("padding", 0))
    inner = f"{dim} - {kernel}" + (f" + {2 * padding}" if padding else "")
    return f"{inner} + 1" if stride == 1 else f"({inner}) / {stride} + 1"


def result_sizes(step: Step) -> str:
    """Constants of a first operator's result; ``K`` is the length of a product or the side of a window."""
    weight = step.parameters[0] if step.parameters else ""
    match step.op.name:
        case "matmul":
            return f"R = x_d0, K = x_d1, N = {step.second}_d1"
        case "matmul_transposed_b":
            return f"R = x_d0, K = x_d1, N = {step.second}_d0"
        case "linear":
            return f"R = x_d0, K = x_d1, N = {weight}_d0"
        case "matmul_batched":
            return f"C = x_d1, R = x_d0 * C, K = x_d2, N = {step.second}_d2"
        case "matvec":
            return "R = x_d0, K = x_d1"
        case "conv2d_pointwise":
            return f"C = {weight}_d0, R = x_d0 * C, K = x_d1, H = x_d2, W = x_d3, N = H * W"
        case "conv1d":
            return f"C = {weight}_d0, R = x_d0 * C, K = {weight}_d2, N = {_window('x_d2', 'K', step)}"
        case "conv2d" | "depthwise_conv2d":
            sides = f"H = {_window('x_d2', 'K', step)}, W = {_window('x_d3', 'K', step)}"
            return f"C = {weight}_d0, R = x_d0 * C, K = {weight}_d2, {sides}, N = H * W"
        case "max_pool1d" | "avg_pool1d":
            return f"C = x_d1, R = x_d0 * C, K = {step.op.attrs['kernel']}, N = {_window('x_d2', 'K', step)}"
        case "max_pool2d" | "avg_pool2d":
            sides = f"H = {_window('x_d2', 'K', step)}, W = {_window('x_d3', 'K', step)}"
            return f"C = x_d1, R = x_d0 * C, K = {step.op.attrs['kernel']}, {sides}, N = H * W"
    if step.op.attrs.get("num_dims", 1) > 1:
        return "R = x_d0, N = x_size / R"
    return _input_sizes(len(step.in_shape))


def contiguous_rows(step: Step) -> Rows | None:
    """Rows over which an operator works when they are contiguous; None when it works over the channels.

    Raises TaskError for a dimension that the writer does not know.
    """
    rank = len(step.in_shape)
    if step.op.name == "layer_norm" and step.op.attrs["num_dims"] > 1:
        if step.op.attrs["num_dims"] < rank - 1:
            raise TaskError("the kernel writer knows layer_norm over the last or over all but the first dimension")
        return Rows("R", "N")
    if step.op.name in ("global_avg_pool", "instance_norm"):
        return Rows("R", "N")
    dim = int(step.op.attrs.get("dim", -1)) % rank
    if dim == rank - 1:
        return Rows("R * H", "W") if rank == 4 else Rows("R", "N")
    if dim == 1:
        return None
    raise TaskError(f"the kernel writer knows no {step.op.name} over dimension {dim} of {rank}")


def is_over_channels(step: Step) -> bool:
    """Whether it reduces the channels, which do not lie in rows."""
    return step.kind == "reduce" and contiguous_rows(step) is None


def is_pointwise(step: Step) -> bool:
    return step.op.name in SPECIAL_LINES


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
        rows = Rows("R / C", "C") if self.reduced else contiguous_rows(self.step)
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
            _add_statements(code, step, _channel(rank) if rank is not None else "")
        code.add("return v;", missing_semicolon="return v")
    code.add("};")


def _add_statements(code: Code, step: Step, channel: str) -> None:
    if not channel and (step.parameters or step.second):
        raise TaskError(f"the kernel writer knows no {step.op.name} after a reduction")
    fields: dict[str, str | int | float] = {**step.op.attrs, "index": "r * N + n", "channel": channel}
    fields |= {"bias": step.parameters[-1] if step.parameters else "", "second": step.second or ""}
    for right, wrong in SPECIAL_LINES[step.op.name]:
        code.add(right.format(**fields), wrong_formula=wrong.format(**fields), op_left_out=None)
