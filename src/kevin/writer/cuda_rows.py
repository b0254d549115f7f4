"""Softmax and norms in CUDA."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from kevin.writer.code import Code
from kevin.writer.cuda_threads import add_row_start, add_top, add_zeros, each_element, join_sums
from kevin.writer.layout import Rows
from kevin.writer.slots import Slots
from kevin.writer.stage import Stage, add_store

Loop = Callable[[], AbstractContextManager[None]]


def partial_moments(code: Code, stage: Stage, slots: Slots, rows: Rows) -> None:
    """First of two kernels: 64 blocks a row leave their sums in ``part``."""
    add_row_start(code, stage, slots, rows, output=False)
    add_zeros(code, slots, "sum", "sq")
    with each_element(code, rows.length):
        code.add("sum += p[n];", op_left_out=None)
        code.add("sq += p[n] * p[n];")
    code.add("sum = sum_of(sum);", op_left_out=None)
    code.add("sq = sum_of(sq);")
    with code.block("if (threadIdx.x == 0)"):
        code.add("part[2 * blockIdx.x] = sum;")
        code.add("part[2 * blockIdx.x + 1] = sq;")


def _collected_moments(code: Code, slots: Slots, count: str, eps: float) -> None:
    """Second of two kernels: every block adds up the sums of its row."""
    add_zeros(code, slots, "sum", "sq")
    with code.block("for (int64_t b = r * 64; b < r * 64 + 64; b++)"):
        code.add("sum += part[2 * b];")
        code.add("sq += part[2 * b + 1];", wrong_formula="sq += part[2 * b];")
    code.add(f"real mean = sum / {count};", wrong_formula="real mean = sum;")
    _inverse(code, slots, f"sq / {count} - mean * mean", eps)


def norm_rows(stage: Stage) -> Rows:
    """Rows of a layer, instance or group norm."""
    if stage.step.op.name != "group_norm":
        return stage.rows
    groups = stage.step.op.attrs["groups"]
    return Rows(f"R / C * {groups}", f"C / {groups} * N")


def _store_row(code: Code, stage: Stage, slots: Slots, value: str, rows: Rows, **wrong: str) -> None:
    with each_element(code, rows.length):
        index = f"{rows.start()} + n"
        add_store(code, stage, value, index=index, place="q[n]", **wrong)


def softmax(code: Code, stage: Stage, slots: Slots) -> None:
    rows, log = stage.rows, stage.step.op.name == "log_softmax"
    add_row_start(code, stage, slots, rows)
    add_top(code, slots, rows.length)
    add_zeros(code, slots, "sum")
    with each_element(code, rows.length):
        if slots["passes"] == "stored" and not log:
            code.add("q[n] = exp(p[n] - top);")
            code.add("sum += q[n];")
        else:
            code.add("sum += exp(p[n] - top);", wrong_formula="sum += p[n] - top;")
    join_sums(code, slots, "sum")
    if log:
        code.add("real shift = log(sum);")
        _store_row(code, stage, slots, "p[n] - top - shift", rows, wrong_formula="p[n] - top")
    else:
        code.add("real scale = 1 / sum;")
        value = "q[n] * scale" if slots["passes"] == "stored" else "exp(p[n] - top) * scale"
        _store_row(code, stage, slots, value, rows)


def _inverse(code: Code, slots: Slots, variance: str, eps: float, unbiased: str | None = None) -> None:
    head = "real inv = 1 / sqrt("
    wrong = {"wrong_epsilon": f"{head}{variance} + 0.1f);"}
    if unbiased:
        wrong["unbiased_variance"] = f"{head}{unbiased} + {eps}f);"
    code.add(f"{head}{variance} + {eps}f);", **wrong)


def moments(code: Code, slots: Slots, count: str, eps: float, loop: Loop, element: str) -> None:
    """``mean`` and ``inv`` of all elements that the threads of a row run over."""
    one_pass = slots["passes"] == "one_pass"
    add_zeros(code, slots, "sum", *(("sq",) if one_pass else ()))
    with loop():
        code.add(f"sum += {element};", op_left_out=None)
        if one_pass:
            code.add(f"sq += {element} * {element};")
    join_sums(code, slots, "sum", *(("sq",) if one_pass else ()))
    code.add(f"real mean = sum / {count};", wrong_formula="real mean = sum;")
    if one_pass:
        _inverse(code, slots, f"sq / {count} - mean * mean", eps)
        return
    add_zeros(code, slots, "sq")
    with loop():
        code.add(f"sq += ({element} - mean) * ({element} - mean);", wrong_formula=f"sq += {element} * {element};")
    join_sums(code, slots, "sq")
    _inverse(code, slots, f"sq / {count}", eps, f"sq / ({count} - 1)")


def moment_norm(code: Code, stage: Stage, slots: Slots) -> None:
    step, rows = stage.step, norm_rows(stage)
    groups = step.op.name == "group_norm"
    add_row_start(code, stage, slots, rows)
    count = f"({rows.length})" if groups else rows.length
    if slots["rows"] == "split":
        _collected_moments(code, slots, count, step.op.attrs["eps"])
    else:
        moments(code, slots, count, step.op.attrs["eps"], lambda: each_element(code, rows.length), "p[n]")
    if groups:
        with each_element(code, rows.length):
            g = f"{step.op.attrs['groups']}"
            channel = f"r % {g} * (C / {g}) + n / N"
            code.add(f"int64_t c = {channel};", wrong_axis="int64_t c = n / N;")
            code.add(f"q[n] = (p[n] - mean) * inv * {stage.weight}[c] + {stage.bias}[c];")
    elif step.op.name == "layer_norm":
        value = f"(p[n] - mean) * inv * {stage.weight}[n] + {stage.bias}[n]"
        _store_row(code, stage, slots, value, rows, op_left_out="(p[n] - mean) * inv")
    else:
        _store_row(code, stage, slots, "(p[n] - mean) * inv", rows, wrong_formula="p[n] * inv - mean")


def batch_norm(code: Code, stage: Stage, slots: Slots) -> None:
    """One row of threads per channel, over the whole batch."""
    rows = Rows("C", "(R / C * N)")
    add_row_start(code, stage, slots, Rows("C", "0"), output=False)
    code.add("p = " + stage.source + " + r * N;")
    element = "p[n / N * C * N + n % N]"
    moments(code, slots, rows.length, stage.step.op.attrs["eps"], lambda: each_element(code, rows.length), element)
    code.add(f"real scale = inv * {stage.weight}[r];", op_left_out="real scale = inv;")
    code.add(f"real shift = {stage.bias}[r] - mean * scale;")
    with each_element(code, rows.length):
        code.add("int64_t e = (n / N * C + r) * N + n % N;", wrong_axis="int64_t e = r * N + n % N;")
        add_store(code, stage, f"{stage.source}[e] * scale + shift", index="e")


def length_norm(code: Code, stage: Stage, slots: Slots) -> None:
    rows, rms = stage.rows, stage.step.op.name == "rms_norm"
    add_row_start(code, stage, slots, rows)
    add_zeros(code, slots, "sq")
    with each_element(code, rows.length):
        code.add("sq += p[n] * p[n];", wrong_formula="sq += p[n];")
    join_sums(code, slots, "sq")
    inner, wrong = (f"sq / {rows.length} + {stage.step.op.attrs['eps']}f", "sq") if rms else ("sq", "sq + 1")
    multiply = slots["passes"] == "multiply"
    head = "real inv = 1 / sqrt(" if multiply else "real size = sqrt("
    code.add(f"{head}{inner});", wrong_epsilon=f"{head}{wrong});")
    _store_row(code, stage, slots, "p[n] * inv" if multiply else "p[n] / size", rows)
