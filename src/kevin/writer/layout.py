"""Names for the sizes of a tensor, the same for every rank, so that kernels of one family read alike.

A tensor of rank 2 has ``R`` rows of ``N``; of rank 3 or 4 it has ``R`` = batch times ``C`` channels, each of ``N``
elements (``H`` times ``W`` for pictures). After a reduction it is flat.
"""

from __future__ import annotations

from typing import NamedTuple

from kevin.core.errors import TaskError
from kevin.tasks.ops import Step


class Rows(NamedTuple):
    """C expressions: ``num`` rows of ``length`` contiguous elements."""

    num: str
    length: str

    def start(self, row: str = "r") -> str:
        """Offset of a row."""
        return f"{row} * {self.length}" if " " not in self.length else f"{row} * ({self.length})"


def channel(rank: int) -> str:
    """Channel of element ``n`` of row ``r``."""
    return "n" if rank == 2 else "r % C"


def of_input(rank: int, name: str = "x") -> str:
    """Constants of an input tensor of this rank."""
    dims = [f"{name}_d{i}" for i in range(rank)]
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


def of_result(step: Step) -> str:
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
    return of_input(len(step.in_shape))


def rows(step: Step) -> Rows | None:
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
