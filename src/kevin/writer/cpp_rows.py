"""Operators over rows in C++: softmax and norms, reductions, scans, losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from kevin.writer import layout
from kevin.writer.code import Code
from kevin.writer.slots import Slots, parallel, simd
from kevin.writer.stage import Stage, add_store, math

Loop = Callable[[str | None], AbstractContextManager[None]]
"""Opens loops over the elements ``p[n]`` of one statistic, given the reduction for their pragma."""


def add_zeros(code: Code, slots: Slots, *names: str) -> None:
    real = slots["real"]
    for name in names:
        code.add(f"{real} {name} = 0;", uninitialised=f"{real} {name};")


@contextmanager
def each_row(code: Code, stage: Stage, slots: Slots, rows: layout.Rows, *, output: bool) -> Iterator[None]:
    """A loop over rows with ``p`` at the row that is read and ``q`` at the one that is written."""
    with code.loop("r", rows.num, pragma=parallel(slots)):
        code.add(f"const float* p = {stage.source} + {rows.start()};")
        if output:
            code.add(f"float* q = {stage.target} + {rows.start()};")
        yield


def _store_row(code: Code, stage: Stage, slots: Slots, value: str, rows: layout.Rows, **wrong: str) -> None:
    """The last loop over a row."""
    rank = len(stage.step.in_shape)
    with code.loop("n", rows.length, pragma=simd(slots)):
        index = f"{rows.start()} + n"
        add_store(code, stage, slots, value, index=index, channel=layout.channel(rank), place="q[n]", **wrong)


def add_top(code: Code, slots: Slots, length: str, *, is_result: bool = False) -> None:
    """The largest of a row. Where it only keeps exponentials small (not ``is_result``), any other value would do."""
    code.add("float top = p[0];", uninitialised="float top;")
    with code.loop("n", length, pragma=simd(slots, "max:top")):
        wrong = {"wrong_formula": "top = p[n] < top ? p[n] : top;"} if is_result else {}
        code.add("top = p[n] > top ? p[n] : top;", **wrong)


def _add_online(code: Code, slots: Slots, length: str) -> None:
    code.add("float top = p[0];", uninitialised="float top;")
    add_zeros(code, slots, "sum")
    with code.loop("n", length):
        code.add("float next = p[n] > top ? p[n] : top;")
        right = math("sum = sum * expf(top - next) + expf(p[n] - next);", slots)
        code.add(right, wrong_formula=math("sum = sum + expf(p[n] - next);", slots))
        code.add("top = next;", op_left_out=None)


def softmax(code: Code, stage: Stage, slots: Slots) -> None:
    rows = stage.rows
    log = stage.step.op.name == "log_softmax"
    with each_row(code, stage, slots, rows, output=True):
        if slots["passes"] == "online":
            _add_online(code, slots, rows.length)
        else:
            add_top(code, slots, rows.length)
            add_zeros(code, slots, "sum")
            with code.loop("n", rows.length, pragma=simd(slots, "+:sum")):
                if slots["passes"] == "stored":
                    code.add("q[n] = p[n] - top;" if log else math("q[n] = expf(p[n] - top);", slots))
                    code.add(math("sum += expf(q[n]);", slots) if log else "sum += q[n];")
                else:
                    code.add(math("sum += expf(p[n] - top);", slots), wrong_formula="sum += p[n] - top;")
        if log:
            code.add(math(f"{slots['real']} shift = logf(sum);", slots))
        else:
            code.add(f"{slots['real']} scale = 1 / sum;")
        if slots["passes"] == "stored":
            _store_row(code, stage, slots, "q[n] - shift" if log else "q[n] * scale", rows)
        else:
            value = "p[n] - top - shift" if log else "expf(p[n] - top) * scale"
            _store_row(code, stage, slots, value, rows, wrong_formula="p[n] - top" if log else "expf(p[n] - top)")


def _inverse(code: Code, slots: Slots, variance: str, eps: float, biased: str | None = None) -> None:
    """``inv`` = 1 / sqrt(variance + eps)."""
    head = f"{slots['real']} inv = 1 / sqrtf("
    texts = {"wrong_epsilon": math(f"{head}{variance} + 0.1f);", slots)}
    if biased:
        texts["unbiased_variance"] = math(f"{head}{biased} + {eps}f);", slots)
    code.add(math(f"{head}{variance} + {eps}f);", slots), **texts)


def _moments(code: Code, slots: Slots, count: str, eps: float, loop: Loop) -> None:
    """``mean`` and ``inv`` of the elements that ``loop`` runs over."""
    real = slots["real"]
    if slots["passes"] == "welford":
        add_zeros(code, slots, "mean", "sq")
        with loop(None):
            code.add(f"{real} d = p[n] - mean;")
            code.add("mean += d / (n + 1);", wrong_formula="mean += d / 2;")
            code.add("sq += d * (p[n] - mean);", wrong_formula="sq += p[n] * (p[n] - mean);")
        _inverse(code, slots, f"sq / {count}", eps, f"sq / ({count} - 1)")
        return
    add_zeros(code, slots, "sum")
    if slots["passes"] == "one_pass":
        add_zeros(code, slots, "sq")
        with loop("+:sum,sq"):
            code.add("sum += p[n];", op_left_out=None)
            code.add("sq += p[n] * p[n];")
        code.add(f"{real} mean = sum / {count};", wrong_formula=f"{real} mean = sum;")
        _inverse(code, slots, f"sq / {count} - mean * mean", eps)
        return
    with loop("+:sum"):
        code.add("sum += p[n];", op_left_out=None)
    code.add(f"{real} mean = sum / {count};", wrong_formula=f"{real} mean = sum;")
    add_zeros(code, slots, "sq")
    with loop("+:sq"):
        code.add("sq += (p[n] - mean) * (p[n] - mean);", wrong_formula="sq += p[n] * p[n];")
    _inverse(code, slots, f"sq / {count}", eps, f"sq / ({count} - 1)")


def moment_norm(code: Code, stage: Stage, slots: Slots) -> None:
    """layer_norm, instance_norm and group_norm."""
    step = stage.step
    groups = step.op.name == "group_norm"
    rows = layout.Rows("R / C * G", "C / G * N") if groups else stage.rows

    def loop(reduction: str | None) -> AbstractContextManager[None]:
        return code.loop("n", rows.length, pragma=simd(slots, reduction) if reduction else None)

    if groups:
        code.add(f"constexpr int64_t G = {step.op.attrs['groups']};")
    with each_row(code, stage, slots, rows, output=True):
        count = rows.length if " " not in rows.length else f"({rows.length})"
        _moments(code, slots, count, step.op.attrs["eps"], loop)
        if groups:
            with code.loop("c", "C / G"):
                scale = f"{slots['real']} scale = inv * {stage.weight}["
                code.add(f"{scale}r % G * (C / G) + c];", wrong_axis=f"{scale}c];")
                code.add(f"{slots['real']} shift = {stage.bias}[r % G * (C / G) + c] - mean * scale;")
                with code.loop("n", "N", pragma=simd(slots)):
                    add_store(code, stage, slots, "p[c * N + n] * scale + shift", index="", place="q[c * N + n]")
        elif step.op.name == "layer_norm":
            value = f"(p[n] - mean) * inv * {stage.weight}[n] + {stage.bias}[n]"
            _store_row(code, stage, slots, value, rows, op_left_out="(p[n] - mean) * inv")
        else:
            _store_row(code, stage, slots, "(p[n] - mean) * inv", rows, wrong_formula="p[n] * inv - mean")


def batch_norm(code: Code, stage: Stage, slots: Slots) -> None:
    """Statistics of each channel over the whole batch."""

    @contextmanager
    def loop(reduction: str | None) -> Iterator[None]:
        with code.loop("b", "R / C"):
            code.add(f"const float* p = {stage.source} + (b * C + c) * N;")
            with code.loop("n", "N", pragma=simd(slots, reduction) if reduction else None):
                yield

    real = slots["real"]
    with code.loop("c", "C", pragma=parallel(slots)):
        _moments(code, slots, "(R / C * N)", stage.step.op.attrs["eps"], loop)
        code.add(f"{real} scale = inv * {stage.weight}[c];", op_left_out=f"{real} scale = inv;")
        code.add(f"{real} shift = {stage.bias}[c] - mean * scale;", op_left_out=f"{real} shift = 0;")
        with code.loop("b", "R / C"):
            code.add("int64_t r = b * C + c;")
            with code.loop("n", "N", pragma=simd(slots)):
                value = f"{stage.source}[r * N + n] * scale + shift"
                add_store(code, stage, slots, value, index="r * N + n", channel="c")


def length_norm(code: Code, stage: Stage, slots: Slots) -> None:
    """rms_norm and l2_norm: rows divided by a length."""
    rows = stage.rows
    rms = stage.step.op.name == "rms_norm"
    with each_row(code, stage, slots, rows, output=True):
        add_zeros(code, slots, "sq")
        with code.loop("n", rows.length, pragma=simd(slots, "+:sq")):
            code.add("sq += p[n] * p[n];", wrong_formula="sq += p[n];")
        real = slots["real"]
        inner, wrong = (f"sq / {rows.length} + {stage.step.op.attrs['eps']}f", "sq") if rms else ("sq", "sq + 1")
        multiply = slots["passes"] == "multiply"
        head = f"{real} inv = 1 / sqrtf(" if multiply else f"{real} size = sqrtf("
        code.add(math(f"{head}{inner});", slots), wrong_epsilon=math(f"{head}{wrong});", slots))
        _store_row(code, stage, slots, "p[n] * inv" if multiply else "p[n] / size", rows)
