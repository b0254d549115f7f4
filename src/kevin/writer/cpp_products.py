"""Matrix products in C++: linear, matmul in its variants, matvec, and the convolution with a 1 x 1 window."""

from __future__ import annotations

from kevin.writer.code import Code
from kevin.writer.slots import Slots, parallel, simd
from kevin.writer.stage import Stage, add_store

TRANSPOSED = ("linear", "matmul_transposed_b")
"""Products whose second matrix is stored by columns: ``b[n * K + k]``."""


def _operands(stage: Stage, row: str) -> tuple[str, str, str]:
    """Where row ``row`` of the first matrix and the second matrix start, and a wrong start of the second."""
    match stage.step.op.name:
        case "linear":
            return f"{stage.source} + {row} * K", stage.weight, stage.weight
        case "matmul_batched":
            second = f"{stage.step.second} + {row} / C * K * N"
            return f"{stage.source} + {row} * K", second, f"{stage.step.second}"
        case "conv2d_pointwise":
            return f"{stage.weight} + {row} % C * K", f"{stage.source} + {row} / C * K * N", stage.source
    return f"{stage.source} + {row} * K", str(stage.step.second), str(stage.step.second)


def _add_operands(code: Code, stage: Stage, row: str) -> None:
    first, second, wrong = _operands(stage, row)
    code.add(f"const float* a = {first};")
    if second == wrong:
        code.add(f"const float* b = {second};")
    else:
        code.add(f"const float* b = {second};", wrong_axis=f"const float* b = {wrong};")


def _element(stage: Stage, n: str) -> tuple[str, str]:
    """Element (k, n) of the second matrix, and with its axes exchanged."""
    column, row = f"b[{n} * K + k]", f"b[k * N + {n}]"
    return (column, row) if stage.step.op.name in TRANSPOSED else (row, column)


def _store(code: Code, stage: Stage, slots: Slots, value: str) -> None:
    wrong = {}
    if stage.step.op.name == "linear":
        value, wrong = f"{value} + {stage.bias}[n]", {"op_left_out": value}
    elif stage.step.op.name == "conv2d_pointwise":
        value, wrong = f"{value} + {stage.bias}[r % C]", {"op_left_out": value}
    add_store(code, stage, value, index="r * N + n", **wrong)


def _accumulator(code: Code, slots: Slots, name: str, size: str = "") -> None:
    zero = "{}" if size else "0"
    code.add(f"real {name}{size} = {zero};", uninitialised=f"real {name}{size};")


def product(code: Code, stage: Stage, slots: Slots) -> None:
    match slots["order"]:
        case "dot":
            _dot(code, stage, slots)
        case "axpy":
            _axpy(code, stage, slots)
        case "tile":
            _tile(code, stage, slots)
        case order:
            _some_rows(code, stage, slots, int(order.removeprefix("rows")))


def _dot(code: Code, stage: Stage, slots: Slots) -> None:
    with code.loop("r", "R", pragma=parallel()):
        _add_operands(code, stage, "r")
        with code.loop("n", "N"):
            _accumulator(code, slots, "sum")
            with code.loop("k", "K", pragma=simd("+:sum")):
                right, wrong = _element(stage, "n")
                code.add(f"sum += a[k] * {right};", wrong_axis=f"sum += a[k] * {wrong};")
            _store(code, stage, slots, "sum")


def _some_rows(code: Code, stage: Stage, slots: Slots, num: int) -> None:
    """Dot products of several rows with one column, which is then read once for all of them."""
    with code.loop("m", "R", step=num, pragma=parallel()):
        _add_operands(code, stage, "m")
        with code.loop("n", "N"):
            _accumulator(code, slots, "sum", f"[{num}]")
            with code.loop("k", "K", pragma=simd("+:sum")), code.loop("i", str(num)):
                right, wrong = _element(stage, "n")
                code.add(f"sum[i] += a[i * K + k] * {right};", wrong_axis=f"sum[i] += a[i * K + k] * {wrong};")
            with code.loop("i", str(num)):
                code.add("int64_t r = m + i;")
                _store(code, stage, slots, "sum[i]")


def _axpy(code: Code, stage: Stage, slots: Slots) -> None:
    """Rows of the second matrix, scaled, are added up in a row of accumulators."""
    with code.loop("r", "R", pragma=parallel()):
        _add_operands(code, stage, "r")
        _accumulator(code, slots, "sum", "[N]")
        with code.loop("k", "K"), code.loop("n", "N", pragma=simd()):
            right, wrong = _element(stage, "n")
            code.add(f"sum[n] += a[k] * {right};", wrong_axis=f"sum[n] += a[k] * {wrong};")
        with code.loop("n", "N", pragma=simd()):
            _store(code, stage, slots, "sum[n]")


def _tile(code: Code, stage: Stage, slots: Slots) -> None:
    """Blocks of 8 x 32 results that stay in vector registers."""
    with code.loop("m", "R", step=8, pragma=parallel()):
        _add_operands(code, stage, "m")
        with code.loop("o", "N", step=32):
            _accumulator(code, slots, "sum", "[8][32]")
            with code.loop("k", "K"), code.loop("i", "8"), code.loop("j", "32", pragma=simd()):
                right, wrong = _element(stage, "(o + j)")
                code.add(f"sum[i][j] += a[i * K + k] * {right};", wrong_axis=f"sum[i][j] += a[i * K + k] * {wrong};")
            with code.loop("i", "8"):
                code.add("int64_t r = m + i;")
                with code.loop("j", "32", pragma=simd()):
                    code.add("int64_t n = o + j;")
                    _store(code, stage, slots, "sum[i][j]")


def matvec(code: Code, stage: Stage, slots: Slots) -> None:
    """Sums of parts of 64: a single running sum would lose too many digits over long rows."""
    num = 1 if slots["order"] == "dot" else int(slots["order"].removeprefix("rows"))
    with code.loop("m", "R", step=num, pragma=parallel()):
        _accumulator(code, slots, "sum", f"[{num}]")
        with code.loop("o", "K", step=64):
            code.add(
                f"const float* a = {stage.source} + m * K + o;", wrong_axis=f"const float* a = {stage.source} + m * K;"
            )
            code.add(f"const float* b = {stage.step.second} + o;")
            _accumulator(code, slots, "part", f"[{num}]")
            with code.loop("k", "64", pragma=simd("+:part")), code.loop("i", str(num)):
                code.add("part[i] += a[i * K + k] * b[k];", wrong_formula="part[i] += a[i * K + k] + b[k];")
            with code.loop("i", str(num)):
                code.add("sum[i] += part[i];", wrong_formula="sum[i] = part[i];")
        with code.loop("i", str(num)):
            add_store(code, stage, "sum[i]", index="m + i")
