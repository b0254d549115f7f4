"""Reductions, scans and losses."""

from __future__ import annotations

from kevin.writer.code import Code
from kevin.writer.slots import parallel, simd
from kevin.writer.special.stage import Stage, add_store, is_over_channels
from kevin.writer.special.walk import THREAD, Walk, zeros

_MEANS = ("mean_dim", "global_avg_pool")


def _final(stage: Stage, name: str, count: str) -> str:
    """The value of a reduction from its accumulator."""
    return f"{name} / {count}" if stage.step.op.name in _MEANS else name


def reduce(code: Code, stage: Stage, walk: Walk) -> None:
    """sum, mean, max over a dimension, and the mean of a picture."""
    if is_over_channels(stage.step) and not stage.reduced:
        if walk.language == "cuda":
            _columns_by_threads(code, stage)
        else:
            (_columns if walk.slots["order"] == "columns" else _sweep)(code, stage)
        return
    rows = stage.rows
    with walk.row(code, stage, rows, output=False):
        if stage.step.op.name == "max_dim":
            walk.top(code, rows.length, is_result=True)
            value = "top"
        else:
            zeros(code, "sum")
            with walk.each(code, rows.length, "+:sum"):
                code.add("sum += p[n];", wrong_formula="sum += p[0];")
            walk.join(code, "sum")
            value = _final(stage, "sum", rows.length)
        wrong = {"op_left_out": "sum"} if value not in ("sum", "top") else {}
        with walk.first_lane(code):
            add_store(code, stage, value, index="r", **wrong)


def _columns(code: Code, stage: Stage) -> None:
    """Over the channels, one column after the other."""
    element = f"{stage.source}[(b * C + c) * N + n]"
    with code.loop("b", "R / C", pragma=parallel()), code.loop("n", "N"):
        if stage.step.op.name == "max_dim":
            code.add(f"float acc = {stage.source}[b * C * N + n];", uninitialised="float acc;")
        else:
            zeros(code, "acc")
        with code.loop("c", "C"):
            _accumulate(code, stage, "acc", element)
        add_store(code, stage, _final(stage, "acc", "C"), index="b * N + n")


def _sweep(code: Code, stage: Stage) -> None:
    """Over the channels, row by row into a row of accumulators."""
    with code.loop("b", "R / C", pragma=parallel()):
        code.add("real acc[N];")
        start = f"{stage.source}[b * C * N + n]" if stage.step.op.name == "max_dim" else "0"
        with code.loop("n", "N", pragma=simd()):
            code.add(f"acc[n] = {start};", uninitialised=None)
        with code.loop("c", "C"), code.loop("n", "N", pragma=simd()):
            _accumulate(code, stage, "acc[n]", f"{stage.source}[(b * C + c) * N + n]")
        with code.loop("n", "N", pragma=simd()):
            add_store(code, stage, _final(stage, "acc[n]", "C"), index="b * N + n")


def _accumulate(code: Code, stage: Stage, acc: str, element: str) -> None:
    wrong = element.replace("(b * C + c) * N + n", "(b * N + n) * C + c")
    if stage.step.op.name == "max_dim":
        code.add(f"float e = {element};", wrong_axis=f"float e = {wrong};")
        code.add(f"{acc} = e > {acc} ? e : {acc};")
    else:
        code.add(f"{acc} += {element};", wrong_axis=f"{acc} += {wrong};")


def _columns_by_threads(code: Code, stage: Stage) -> None:
    """Over the channels: neighbouring threads own neighbouring columns."""
    code.add(THREAD)
    code.add("if (i >= R / C * N) return;", missing_bounds=None)
    pointer = f"const float* p = {stage.source} + i / N * C * N + i % N;"
    code.add(pointer, wrong_axis=pointer.replace("i / N * C * N + i % N", "i * C"))
    top = stage.step.op.name == "max_dim"
    code.add(f"real acc = {'p[0]' if top else '0'};", uninitialised="real acc;")
    with code.loop("c", "C"):
        code.add("float e = p[c * N];", wrong_axis="float e = p[c];")
        code.add("acc = e > acc ? e : acc;" if top else "acc += e;", wrong_formula="acc = e;")
    add_store(code, stage, _final(stage, "acc", "C"), index="i")


def argmax(code: Code, stage: Stage, walk: Walk) -> None:
    """The threads of a row each find their best; lane 0 of a warp collects them by shuffles."""
    rows, language = stage.rows, walk.language
    with walk.row(code, stage, rows, output=False):
        search = walk.slots.get("order") == "search"
        if search:
            walk.top(code, rows.length, is_result=True)
        kind, first = ("int", "lane") if language == "cuda" else ("int64_t", "0")
        code.add(f"{kind} best = {first};", uninitialised=f"{kind} best;")
        if search:
            with code.block("while (p[best] != top)", wrong_formula="while (p[best] == top)"):
                code.add("best++;")
        else:
            with walk.each(code, rows.length, ""):
                code.add("best = p[n] > p[best] ? n : best;", wrong_formula="best = p[n] < p[best] ? n : best;")
        if language == "cuda" and walk.slots["rows"] == "warp":
            with code.block("for (int o = 16; o > 0; o /= 2)"):
                code.add("int b = __shfl_xor_sync(0xffffffff, best, o);")
                code.add(
                    "bool better = p[b] > p[best] || (p[b] == p[best] && b < best);",
                    wrong_formula="bool better = b < best;",
                )
                code.add("best = better ? b : best;")
        with walk.first_lane(code):
            add_store(code, stage, "best", index="r")


def scan(code: Code, stage: Stage, walk: Walk) -> None:
    """cumsum along rows, from the front or from the back: by one thread, or by a warp in steps of 32 elements."""
    rows, backward = stage.rows, stage.step.op.name == "reverse_cumsum"
    order = walk.slots.get("order")
    if order == "lanes":
        _scan_lanes(code, stage, backward)
        return
    at = "N - 1 - n" if backward else "n"
    with walk.row(code, stage, rows):
        if order == "memory":
            _scan_memory(code, backward)
            return
        zeros(code, "sum")
        with walk.each(code, rows.length, ""):
            if walk.slots.get("rows") == "warp":
                code.add(f"real v = p[{at}];")
                with code.block("for (int o = 1; o < 32; o *= 2)"):
                    code.add("real u = __shfl_up_sync(0xffffffff, v, o);")
                    code.add("if (lane >= o) v += u;", missing_bounds="v += u;")
                code.add("v += sum;", op_left_out=None)
                code.add("sum = __shfl_sync(0xffffffff, v, 31);")
                code.add(f"q[{at}] = v;", missing_semicolon=f"q[{at}] = v")
            else:
                code.add(f"sum += p[{at}];")
                code.add(f"q[{at}] = sum;", missing_semicolon=f"q[{at}] = sum", wrong_axis="q[0] = sum;")


def _scan_lanes(code: Code, stage: Stage, backward: bool) -> None:
    with code.loop("r", stage.rows.num, step=8, pragma=parallel()):
        code.add("real sum[8] = {};", uninitialised="real sum[8];")
        with code.loop("n", stage.rows.length):
            if backward:
                code.add("int64_t m = N - 1 - n;", wrong_formula="int64_t m = n;")
            at = f"(r + i) * N + {'m' if backward else 'n'}"
            with code.loop("i", "8", pragma=simd()):
                code.add(f"sum[i] += {stage.source}[{at}];")
                add_store(code, stage, "sum[i]", index=at)


def _scan_memory(code: Code, backward: bool) -> None:
    edge = "N - 1" if backward else "0"
    code.add(f"q[{edge}] = p[{edge}];", op_left_out=None)
    with code.loop("n", "N - 1"):
        if backward:
            code.add("q[N - 2 - n] = q[N - 1 - n] + p[N - 2 - n];", wrong_axis="q[n + 1] = q[n] + p[n + 1];")
        else:
            code.add("q[n + 1] = q[n] + p[n + 1];", wrong_axis="q[n + 1] = p[n] + p[n + 1];")


_LOSSES = {
    "mse_loss": ("{x}[{i}] - {y}[{i}]", "d * d", "d"),
    "smooth_l1_loss": ("fabs({x}[{i}] - {y}[{i}])", "d < 1 ? d * d / 2 : d - 0.5f", "d < 1 ? d * d : d - 0.5f"),
    "hinge_loss": ("1 - {x}[{i}] * {y}[{i}]", "d > 0 ? d : 0", "d"),
}
"""By operator: the term ``d`` of an element, what it adds to the sum, and a wrong version of that."""


def _add_terms(code: Code, stage: Stage, total: str, x: str, y: str, index: str) -> None:
    term, added, wrong = _LOSSES[stage.step.op.name]
    code.add(f"real d = {term.format(x=x, y=y, i=index)};")
    code.add(f"{total} += {added};", wrong_formula=f"{total} += {wrong};")


def loss(code: Code, stage: Stage, walk: Walk) -> None:
    """Losses that are a mean over all elements or rows."""
    if walk.language == "cuda":
        _loss_by_rows(code, stage, walk)
    elif stage.step.op.name == "cross_entropy":
        _cross_entropy(code, stage, walk)
    else:
        _mean_loss(code, stage, walk)


def _mean_loss(code: Code, stage: Stage, walk: Walk) -> None:
    second = str(stage.step.second)
    code.add("double sum = 0;", uninitialised="double sum;")
    if walk.slots["order"] == "partial":
        with code.loop("r", "R", pragma=parallel("+:sum")):
            zeros(code, "part")
            with code.loop("n", "N", pragma=simd("+:part")):
                _add_terms(code, stage, "part", stage.source, second, "r * N + n")
            code.add("sum += part;")
    else:
        with code.loop("i", "x_size", pragma=simd("+:sum")):
            _add_terms(code, stage, "sum", stage.source, second, "i")
    add_store(code, stage, "sum / x_size", index="0", op_left_out="sum", wrong_axis="sum / R")


def _cross_entropy(code: Code, stage: Stage, walk: Walk) -> None:
    rows = stage.rows
    zeros(code, "total")
    with code.loop("r", rows.num, pragma=parallel("+:total")):
        code.add(f"const float* p = {stage.source} + {rows.start()};")
        walk.top(code, rows.length)
        zeros(code, "sum")
        with walk.each(code, rows.length, "+:sum"):
            code.add("sum += exp(p[n] - top);", wrong_formula="sum += exp(p[n]);")
        text = f"log(sum) + top - p[{stage.step.second}[r]];"
        code.add(f"total += {text}", op_left_out="total += log(sum) + top;")
    add_store(code, stage, "total / R", index="0", op_left_out="total")


def _loss_by_rows(code: Code, stage: Stage, walk: Walk) -> None:
    """Each row adds its share of the mean to the result, which the launcher has set to zero."""
    rows = stage.rows
    with walk.row(code, stage, rows, output=False):
        if stage.step.op.name == "cross_entropy":
            walk.top(code, rows.length)
            zeros(code, "sum")
            with walk.each(code, rows.length):
                code.add("sum += exp(p[n] - top);", wrong_formula="sum += p[n] - top;")
            share = f"(log(sum) + top - p[{stage.step.second}[r]]) / R"
        else:
            code.add(f"const float* s = {stage.step.second} + {rows.start()};")
            zeros(code, "sum")
            with walk.each(code, rows.length):
                _add_terms(code, stage, "sum", "p", "s", "n")
            share = "sum / x_size"
        walk.join(code, "sum")
        with walk.first_lane(code):
            code.add(f"atomicAdd(out, (float)({share}));", missing_barrier=f"out[0] += {share};")


def cosine_similarity(code: Code, stage: Stage, walk: Walk) -> None:
    rows = stage.rows
    with walk.row(code, stage, rows, output=False):
        code.add(f"const float* s = {stage.step.second} + {rows.start()};")
        names = ("dot", "pp", "ss")
        zeros(code, *names)
        if walk.language == "cuda" or walk.slots["passes"] == "together":
            with walk.each(code, rows.length, "+:dot,pp,ss"):
                code.add("dot += p[n] * s[n];", wrong_formula="dot += p[n] + s[n];")
                code.add("pp += p[n] * p[n];", op_left_out=None)
                code.add("ss += s[n] * s[n];")
            walk.join(code, *names)
        else:
            for name, text in zip(names, ("p[n] * s[n]", "p[n] * p[n]", "s[n] * s[n]"), strict=True):
                with walk.each(code, rows.length, f"+:{name}"):
                    code.add(f"{name} += {text};")
        with walk.first_lane(code):
            add_store(code, stage, "dot / sqrt(pp * ss)", index="r", wrong_formula="dot / (pp * ss)")
