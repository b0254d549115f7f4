"""Operators over rows in C++: softmax and norms, reductions, scans, losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from kevin.writer import layout
from kevin.writer.code import Code
from kevin.writer.slots import Slots, parallel, simd
from kevin.writer.stage import Stage, add_store

Loop = Callable[[str | None], AbstractContextManager[None]]
"""Opens loops over the elements ``p[n]`` of one statistic, given the reduction for their pragma."""


def add_zeros(code: Code, slots: Slots, *names: str) -> None:
    for name in names:
        code.add(f"real {name} = 0;", uninitialised=f"real {name};")


@contextmanager
def each_row(code: Code, stage: Stage, slots: Slots, rows: layout.Rows, *, output: bool) -> Iterator[None]:
    """A loop over rows with ``p`` at the row that is read and ``q`` at the one that is written."""
    with code.loop("r", rows.num, pragma=parallel()):
        code.add(f"const float* p = {stage.source} + {rows.start()};")
        if output:
            code.add(f"float* q = {stage.target} + {rows.start()};")
        yield


def _store_row(code: Code, stage: Stage, slots: Slots, value: str, rows: layout.Rows, **wrong: str) -> None:
    """The last loop over a row."""
    with code.loop("n", rows.length, pragma=simd()):
        index = f"{rows.start()} + n"
        add_store(code, stage, value, index=index, place="q[n]", **wrong)


def add_top(code: Code, slots: Slots, length: str, *, is_result: bool = False) -> None:
    """The largest of a row. Where it only keeps exponentials small (not ``is_result``), any other value would do."""
    code.add("float top = p[0];", uninitialised="float top;")
    with code.loop("n", length, pragma=simd("max:top")):
        wrong = {"wrong_formula": "top = p[n] < top ? p[n] : top;"} if is_result else {}
        code.add("top = p[n] > top ? p[n] : top;", **wrong)


def _add_online(code: Code, slots: Slots, length: str) -> None:
    code.add("float top = p[0];", uninitialised="float top;")
    add_zeros(code, slots, "sum")
    with code.loop("n", length):
        code.add("float next = p[n] > top ? p[n] : top;")
        right = "sum = sum * exp(top - next) + exp(p[n] - next);"
        code.add(right, wrong_formula="sum = sum + exp(p[n] - next);")
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
            with code.loop("n", rows.length, pragma=simd("+:sum")):
                if slots["passes"] == "stored":
                    code.add("q[n] = p[n] - top;" if log else "q[n] = exp(p[n] - top);")
                    code.add("sum += exp(q[n]);" if log else "sum += q[n];")
                else:
                    code.add("sum += exp(p[n] - top);", wrong_formula="sum += p[n] - top;")
        if log:
            code.add("real shift = log(sum);")
        else:
            code.add("real scale = 1 / sum;")
        if slots["passes"] == "stored":
            _store_row(code, stage, slots, "q[n] - shift" if log else "q[n] * scale", rows)
        else:
            value = "p[n] - top - shift" if log else "exp(p[n] - top) * scale"
            _store_row(code, stage, slots, value, rows, wrong_formula="p[n] - top" if log else "exp(p[n] - top)")


def _inverse(code: Code, slots: Slots, variance: str, eps: float, biased: str | None = None) -> None:
    """``inv`` = 1 / sqrt(variance + eps)."""
    head = "real inv = 1 / sqrt("
    texts = {"wrong_epsilon": f"{head}{variance} + 0.1f);"}
    if biased:
        texts["unbiased_variance"] = f"{head}{biased} + {eps}f);"
    code.add(f"{head}{variance} + {eps}f);", **texts)


def _moments(code: Code, slots: Slots, count: str, eps: float, loop: Loop) -> None:
    """``mean`` and ``inv`` of the elements that ``loop`` runs over."""
    if slots["passes"] == "welford":
        add_zeros(code, slots, "mean", "sq")
        with loop(None):
            code.add("real d = p[n] - mean;")
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
        code.add(f"real mean = sum / {count};", wrong_formula="real mean = sum;")
        _inverse(code, slots, f"sq / {count} - mean * mean", eps)
        return
    with loop("+:sum"):
        code.add("sum += p[n];", op_left_out=None)
    code.add(f"real mean = sum / {count};", wrong_formula="real mean = sum;")
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
        return code.loop("n", rows.length, pragma=simd(reduction) if reduction else None)

    if groups:
        code.add(f"constexpr int64_t G = {step.op.attrs['groups']};")
    with each_row(code, stage, slots, rows, output=True):
        count = rows.length if " " not in rows.length else f"({rows.length})"
        _moments(code, slots, count, step.op.attrs["eps"], loop)
        if groups:
            with code.loop("c", "C / G"):
                scale = f"real scale = inv * {stage.weight}["
                code.add(f"{scale}r % G * (C / G) + c];", wrong_axis=f"{scale}c];")
                code.add(f"real shift = {stage.bias}[r % G * (C / G) + c] - mean * scale;")
                with code.loop("n", "N", pragma=simd()):
                    add_store(code, stage, "p[c * N + n] * scale + shift", index="", place="q[c * N + n]")
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
            with code.loop("n", "N", pragma=simd(reduction) if reduction else None):
                yield

    with code.loop("c", "C", pragma=parallel()):
        _moments(code, slots, "(R / C * N)", stage.step.op.attrs["eps"], loop)
        code.add(f"real scale = inv * {stage.weight}[c];", op_left_out="real scale = inv;")
        code.add(f"real shift = {stage.bias}[c] - mean * scale;", op_left_out="real shift = 0;")
        with code.loop("b", "R / C"):
            code.add("int64_t r = b * C + c;")
            with code.loop("n", "N", pragma=simd()):
                value = f"{stage.source}[r * N + n] * scale + shift"
                add_store(code, stage, value, index="r * N + n")


def length_norm(code: Code, stage: Stage, slots: Slots) -> None:
    """rms_norm and l2_norm: rows divided by a length."""
    rows = stage.rows
    rms = stage.step.op.name == "rms_norm"
    with each_row(code, stage, slots, rows, output=True):
        add_zeros(code, slots, "sq")
        with code.loop("n", rows.length, pragma=simd("+:sq")):
            code.add("sq += p[n] * p[n];", wrong_formula="sq += p[n];")
        inner, wrong = (f"sq / {rows.length} + {stage.step.op.attrs['eps']}f", "sq") if rms else ("sq", "sq + 1")
        multiply = slots["passes"] == "multiply"
        head = "real inv = 1 / sqrt(" if multiply else "real size = sqrt("
        code.add(f"{head}{inner});", wrong_epsilon=f"{head}{wrong});")
        _store_row(code, stage, slots, "p[n] * inv" if multiply else "p[n] / size", rows)
