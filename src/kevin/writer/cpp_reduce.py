"""Reductions, scans and losses in C++."""

from __future__ import annotations

from kevin.writer import layout
from kevin.writer.code import Code
from kevin.writer.cpp_rows import add_top, add_zeros, each_row
from kevin.writer.slots import Slots, parallel, simd
from kevin.writer.stage import Stage, add_store

_MAX = "{acc} = {value} > {acc} ? {value} : {acc};"


def _final(stage: Stage, name: str, count: str) -> str:
    """The value of a reduction from its accumulator."""
    return f"{name} / {count}" if stage.step.op.name in ("mean_dim", "global_avg_pool") else name


def reduce(code: Code, stage: Stage, slots: Slots) -> None:
    """sum, mean, max over a dimension, and the mean of a picture."""
    if layout.rows(stage.step) is None:
        (_columns if slots["order"] == "columns" else _sweep)(code, stage, slots)
        return
    rows = stage.rows
    with each_row(code, stage, slots, rows, output=False):
        if stage.step.op.name == "max_dim":
            add_top(code, slots, rows.length, is_result=True)
            value, wrong = "top", {}
        else:
            add_zeros(code, slots, "sum")
            with code.loop("n", rows.length, pragma=simd("+:sum")):
                code.add("sum += p[n];", wrong_formula="sum += p[0];")
            value = _final(stage, "sum", rows.length)
            wrong = {"op_left_out": "sum"} if value != "sum" else {}
        add_store(code, stage, value, index="r", **wrong)


def _columns(code: Code, stage: Stage, slots: Slots) -> None:
    """Over the channels, one column after the other."""
    element = f"{stage.source}[(b * C + c) * N + n]"
    with code.loop("b", "R / C", pragma=parallel()), code.loop("n", "N"):
        if stage.step.op.name == "max_dim":
            code.add(f"float acc = {stage.source}[b * C * N + n];", uninitialised="float acc;")
        else:
            add_zeros(code, slots, "acc")
        with code.loop("c", "C"):
            _accumulate(code, stage, "acc", element)
        index = "b * N + n"
        add_store(code, stage, _final(stage, "acc", "C"), index=index)


def _sweep(code: Code, stage: Stage, slots: Slots) -> None:
    """Over the channels, row by row into a row of accumulators."""
    with code.loop("b", "R / C", pragma=parallel()):
        code.add("real acc[N];")
        start = f"{stage.source}[b * C * N + n]" if stage.step.op.name == "max_dim" else "0"
        with code.loop("n", "N", pragma=simd()):
            code.add(f"acc[n] = {start};", uninitialised=None)
        with code.loop("c", "C"), code.loop("n", "N", pragma=simd()):
            _accumulate(code, stage, "acc[n]", f"{stage.source}[(b * C + c) * N + n]")
        with code.loop("n", "N", pragma=simd()):
            index = "b * N + n"
            add_store(code, stage, _final(stage, "acc[n]", "C"), index=index)


def _accumulate(code: Code, stage: Stage, acc: str, element: str) -> None:
    wrong = element.replace("(b * C + c) * N + n", "(b * N + n) * C + c")
    if stage.step.op.name == "max_dim":
        code.add(f"float e = {element};", wrong_axis=f"float e = {wrong};")
        code.add(_MAX.format(acc=acc, value="e"))
    else:
        code.add(f"{acc} += {element};", wrong_axis=f"{acc} += {wrong};")


def argmax(code: Code, stage: Stage, slots: Slots) -> None:
    rows = stage.rows
    with each_row(code, stage, slots, rows, output=False):
        if slots["order"] == "search":
            add_top(code, slots, rows.length, is_result=True)
            code.add("int64_t best = 0;", uninitialised="int64_t best;")
            with code.block("while (p[best] != top)", wrong_formula="while (p[best] == top)"):
                code.add("best++;")
        else:
            code.add("int64_t best = 0;", uninitialised="int64_t best;")
            with code.loop("n", rows.length):
                code.add("best = p[n] > p[best] ? n : best;", wrong_formula="best = p[n] < p[best] ? n : best;")
        add_store(code, stage, "best", index="r")


def scan(code: Code, stage: Stage, slots: Slots) -> None:
    """cumsum along rows, from the front or from the back."""
    rows = stage.rows
    backward = stage.step.op.name == "reverse_cumsum"
    if slots["order"] == "lanes":
        with code.loop("r", rows.num, step=8, pragma=parallel()):
            code.add("real sum[8] = {};", uninitialised="real sum[8];")
            with code.loop("n", rows.length):
                if backward:
                    code.add("int64_t m = N - 1 - n;", wrong_formula="int64_t m = n;")
                at = f"(r + i) * N + {'m' if backward else 'n'}"
                with code.loop("i", "8", pragma=simd()):
                    code.add(f"sum[i] += {stage.source}[{at}];")
                    add_store(code, stage, "sum[i]", index=at)
        return
    with each_row(code, stage, slots, rows, output=True):
        if slots["order"] == "memory":
            edge = "N - 1" if backward else "0"
            code.add(f"q[{edge}] = p[{edge}];", op_left_out=None)
            with code.loop("n", "N - 1"):
                if backward:
                    code.add("q[N - 2 - n] = q[N - 1 - n] + p[N - 2 - n];", wrong_axis="q[n + 1] = q[n] + p[n + 1];")
                else:
                    code.add("q[n + 1] = q[n] + p[n + 1];", wrong_axis="q[n + 1] = p[n] + p[n + 1];")
            return
        add_zeros(code, slots, "sum")
        with code.loop("n", rows.length):
            at = "N - 1 - n" if backward else "n"
            code.add(f"sum += p[{at}];")
            code.add(f"q[{at}] = sum;", missing_semicolon=f"q[{at}] = sum", wrong_axis="q[0] = sum;")


_LOSSES = {
    "mse_loss": ("{x}[{i}] - {y}[{i}]", "d * d", "d"),
    "smooth_l1_loss": (
        "fabs({x}[{i}] - {y}[{i}])",
        "d < 1 ? d * d / 2 : d - 0.5f",
        "d < 1 ? d * d : d - 0.5f",
    ),
    "hinge_loss": ("1 - {x}[{i}] * {y}[{i}]", "d > 0 ? d : 0", "d"),
}
"""By operator: the term ``d`` of an element, what it adds to the sum, and a wrong version of that."""


def mean_loss(code: Code, stage: Stage, slots: Slots) -> None:
    """Losses that are the mean over all elements."""
    term, added, wrong = (t for t in _LOSSES[stage.step.op.name])

    def add_terms(name: str, index: str) -> None:
        code.add(f"real d = {term.format(x=stage.source, y=stage.step.second, i=index)};")
        code.add(f"{name} += {added};", wrong_formula=f"{name} += {wrong};")

    code.add("double sum = 0;", uninitialised="double sum;")
    if slots["order"] == "partial":
        with code.loop("r", "R", pragma=parallel("+:sum")):
            add_zeros(code, slots, "part")
            with code.loop("n", "N", pragma=simd("+:part")):
                add_terms("part", "r * N + n")
            code.add("sum += part;")
    else:
        with code.loop("i", "x_size", pragma=simd("+:sum")):
            add_terms("sum", "i")
    add_store(code, stage, "sum / x_size", index="0", op_left_out="sum", wrong_axis="sum / R")


def cross_entropy(code: Code, stage: Stage, slots: Slots) -> None:
    rows = stage.rows
    add_zeros(code, slots, "total")
    with code.loop("r", rows.num, pragma=parallel("+:total")):
        code.add(f"const float* p = {stage.source} + {rows.start()};")
        add_top(code, slots, rows.length)
        add_zeros(code, slots, "sum")
        with code.loop("n", rows.length, pragma=simd("+:sum")):
            right, wrong = (f"sum += exp({e});" for e in ("p[n] - top", "p[n]"))
            code.add(right, wrong_formula=wrong)
        text = f"log(sum) + top - p[{stage.step.second}[r]];"
        code.add(f"total += {text}", op_left_out="total += log(sum) + top;")
    add_store(code, stage, "total / R", index="0", op_left_out="total")


def cosine_similarity(code: Code, stage: Stage, slots: Slots) -> None:
    rows = stage.rows
    with code.loop("r", rows.num, pragma=parallel()):
        code.add(f"const float* p = {stage.source} + {rows.start()};")
        code.add(f"const float* s = {stage.step.second} + {rows.start()};")
        names = ("dot", "pp", "ss")
        add_zeros(code, slots, *names)
        if slots["passes"] == "together":
            with code.loop("n", rows.length, pragma=simd("+:dot,pp,ss")):
                code.add("dot += p[n] * s[n];", wrong_formula="dot += p[n] + s[n];")
                code.add("pp += p[n] * p[n];", op_left_out=None)
                code.add("ss += s[n] * s[n];")
        else:
            for name, text in zip(names, ("p[n] * s[n]", "p[n] * p[n]", "s[n] * s[n]"), strict=True):
                with code.loop("n", rows.length, pragma=simd(f"+:{name}")):
                    code.add(f"{name} += {text};")
        add_store(code, stage, "dot / sqrt(pp * ss)", index="r", wrong_formula="dot / (pp * ss)")
