"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kevin.core.errors import TaskError
from kevin.writer.code import Code
from kevin.writer.slots import Slots, parallel, simd
from kevin.writer.special.stage import Stage, add_store
from kevin.writer.special.walk import THREAD, Walk


def conv(code: Code, stage: Stage, walk: Walk) -> None:
    """conv1d, conv2d and the depth-wise one. Raises TaskError for strides and padding, which no own task has."""
    attrs = stage.step.op.attrs
    if attrs["stride"] != 1 or attrs["padding"] != 0:
        raise TaskError(f"the kernel writer knows no {stage.step.op.name} with stride or padding")
    if walk.language == "cuda":
        (_eight_channels if walk.slots.get("product") == "channels" else _one_result)(code, stage)
    elif walk.slots["order"] == "channels":
        _channels(code, stage)
    else:
        _loops(code, stage, walk.slots["order"])


def pool(code: Code, stage: Stage, walk: Walk) -> None:
    """Maximum or mean over windows."""
    if walk.language == "cuda":
        _pool_by_threads(code, stage)
    else:
        _pool(code, stage, whole=walk.slots["order"] == "line")


def _flat(stage: Stage) -> bool:
    """Whether the windows run over a signal (rank 3), not a picture."""
    return len(stage.step.in_shape) == 3


@contextmanager
def _lines(code: Code, stage: Stage) -> Iterator[str]:
    """A loop over the lines of a result; gives the C name of a line's length."""
    with ExitStack() as stack:
        if not _flat(stage):
            stack.enter_context(code.loop("h", "H"))
        yield "N" if _flat(stage) else "W"


def _store(code: Code, stage: Stage, value: str) -> None:
    if not _flat(stage):
        code.add("int64_t n = h * W + w;", wrong_axis="int64_t n = w * H + h;")
    add_store(code, stage, value, index="r * N + n")


def _loops(code: Code, stage: Stage, order: str) -> None:
    num = 4 if order == "block" else 1
    along = "n" if _flat(stage) else "w"
    if num == 1:
        with code.loop("r", "R", pragma=parallel()), _lines(code, stage) as length:
            if order == "window":
                with code.loop(along, length):
                    code.add(f"real sum = {stage.bias}[r % C];", op_left_out="real sum = 0;")
                    _taps(code, stage, along, "")
                    _store(code, stage, "sum")
            else:
                _line(code, stage, along, length)
        return
    with code.loop("m", "R", step=num, pragma=parallel()), _lines(code, stage) as length:
        code.add(f"real sum[{num}][{length}] = {{}};", uninitialised=f"real sum[{num}][{length}];")
        _taps(code, stage, along, f"[u][{along}]", length=length, num=num)
        with code.loop("u", str(num)):
            code.add("int64_t r = m + u;")
            with code.loop(along, length, pragma=simd()):
                _store(code, stage, f"sum[u][{along}] + {stage.bias}[r % C]")


def _channels(code: Code, stage: Stage) -> None:
    """Eight neighbouring results of every channel at once: the filters are turned so that channels are contiguous."""
    flat = _flat(stage)
    taps = "(x_d1 * K)" if flat else "(x_d1 * K * K)"
    code.add(f"static float f[{taps} * C];")
    with code.loop("c", "C"), code.loop("k", taps):
        code.add(
            f"f[k * C + c] = {stage.weight}[c * {taps} + k];", wrong_axis=f"f[k * C + c] = {stage.weight}[k * C + c];"
        )
    with ExitStack() as stack:
        stack.enter_context(code.loop("b", "R / C", pragma=parallel()))
        length = stack.enter_context(_lines(code, stage))
        stack.enter_context(code.loop("m", length, step=8))
        code.add(f"int64_t s = m < {length} - 8 ? m : {length} - 8;", wrong_formula="int64_t s = 0;")
        code.add("real sum[8][C] = {};", uninitialised="real sum[8][C];")
        with ExitStack() as loops:
            loops.enter_context(code.loop("k", "x_d1"))
            if not flat:
                loops.enter_context(code.loop("i", "K"))
            loops.enter_context(code.loop("j", "K"))
            line = "(b * x_d1 + k) * x_d2" if flat else "((b * x_d1 + k) * x_d2 + h + i) * x_d3"
            pointer = f"const float* p = {stage.source} + {line} + s"
            code.add(f"{pointer} + j;", wrong_axis=f"{pointer};")
            code.add(f"const float* g = f + {'(k * K + j)' if flat else '((k * K + i) * K + j)'} * C;")
            with code.loop("u", "8"), code.loop("c", "C", pragma=simd()):
                code.add("sum[u][c] += p[u] * g[c];", wrong_formula="sum[u][c] += p[u] + g[c];")
        with code.loop("c", "C"):
            code.add("int64_t r = b * C + c;")
            with code.loop("u", "8"):
                code.add(f"int64_t n = {'s + u' if flat else 'h * W + s + u'};")
                value = f"sum[u][c] + {stage.bias}[c]"
                add_store(code, stage, value, index="r * N + n", op_left_out="sum[u][c]")


def _line(code: Code, stage: Stage, along: str, length: str) -> None:
    code.add(f"real sum[{length}] = {{}};", uninitialised=f"real sum[{length}];")
    _taps(code, stage, along, f"[{along}]", length=length)
    with code.loop(along, length, pragma=simd()):
        _store(code, stage, f"sum[{along}] + {stage.bias}[r % C]")


def _taps(code: Code, stage: Stage, along: str, place: str, *, length: str | None = None, num: int = 1) -> None:
    """Loops over channels and window; innermost over the line when the accumulators are a line (``length``)."""
    deep = stage.step.op.name != "depthwise_conv2d"
    flat = _flat(stage)
    row = "m" if num > 1 else "r"
    unit = "m % C + u" if num > 1 else "r % C"
    with ExitStack() as stack:
        if deep:
            stack.enter_context(code.loop("k", "x_d1"))
        if not flat:
            stack.enter_context(code.loop("i", "K"))
        pragma = simd("+:sum") if length is None else None
        stack.enter_context(code.loop("j", "K", pragma=pragma))
        plane = f"({row} / C * x_d1 + k)" if deep else (f"{row}" if num == 1 else "(m + u)")
        line = f"{plane} * x_d2" if flat else f"({plane} * x_d2 + h + i) * x_d3"
        weights = (f"(({unit}) * x_d1 + k)" if deep else f"({unit})") + (" * K" if flat else " * K + i")
        weights = f"{stage.weight}[{weights} + j]" if flat else f"{stage.weight}[({weights}) * K + j]"
        if num > 1:
            stack.enter_context(code.loop("u", str(num)))
        code.add(
            f"const float* p = {stage.source} + {line} + j;", wrong_axis=f"const float* p = {stage.source} + {line};"
        )
        code.add(f"float f = {weights};")
        if length is not None:
            stack.enter_context(code.loop(along, length, pragma=simd()))
        code.add(f"sum{place} += f * p[{along}];", wrong_formula=f"sum{place} += f + p[{along}];")


def _pool(code: Code, stage: Stage, *, whole: bool) -> None:
    flat, top = _flat(stage), stage.step.op.name.startswith("max")
    along, stride = ("n" if flat else "w"), int(stage.step.op.attrs["stride"])
    line = "r * x_d2" if flat else f"(r * x_d2 + h * {stride} + i) * x_d3"
    pointer = f"const float* p = {stage.source} + {line} + j;"
    element = f"p[{along} * {stride}]"
    place = f"acc[{along}]" if whole else "acc"
    count = "K" if flat else "(K * K)"
    with code.loop("r", "R", pragma=parallel()), _lines(code, stage) as length, ExitStack() as stack:
        if whole:
            code.add(f"real acc[{length}];")
            with code.loop(along, length, pragma=simd()):
                code.add(f"{place} = {'-3e38f' if top else '0'};", uninitialised=None)
        else:
            stack.enter_context(code.loop(along, length))
            code.add(f"real acc = {'-3e38f' if top else '0'};", uninitialised="real acc;")
        with ExitStack() as taps:
            if not flat:
                taps.enter_context(code.loop("i", "K"))
            taps.enter_context(code.loop("j", "K"))
            code.add(pointer, wrong_axis=pointer.replace(" + j;", ";"))
            if whole:
                taps.enter_context(code.loop(along, length, pragma=simd()))
            if top:
                code.add(f"{place} = {element} > {place} ? {element} : {place};", wrong_formula=f"{place} = {element};")
            else:
                code.add(f"{place} += {element};", wrong_formula=f"{place} = {element};")
        if whole:
            stack.enter_context(code.loop(along, length, pragma=simd()))
        value = place if top else f"{place} / {count}"
        if not flat:
            code.add("int64_t n = h * W + w;", wrong_axis="int64_t n = w * H + h;")
        wrong = {} if top else {"op_left_out": place}
        add_store(code, stage, value, index="r * N + n", **wrong)


# --- CUDA -------------------------------------------------------------------------------------------------------


def _place(code: Code, stage: Stage, total: str) -> None:
    """Which result is this thread's: row ``r``, element ``n``, and ``h`` and ``w`` in a picture."""
    code.add(THREAD)
    code.add(f"if (i >= {total}) return;", missing_bounds=None)
    code.add("int64_t r = i / N, n = i % N;", wrong_axis="int64_t r = i % R, n = i / R;")
    if not _flat(stage):
        code.add("int64_t h = n / W, w = n % W;", wrong_axis="int64_t h = n % W, w = n / W;")


def window_shape(slots: Slots) -> str:
    total = "R / 8 * N" if slots.get("product") == "channels" else "R * N"
    return f"<<<({total} + B - 1) / B, B, 0, stream>>>"


def _pool_by_threads(code: Code, stage: Stage) -> None:
    flat, top = _flat(stage), stage.step.op.name.startswith("max")
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


def _one_result(code: Code, stage: Stage) -> None:
    flat, deep = _flat(stage), stage.step.op.name != "depthwise_conv2d"
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


def _eight_channels(code: Code, stage: Stage) -> None:
    """Eight neighbouring channels in one thread, which reads every input once for all of them."""
    flat = _flat(stage)
    code.add(THREAD)
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
