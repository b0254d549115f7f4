"""Softmax and norms: a row is read for its statistics, then written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from kevin.writer.code import Code
from kevin.writer.slots import parallel, simd
from kevin.writer.special.stage import Rows, Stage, add_store
from kevin.writer.special.walk import Walk, zeros

Loop = Callable[[str | None], AbstractContextManager[None]]
"""Opens loops over the elements of one statistic, given the reduction for their pragma, as `Walk.each`."""


def _store_row(code: Code, stage: Stage, walk: Walk, value: str, rows: Rows, **wrong: str) -> None:
    """The last loop over a row."""
    with walk.each(code, rows.length):
        add_store(code, stage, value, index=f"{rows.start()} + n", place="q[n]", **wrong)


def _add_online(code: Code, walk: Walk, length: str) -> None:
    code.add("float top = p[0];", uninitialised="float top;")
    zeros(code, "sum")
    with walk.each(code, length, ""):
        code.add("float next = p[n] > top ? p[n] : top;")
        right = "sum = sum * exp(top - next) + exp(p[n] - next);"
        code.add(right, wrong_formula="sum = sum + exp(p[n] - next);")
        code.add("top = next;", op_left_out=None)


def softmax(code: Code, stage: Stage, walk: Walk) -> None:
    rows, log = stage.rows, stage.step.op.name == "log_softmax"
    stored = walk.slots["passes"] == "stored"
    with walk.row(code, stage, rows):
        if walk.slots["passes"] == "online":
            _add_online(code, walk, rows.length)
        else:
            walk.top(code, rows.length)
            zeros(code, "sum")
            with walk.each(code, rows.length, "+:sum"):
                if stored:
                    code.add("q[n] = p[n] - top;" if log else "q[n] = exp(p[n] - top);")
                    code.add("sum += exp(q[n]);" if log else "sum += q[n];")
                else:
                    code.add("sum += exp(p[n] - top);", wrong_formula="sum += p[n] - top;")
            walk.join(code, "sum")
        code.add("real shift = log(sum);" if log else "real scale = 1 / sum;")
        if stored:
            _store_row(code, stage, walk, "q[n] - shift" if log else "q[n] * scale", rows)
        elif log:
            _store_row(code, stage, walk, "p[n] - top - shift", rows, wrong_formula="p[n] - top")
        else:
            wrong = {"wrong_formula": "exp(p[n] - top)"} if walk.language == "cpp" else {}
            _store_row(code, stage, walk, "exp(p[n] - top) * scale", rows, **wrong)


def _inverse(code: Code, variance: str, eps: float, unbiased: str | None = None) -> None:
    """``inv`` = 1 / sqrt(variance + eps)."""
    head = "real inv = 1 / sqrt("
    wrong = {"wrong_epsilon": f"{head}{variance} + 0.1f);"}
    if unbiased:
        wrong["unbiased_variance"] = f"{head}{unbiased} + {eps}f);"
    code.add(f"{head}{variance} + {eps}f);", **wrong)


def _moments(code: Code, walk: Walk, count: str, eps: float, loop: Loop, element: str = "p[n]") -> None:
    """``mean`` and ``inv`` of the elements that ``loop`` runs over."""
    if walk.slots["passes"] == "welford":
        zeros(code, "mean", "sq")
        with loop(""):
            code.add("real d = p[n] - mean;")
            code.add("mean += d / (n + 1);", wrong_formula="mean += d / 2;")
            code.add("sq += d * (p[n] - mean);", wrong_formula="sq += p[n] * (p[n] - mean);")
        _inverse(code, f"sq / {count}", eps, f"sq / ({count} - 1)")
        return
    names = ("sum", "sq") if walk.slots["passes"] == "one_pass" else ("sum",)
    zeros(code, *names)
    with loop(f"+:{','.join(names)}"):
        code.add(f"sum += {element};", op_left_out=None)
        if "sq" in names:
            code.add(f"sq += {element} * {element};")
    walk.join(code, *names)
    code.add(f"real mean = sum / {count};", wrong_formula="real mean = sum;")
    if "sq" in names:
        _inverse(code, f"sq / {count} - mean * mean", eps)
        return
    zeros(code, "sq")
    with loop("+:sq"):
        code.add(f"sq += ({element} - mean) * ({element} - mean);", wrong_formula=f"sq += {element} * {element};")
    walk.join(code, "sq")
    _inverse(code, f"sq / {count}", eps, f"sq / ({count} - 1)")


def norm_rows(stage: Stage, groups: str = "") -> Rows:
    """Rows of a layer, instance or group norm; ``groups``: what the number of groups is called."""
    if stage.step.op.name != "group_norm":
        return stage.rows
    groups = groups or str(stage.step.op.attrs["groups"])
    return Rows(f"R / C * {groups}", f"C / {groups} * N")


def moment_norm(code: Code, stage: Stage, walk: Walk) -> None:
    """layer_norm, instance_norm and group_norm."""
    name, eps = stage.step.op.name, stage.step.op.attrs["eps"]
    rows = norm_rows(stage, "G" if walk.language == "cpp" else "")
    if name == "group_norm" and walk.language == "cpp":
        code.add(f"constexpr int64_t G = {stage.step.op.attrs['groups']};")
    with walk.row(code, stage, rows):
        count = rows.length if " " not in rows.length else f"({rows.length})"
        if walk.slots.get("rows") == "split":
            _collected_moments(code, count, eps)
        else:
            _moments(code, walk, count, eps, lambda reduction: walk.each(code, rows.length, reduction))
        if name == "group_norm":
            (_store_groups if walk.language == "cpp" else _store_group)(code, stage, walk, rows)
        elif name == "layer_norm":
            value = f"(p[n] - mean) * inv * {stage.weight}[n] + {stage.bias}[n]"
            _store_row(code, stage, walk, value, rows, op_left_out="(p[n] - mean) * inv")
        else:
            _store_row(code, stage, walk, "(p[n] - mean) * inv", rows, wrong_formula="p[n] * inv - mean")


def _store_groups(code: Code, stage: Stage, walk: Walk, rows: Rows) -> None:
    """One channel of the group after the other."""
    with code.loop("c", "C / G"):
        scale = f"real scale = inv * {stage.weight}["
        code.add(f"{scale}r % G * (C / G) + c];", wrong_axis=f"{scale}c];")
        code.add(f"real shift = {stage.bias}[r % G * (C / G) + c] - mean * scale;")
        with code.loop("n", "N", pragma=simd()):
            add_store(code, stage, "p[c * N + n] * scale + shift", index="", place="q[c * N + n]")


def _store_group(code: Code, stage: Stage, walk: Walk, rows: Rows) -> None:
    """Each element by itself."""
    groups = stage.step.op.attrs["groups"]
    with walk.each(code, rows.length):
        channel = f"r % {groups} * (C / {groups}) + n / N"
        code.add(f"int64_t c = {channel};", wrong_axis="int64_t c = n / N;")
        code.add(f"q[n] = (p[n] - mean) * inv * {stage.weight}[c] + {stage.bias}[c];")


def partial_moments(code: Code, stage: Stage, walk: Walk, rows: Rows) -> None:
    """First of two kernels: 64 blocks a row leave their sums in ``part``."""
    with walk.row(code, stage, rows, output=False):
        zeros(code, "sum", "sq")
        with walk.each(code, rows.length):
            code.add("sum += p[n];", op_left_out=None)
            code.add("sq += p[n] * p[n];")
        code.add("sum = sum_of(sum);", op_left_out=None)
        code.add("sq = sum_of(sq);")
        with code.block("if (threadIdx.x == 0)"):
            code.add("part[2 * blockIdx.x] = sum;")
            code.add("part[2 * blockIdx.x + 1] = sq;")


def _collected_moments(code: Code, count: str, eps: float) -> None:
    """Second of two kernels: every block adds up the sums of its row."""
    zeros(code, "sum", "sq")
    with code.block("for (int64_t b = r * 64; b < r * 64 + 64; b++)"):
        code.add("sum += part[2 * b];")
        code.add("sq += part[2 * b + 1];", wrong_formula="sq += part[2 * b];")
    code.add(f"real mean = sum / {count};", wrong_formula="real mean = sum;")
    _inverse(code, f"sq / {count} - mean * mean", eps)


def batch_norm(code: Code, stage: Stage, walk: Walk) -> None:
    """Statistics of each channel over the whole batch."""
    if walk.language == "cuda":
        _channel_by_threads(code, stage, walk)
        return

    @contextmanager
    def loop(reduction: str | None) -> Iterator[None]:
        with code.loop("b", "R / C"):
            code.add(f"const float* p = {stage.source} + (b * C + c) * N;")
            with walk.each(code, "N", reduction):
                yield

    with code.loop("c", "C", pragma=parallel()):
        _moments(code, walk, "(R / C * N)", stage.step.op.attrs["eps"], loop)
        code.add(f"real scale = inv * {stage.weight}[c];", op_left_out="real scale = inv;")
        code.add(f"real shift = {stage.bias}[c] - mean * scale;", op_left_out="real shift = 0;")
        with code.loop("b", "R / C"):
            code.add("int64_t r = b * C + c;")
            with walk.each(code, "N"):
                value = f"{stage.source}[r * N + n] * scale + shift"
                add_store(code, stage, value, index="r * N + n")


def _channel_by_threads(code: Code, stage: Stage, walk: Walk) -> None:
    """One row of threads per channel."""
    count, element = "(R / C * N)", "p[n / N * C * N + n % N]"
    with walk.row(code, stage, Rows("C", "0"), output=False):
        code.add("p = " + stage.source + " + r * N;")
        eps = stage.step.op.attrs["eps"]
        _moments(code, walk, count, eps, lambda reduction: walk.each(code, count, reduction), element)
        code.add(f"real scale = inv * {stage.weight}[r];", op_left_out="real scale = inv;")
        code.add(f"real shift = {stage.bias}[r] - mean * scale;")
        with walk.each(code, count):
            code.add("int64_t e = (n / N * C + r) * N + n % N;", wrong_axis="int64_t e = r * N + n % N;")
            add_store(code, stage, f"{stage.source}[e] * scale + shift", index="e")


def length_norm(code: Code, stage: Stage, walk: Walk) -> None:
    """rms_norm and l2_norm: rows divided by a length."""
    rows, rms = stage.rows, stage.step.op.name == "rms_norm"
    with walk.row(code, stage, rows):
        zeros(code, "sq")
        with walk.each(code, rows.length, "+:sq"):
            code.add("sq += p[n] * p[n];", wrong_formula="sq += p[n];")
        walk.join(code, "sq")
        inner, wrong = (f"sq / {rows.length} + {stage.step.op.attrs['eps']}f", "sq") if rms else ("sq", "sq + 1")
        multiply = walk.slots["passes"] == "multiply"
        head = "real inv = 1 / sqrt(" if multiply else "real size = sqrt("
        code.add(f"{head}{inner});", wrong_epsilon=f"{head}{wrong});")
        _store_row(code, stage, walk, "p[n] * inv" if multiply else "p[n] / size", rows)
