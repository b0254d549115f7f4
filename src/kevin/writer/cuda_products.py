"""Matrix products, convolutions and pooling in CUDA: threads own results, one each or a small tile."""

from __future__ import annotations

from contextlib import ExitStack

from kevin.core.errors import TaskError
from kevin.writer.code import Code
from kevin.writer.cpp_products import TRANSPOSED
from kevin.writer.cuda_threads import BARRIER, add_row_start, each_element, first_lane, join_sums
from kevin.writer.layout import Rows
from kevin.writer.slots import Slots
from kevin.writer.stage import Stage, add_store

TILE = 16


def _element(stage: Stage, row: str, k: str, n: str) -> tuple[str, str]:
    """Elements (row, k) of the first and (k, n) of the second matrix."""
    name, second = stage.step.op.name, stage.step.second
    if name == "conv2d_pointwise":
        return f"{stage.weight}[{row} % C * K + {k}]", f"{stage.source}[({row} / C * K + {k}) * N + {n}]"
    first = f"{stage.source}[{row} * K + {k}]"
    if name == "linear":
        return first, f"{stage.weight}[{n} * K + {k}]"
    if name in TRANSPOSED:
        return first, f"{second}[{n} * K + {k}]"
    if name == "matmul_batched":
        return first, f"{second}[({row} / C * K + {k}) * N + {n}]"
    return first, f"{second}[{k} * N + {n}]"


def _store(code: Code, stage: Stage, slots: Slots, value: str) -> None:
    wrong = {}
    bias = {"linear": "[n]", "conv2d_pointwise": "[r % C]"}.get(stage.step.op.name)
    if bias:
        value, wrong = f"{value} + {stage.bias}{bias}", {"op_left_out": value}
    add_store(code, stage, value, index="r * N + n", **wrong)


def product_shape(slots: Slots) -> str:
    """``<<<...>>>`` of a product."""
    if slots["product"] == "naive":
        return "<<<(R * N + B - 1) / B, B, 0, stream>>>"
    side = TILE if slots["product"] == "tile" else 4 * TILE
    return f"<<<dim3(N / {side}, R / {side}), dim3({TILE}, {TILE}), 0, stream>>>"


def product(code: Code, stage: Stage, slots: Slots) -> None:
    if slots["product"] == "naive":
        code.add("int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;")
        code.add("if (i >= R * N) return;", missing_bounds=None)
        code.add("int64_t r = i / N, n = i % N;", wrong_axis="int64_t r = i % R, n = i / R;")
        code.add("real sum = 0;", uninitialised="real sum;")
        first, second = _element(stage, "r", "k", "n")
        with code.loop("k", "K"):
            code.add(f"sum += {first} * {second};", wrong_formula=f"sum += {first} + {second};")
        _store(code, stage, slots, "sum")
    elif slots["product"] == "tile":
        _tile(code, stage, slots)
    else:
        _register(code, stage, slots)


def _tile(code: Code, stage: Stage, slots: Slots) -> None:
    code.add("__shared__ float a[16][17], b[16][17];")
    code.add("int ty = threadIdx.y, tx = threadIdx.x;")
    code.add(
        "int64_t r = blockIdx.y * 16 + ty, n = blockIdx.x * 16 + tx;",
        wrong_axis="int64_t r = blockIdx.x * 16 + ty, n = blockIdx.y * 16 + tx;",
    )
    code.add("real sum = 0;", uninitialised="real sum;")
    with code.loop("o", "K", step=TILE):
        code.add(f"a[ty][tx] = {_element(stage, 'r', '(o + tx)', 'n')[0]};")
        code.add(f"b[ty][tx] = {_element(stage, 'r', '(o + ty)', 'n')[1]};")
        code.add(BARRIER, missing_barrier=None)
        with code.block("for (int k = 0; k < 16; k++)"):
            code.add("sum += a[ty][k] * b[k][tx];", wrong_formula="sum += a[ty][k] * b[tx][k];")
        code.add(BARRIER, missing_barrier=None)
    _store(code, stage, slots, "sum")


def _register(code: Code, stage: Stage, slots: Slots) -> None:
    """Tiles of 64 x 64 results; a thread owns 4 x 4 of them, 16 apart."""
    code.add("__shared__ float a[64][17], b[16][65];")
    code.add("int ty = threadIdx.y, tx = threadIdx.x;")
    code.add("real sum[4][4] = {};", uninitialised="real sum[4][4];")
    with code.loop("o", "K", step=TILE):
        with code.block("for (int i = 0; i < 4; i++)"):
            first = _element(stage, "(blockIdx.y * 64 + i * 16 + ty)", "(o + tx)", "")[0]
            row = "(blockIdx.y * 64)"
            second = _element(stage, row, "(o + ty)", "(blockIdx.x * 64 + i * 16 + tx)")[1]
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
        _store(code, stage, slots, "sum[i][j]")


def matvec(code: Code, stage: Stage, slots: Slots) -> None:
    """One row after the other; the launch shape and ``sum_of`` are those of kernels over rows."""
    add_row_start(code, stage, slots, Rows("R", "K"), output=False)
    code.add("real sum = 0;", uninitialised="real sum;")
    with each_element(code, "K"):
        right = f"sum += p[n] * {stage.step.second}[n];"
        code.add(right, wrong_axis=right.replace("[n];", "[r];"))
    join_sums(code, slots, "sum")
    with first_lane(code, slots):
        add_store(code, stage, "sum", index="r")


# --- windows ----------------------------------------------------------------------------------------------------


def _place(code: Code, stage: Stage, total: str) -> None:
    """Which result is this thread's: row ``r``, element ``n``, and ``h`` and ``w`` in a picture."""
    code.add("int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;")
    code.add(f"if (i >= {total}) return;", missing_bounds=None)
    code.add("int64_t r = i / N, n = i % N;", wrong_axis="int64_t r = i % R, n = i / R;")
    if len(stage.step.in_shape) == 4:
        code.add("int64_t h = n / W, w = n % W;", wrong_axis="int64_t h = n % W, w = n / W;")


def window_shape(slots: Slots) -> str:
    total = "R / 8 * N" if slots.get("product") == "channels" else "R * N"
    return f"<<<({total} + B - 1) / B, B, 0, stream>>>"


def pool(code: Code, stage: Stage, slots: Slots) -> None:
    flat, top = len(stage.step.in_shape) == 3, stage.step.op.name.startswith("max")
    stride = int(stage.step.op.attrs["stride"])
    _place(code, stage, "R * N")
    code.add(f"real acc = {'-3e38f' if top else '0'};", uninitialised="real acc;")
    at = f"r * x_d2 + n * {stride} + k" if flat else f"(r * x_d2 + h * {stride} + j) * x_d3 + w * {stride} + k"
    with ExitStack() as taps:
        if not flat:
            taps.enter_context(code.loop("j", "K"))
        taps.enter_context(code.loop("k", "K"))
        code.add(f"float e = {stage.source}[{at}];", wrong_axis=f"float e = {stage.source}[{at.replace(' + k', '')}];")
        code.add("acc = e > acc ? e : acc;" if top else "acc += e;", wrong_formula="acc = e;")
    value = "acc" if top else "acc / K" if flat else "acc / (K * K)"
    wrong = {} if top else {"op_left_out": "acc"}
    add_store(code, stage, value, index="r * N + n", **wrong)


def conv(code: Code, stage: Stage, slots: Slots) -> None:
    """Raises TaskError for strides and padding, which no own task has."""
    attrs, name = stage.step.op.attrs, stage.step.op.name
    if attrs["stride"] != 1 or attrs["padding"] != 0:
        raise TaskError(f"the kernel writer knows no {name} with stride or padding")
    flat, deep = len(stage.step.in_shape) == 3, name != "depthwise_conv2d"
    if slots.get("product") == "channels":
        _conv_channels(code, stage, slots, flat)
        return
    _place(code, stage, "R * N")
    code.add(f"real sum = {stage.bias}[r % C];", op_left_out="real sum = 0;")
    plane = "(r / C * x_d1 + m)" if deep else "r"
    with ExitStack() as taps:
        if deep:
            taps.enter_context(code.loop("m", "x_d1"))
        if not flat:
            taps.enter_context(code.loop("j", "K"))
        taps.enter_context(code.loop("k", "K"))
        at = f"{plane} * x_d2 + n + k" if flat else f"({plane} * x_d2 + h + j) * x_d3 + w + k"
        filters = "(r % C * x_d1 + m)" if deep else "r % C"
        tap = f"{filters} * K + k" if flat else f"({filters} * K + j) * K + k"
        line = f"sum += {stage.source}[{at}] * {stage.weight}[{tap}];"
        code.add(line, wrong_axis=line.replace(" + k]", "]", 1))
    add_store(code, stage, "sum", index="r * N + n")


def _conv_channels(code: Code, stage: Stage, slots: Slots, flat: bool) -> None:
    """Eight neighbouring channels in one thread, which reads every input once for all of them."""
    code.add("int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;")
    code.add("if (i >= R / 8 * N) return;", missing_bounds=None)
    code.add("int64_t m = i / N * 8, n = i % N;", wrong_axis="int64_t m = i / N, n = i % N;")
    if not flat:
        code.add("int64_t h = n / W, w = n % W;", wrong_axis="int64_t h = n % W, w = n / W;")
    code.add("real sum[8] = {};", uninitialised="real sum[8];")
    with ExitStack() as taps:
        taps.enter_context(code.loop("o", "x_d1"))
        if not flat:
            taps.enter_context(code.loop("j", "K"))
        taps.enter_context(code.loop("k", "K"))
        plane = "(m / C * x_d1 + o)"
        at = f"{plane} * x_d2 + n + k" if flat else f"({plane} * x_d2 + h + j) * x_d3 + w + k"
        code.add(f"float e = {stage.source}[{at}];")
        filters = "((m % C + u) * x_d1 + o)"
        tap = f"{filters} * K + k" if flat else f"({filters} * K + j) * K + k"
        with code.block("for (int u = 0; u < 8; u++)"):
            code.add(f"sum[u] += e * {stage.weight}[{tap}];", wrong_formula=f"sum[u] += e + {stage.weight}[{tap}];")
    with code.block("for (int u = 0; u < 8; u++)"):
        code.add("int64_t r = m + u;")
        value = f"sum[u] + {stage.bias}[r % C]"
        add_store(code, stage, value, index="r * N + n", op_left_out="sum[u]")
