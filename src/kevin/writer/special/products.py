"""Matrix products: linear, matmul in its variants, matvec, and the convolution with a 1 x 1 window."""

from __future__ import annotations

from kevin.writer.code import Code
from kevin.writer.cuda_threads import BARRIER
from kevin.writer.slots import Slots, parallel, simd
from kevin.writer.special.stage import Rows, Stage, add_store
from kevin.writer.special.walk import THREAD, Walk, zeros

_TRANSPOSED = ("linear", "matmul_transposed_b")
"""Products whose second matrix is stored by columns: ``b[n * K + k]``."""
_BIASES = {"linear": "[n]", "conv2d_pointwise": "[r % C]"}
TILE = 16


def product(code: Code, stage: Stage, walk: Walk) -> None:
    if walk.language == "cuda":
        by_threads = {"naive": _one_result, "tile": _shared_tile, "register": _register}
        by_threads[walk.slots["product"]](code, stage)
        return
    match walk.slots["order"]:
        case "dot":
            _dot(code, stage)
        case "axpy":
            _axpy(code, stage)
        case "tile":
            _tile(code, stage)
        case order:
            _some_rows(code, stage, int(order.removeprefix("rows")))


def matvec(code: Code, stage: Stage, walk: Walk) -> None:
    (_matvec_by_threads if walk.language == "cuda" else _matvec)(code, stage, walk)


def _store(code: Code, stage: Stage, value: str) -> None:
    wrong = {}
    if bias := _BIASES.get(stage.step.op.name):
        value, wrong = f"{value} + {stage.bias}{bias}", {"op_left_out": value}
    add_store(code, stage, value, index="r * N + n", **wrong)


# --- C++ --------------------------------------------------------------------------------------------------------


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
    code.add(f"const float* b = {second};", wrong_axis=f"const float* b = {wrong};")


def _element(stage: Stage, n: str) -> tuple[str, str]:
    """Element (k, n) of the second matrix, and with its axes exchanged."""
    column, row = f"b[{n} * K + k]", f"b[k * N + {n}]"
    return (column, row) if stage.step.op.name in _TRANSPOSED else (row, column)


def _accumulators(code: Code, name: str, size: str) -> None:
    code.add(f"real {name}{size} = {{}};", uninitialised=f"real {name}{size};")


def _dot(code: Code, stage: Stage) -> None:
    with code.loop("r", "R", pragma=parallel()):
        _add_operands(code, stage, "r")
        with code.loop("n", "N"):
            zeros(code, "sum")
            with code.loop("k", "K", pragma=simd("+:sum")):
                right, wrong = _element(stage, "n")
                code.add(f"sum += a[k] * {right};", wrong_axis=f"sum += a[k] * {wrong};")
            _store(code, stage, "sum")


def _some_rows(code: Code, stage: Stage, num: int) -> None:
    """Dot products of several rows with one column, which is then read once for all of them."""
    with code.loop("m", "R", step=num, pragma=parallel()):
        _add_operands(code, stage, "m")
        with code.loop("n", "N"):
            _accumulators(code, "sum", f"[{num}]")
            with code.loop("k", "K", pragma=simd("+:sum")), code.loop("i", str(num)):
                right, wrong = _element(stage, "n")
                code.add(f"sum[i] += a[i * K + k] * {right};", wrong_axis=f"sum[i] += a[i * K + k] * {wrong};")
            with code.loop("i", str(num)):
                code.add("int64_t r = m + i;")
                _store(code, stage, "sum[i]")


def _axpy(code: Code, stage: Stage) -> None:
    """Rows of the second matrix, scaled, are added up in a row of accumulators."""
    with code.loop("r", "R", pragma=parallel()):
        _add_operands(code, stage, "r")
        _accumulators(code, "sum", "[N]")
        with code.loop("k", "K"), code.loop("n", "N", pragma=simd()):
            right, wrong = _element(stage, "n")
            code.add(f"sum[n] += a[k] * {right};", wrong_axis=f"sum[n] += a[k] * {wrong};")
        with code.loop("n", "N", pragma=simd()):
            _store(code, stage, "sum[n]")


def _tile(code: Code, stage: Stage) -> None:
    """Blocks of 8 x 32 results that stay in vector registers."""
    with code.loop("m", "R", step=8, pragma=parallel()):
        _add_operands(code, stage, "m")
        with code.loop("o", "N", step=32):
            _accumulators(code, "sum", "[8][32]")
            with code.loop("k", "K"), code.loop("i", "8"), code.loop("j", "32", pragma=simd()):
                right, wrong = _element(stage, "(o + j)")
                code.add(f"sum[i][j] += a[i * K + k] * {right};", wrong_axis=f"sum[i][j] += a[i * K + k] * {wrong};")
            with code.loop("i", "8"):
                code.add("int64_t r = m + i;")
                with code.loop("j", "32", pragma=simd()):
                    code.add("int64_t n = o + j;")
                    _store(code, stage, "sum[i][j]")


def _matvec(code: Code, stage: Stage, walk: Walk) -> None:
    """Sums of parts of 64: a single running sum would lose too many digits over long rows."""
    num = 1 if walk.slots["order"] == "dot" else int(walk.slots["order"].removeprefix("rows"))
    with code.loop("m", "R", step=num, pragma=parallel()):
        _accumulators(code, "sum", f"[{num}]")
        with code.loop("o", "K", step=64):
            code.add(
                f"const float* a = {stage.source} + m * K + o;", wrong_axis=f"const float* a = {stage.source} + m * K;"
            )
            code.add(f"const float* b = {stage.step.second} + o;")
            _accumulators(code, "part", f"[{num}]")
            with code.loop("k", "64", pragma=simd("+:part")), code.loop("i", str(num)):
                code.add("part[i] += a[i * K + k] * b[k];", wrong_formula="part[i] += a[i * K + k] + b[k];")
            with code.loop("i", str(num)):
                code.add("sum[i] += part[i];", wrong_formula="sum[i] = part[i];")
        with code.loop("i", str(num)):
            add_store(code, stage, "sum[i]", index="m + i")


# --- CUDA: threads own results, one each or a small tile --------------------------------------------------------


def _elements(stage: Stage, row: str, k: str, n: str) -> tuple[str, str]:
    """Elements (row, k) of the first and (k, n) of the second matrix."""
    name, second = stage.step.op.name, stage.step.second
    if name == "conv2d_pointwise":
        return f"{stage.weight}[{row} % C * K + {k}]", f"{stage.source}[({row} / C * K + {k}) * N + {n}]"
    first = f"{stage.source}[{row} * K + {k}]"
    if name == "linear":
        return first, f"{stage.weight}[{n} * K + {k}]"
    if name in _TRANSPOSED:
        return first, f"{second}[{n} * K + {k}]"
    if name == "matmul_batched":
        return first, f"{second}[({row} / C * K + {k}) * N + {n}]"
    return first, f"{second}[{k} * N + {n}]"


def product_shape(slots: Slots) -> str:
    """``<<<...>>>`` of a product."""
    if slots["product"] == "naive":
        return "<<<(R * N + B - 1) / B, B, 0, stream>>>"
    side = TILE if slots["product"] == "tile" else 4 * TILE
    return f"<<<dim3(N / {side}, R / {side}), dim3({TILE}, {TILE}), 0, stream>>>"


def _one_result(code: Code, stage: Stage) -> None:
    code.add(THREAD)
    code.add("if (i >= R * N) return;", missing_bounds=None)
    code.add("int64_t r = i / N, n = i % N;", wrong_axis="int64_t r = i % R, n = i / R;")
    zeros(code, "sum")
    first, second = _elements(stage, "r", "k", "n")
    with code.loop("k", "K"):
        code.add(f"sum += {first} * {second};", wrong_formula=f"sum += {first} + {second};")
    _store(code, stage, "sum")


def _shared_tile(code: Code, stage: Stage) -> None:
    code.add("__shared__ float a[16][17], b[16][17];")
    code.add("int ty = threadIdx.y, tx = threadIdx.x;")
    code.add(
        "int64_t r = blockIdx.y * 16 + ty, n = blockIdx.x * 16 + tx;",
        wrong_axis="int64_t r = blockIdx.x * 16 + ty, n = blockIdx.y * 16 + tx;",
    )
    zeros(code, "sum")
    with code.loop("o", "K", step=TILE):
        code.add(f"a[ty][tx] = {_elements(stage, 'r', '(o + tx)', 'n')[0]};")
        code.add(f"b[ty][tx] = {_elements(stage, 'r', '(o + ty)', 'n')[1]};")
        code.add(BARRIER, missing_barrier=None)
        with code.block("for (int k = 0; k < 16; k++)"):
            code.add("sum += a[ty][k] * b[k][tx];", wrong_formula="sum += a[ty][k] * b[tx][k];")
        code.add(BARRIER, missing_barrier=None)
    _store(code, stage, "sum")


def _register(code: Code, stage: Stage) -> None:
    """Tiles of 64 x 64 results; a thread owns 4 x 4 of them, 16 apart."""
    code.add("__shared__ float a[64][17], b[16][65];")
    code.add("int ty = threadIdx.y, tx = threadIdx.x;")
    code.add("real sum[4][4] = {};", uninitialised="real sum[4][4];")
    with code.loop("o", "K", step=TILE):
        with code.block("for (int i = 0; i < 4; i++)"):
            first = _elements(stage, "(blockIdx.y * 64 + i * 16 + ty)", "(o + tx)", "")[0]
            row = "(blockIdx.y * 64)"
            second = _elements(stage, row, "(o + ty)", "(blockIdx.x * 64 + i * 16 + tx)")[1]
            code.add(f"a[i * 16 + ty][tx] = {first};")
            code.add(f"b[ty][i * 16 + tx] = {second};")
        code.add(BARRIER, missing_barrier=None)
        with code.block("for (int k = 0; k < 16; k++)"), code.block("for (int i = 0; i < 4; i++)"):
            right = "sum[i][j] += a[i * 16 + ty][k] * b[k][j * 16 + tx];"
            code.add(
                f"for (int j = 0; j < 4; j++) {right}",
                wrong_formula=f"for (int j = 0; j < 4; j++) {right.replace('[i * 16', '[j * 16')}",
            )
        code.add(BARRIER, missing_barrier=None)
    with code.block("for (int i = 0; i < 4; i++)"), code.block("for (int j = 0; j < 4; j++)"):
        code.add("int64_t r = blockIdx.y * 64 + i * 16 + ty, n = blockIdx.x * 64 + j * 16 + tx;")
        _store(code, stage, "sum[i][j]")


def _matvec_by_threads(code: Code, stage: Stage, walk: Walk) -> None:
    """One row after the other; the launch shape and ``sum_of`` are those of kernels over rows."""
    with walk.row(code, stage, Rows("R", "K"), output=False):
        zeros(code, "sum")
        with walk.each(code, "K"):
            right = f"sum += p[n] * {stage.step.second}[n];"
            code.add(right, wrong_axis=right.replace("[n];", "[r];"))
        walk.join(code, "sum")
        with walk.first_lane(code):
            add_store(code, stage, "sum", index="r")
