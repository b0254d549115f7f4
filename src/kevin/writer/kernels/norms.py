"""Softmax and normalisations: a row is read for its statistics, then written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kevin.writer.kernels.code import Code
from kevin.writer.kernels.dims import product, wrapped
from kevin.writer.kernels.mode import Mode, loop, store, zero
from kevin.writer.kernels.rows import LONGEST_FOR_ONE_THREAD, Rows, rows_of
from kevin.writer.kernels.stages import Stage

SOFTMAX = ("softmax", "log_softmax", "spatial_softmax")
MOMENTS = ("layer_norm", "row_norm", "instance_norm", "group_norm", "batch_norm")


def add_start(code: Code, rows: Rows) -> None:
    """Where row ``r`` begins, as ``o``."""
    if rows.at.startswith("o + "):
        code.add(f"idx o = {rows.start};", wrong_axis="idx o = r;" if rows.start != "r" else "idx o = 0;")


@contextmanager
def over_rows(code: Code, stage: Stage, mode: Mode, reduction: str | None = None) -> Iterator[Rows]:
    """What a kernel does with each row ``r``, which begins at ``o``."""
    rows = rows_of(stage)
    with mode.each_row(code, rows.num, reduction):
        add_start(code, rows)
        yield rows


def add_top(code: Code, stage: Stage, mode: Mode, rows: Rows, *, least: bool = False, **wrong: str) -> None:
    """The largest, or the ``least``, of a row as ``top``.

    ``wrong``: by mistake, what stands in place of the comparison; where the largest only keeps exponentials small, any
    other value would do as well.
    """
    sign = "<" if least else ">"
    code.add(f"real top = {'' if least else '-'}3e38f;", uninitialised="real top;")
    with mode.each(code, rows.length, f"{'min' if least else 'max'}:top"):
        code.add(f"real e = {stage.source}[{rows.at}];")
        code.add(f"top = e {sign} top ? e : top;", **wrong)
    if mode.rows != "thread":
        code.add("top = -top_of(-top);" if least else "top = top_of(top);", op_left_out=None)


def softmax(code: Code, stage: Stage, mode: Mode) -> None:
    stored = mode.slots.get("passes") == "stored" and stage.name != "log_softmax"
    with over_rows(code, stage, mode) as rows:
        source, target = f"{stage.source}[{rows.at}]", f"{stage.target}[{rows.at}]"
        add_top(code, stage, mode, rows)
        zero(code, "sum")
        with mode.each(code, rows.length, "+:sum"):
            if stored:
                code.add(f"{target} = exp({source} - top);", wrong_formula=f"{target} = {source} - top;")
                code.add(f"sum += {target};")
            else:
                code.add(f"sum += exp({source} - top);", wrong_formula=f"sum += {source} - top;")
        mode.join(code, "sum")
        with mode.each(code, rows.length):
            if stage.name == "log_softmax":
                store(code, stage, f"{source} - top - log(sum)", rows.at, wrong_formula=f"{source} - log(sum)")
            else:
                store(code, stage, f"{target} / sum" if stored else f"exp({source} - top) / sum", rows.at)


def _affine(stage: Stage, rows: Rows) -> str | None:
    """Index into weight and bias; None where there are none."""
    if not stage.step.parameters:
        return None
    dims = stage.in_dims
    match stage.name:
        case "batch_norm":
            return "r"
        case "group_norm":
            groups = int(stage.attrs["groups"])
            inner = wrapped(product(dims.names[2:]))
            part = "n" if inner == "1" else "c" if rows.is_in_parts else f"n / {inner}"
            return f"r % {groups} * ({dims.names[1]} / {groups}) + {part}"
    return "n"


@contextmanager
def _each(code: Code, mode: Mode, rows: Rows, reduction: str | None = None) -> Iterator[None]:
    """Elements of a row, or of each of its parts."""
    if rows.parts and rows.is_in_parts:
        num, length, _ = rows.parts
        with loop(code, "c", num), mode.each(code, length, reduction):
            yield
        return
    with mode.each(code, rows.length, reduction):
        yield


def _add_shifted_sums(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    """Sum and squares of a row's distances from its first element."""
    code.add(f"real shift = {stage.source}[{rows.first}];")
    zero(code, "sum", "squares")
    with _each(code, mode, rows, "+:sum,squares"):
        code.add(f"real e = {stage.source}[{rows.at}] - shift;")
        code.add("sum += e;")
        code.add("squares += e * e;", wrong_formula="squares += e;")
    mode.join(code, "sum", "squares")


def moments(code: Code, stage: Stage, mode: Mode) -> None:
    """Mean and variance, in two passes or in one. In C++ a row is read part by part."""
    with over_rows(code, stage, mode) as whole:
        rows = whole.in_parts if mode.language == "cpp" else whole
        source, length = f"{stage.source}[{rows.at}]", wrapped(rows.length)
        if mode.slots.get("passes") == "one_pass":
            _add_shifted_sums(code, stage, mode, rows)
            code.add(f"real mean = sum / {length}, var = squares / {length} - mean * mean;")
            code.add("mean += shift;", op_left_out=None)
        else:
            zero(code, "mean")
            with _each(code, mode, rows, "+:mean"):
                code.add(f"mean += {source};")
            mode.join(code, "mean")
            code.add(f"mean = mean / {length};", op_left_out=None)
            zero(code, "var")
            with _each(code, mode, rows, "+:var"):
                code.add(f"real d = {source} - mean;")
                code.add("var += d * d;", wrong_formula="var += d;")
            mode.join(code, "var")
            code.add(f"var = var / {length};", unbiased_variance=f"var = var / ({rows.length} - 1);")
        _normalised(code, stage, mode, rows)


def _normalised(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    """Every element from its row's ``mean`` and ``var``."""
    source = f"{stage.source}[{rows.at}]"
    eps = float(stage.attrs["eps"])
    code.add(f"real inv = 1 / sqrt(var + {eps}f);", wrong_epsilon="real inv = 1 / sqrt(var + 0.1f);")
    place = _affine(stage, rows)
    with _each(code, mode, rows):
        value = f"({source} - mean) * inv"
        if place is None:
            store(code, stage, value, rows.at)
        else:
            weight, bias = stage.step.parameters
            store(code, stage, f"{value} * {weight}[{place}] + {bias}[{place}]", rows.at, op_left_out=value)


def can_be_split(stage: Stage) -> bool:
    """Whether 64 blocks can share a row: its sums come together in memory, between two kernels."""
    return stage.name in MOMENTS and rows_of(stage).num_elements > LONGEST_FOR_ONE_THREAD


def partial_moments(code: Code, stage: Stage, mode: Mode, moments: str) -> None:
    """Each block adds its part of a row's sum and squares to ``moments``, which is set to zero before."""
    with over_rows(code, stage, mode) as rows:
        _add_shifted_sums(code, stage, mode, rows)
        code.add("if (threadIdx.x > 0) return;", op_left_out=None)
        code.add(f"if (lane == 0) {moments}[3 * r + 2] = shift;")
        code.add(f"atomicAdd(&{moments}[3 * r], (float)sum);", missing_barrier=f"{moments}[3 * r] += sum;")
        code.add(f"atomicAdd(&{moments}[3 * r + 1], (float)squares);")


def from_moments(code: Code, stage: Stage, mode: Mode, moments: str) -> None:
    """Every element from its row's sums."""
    with over_rows(code, stage, mode) as rows:
        length = wrapped(rows.length)
        code.add(f"real mean = {moments}[3 * r] / {length}, var = {moments}[3 * r + 1] / {length} - mean * mean;")
        code.add(f"mean += {moments}[3 * r + 2];", op_left_out=None)
        _normalised(code, stage, mode, rows)


def lengths(code: Code, stage: Stage, mode: Mode) -> None:
    """Division by a row's length: root mean square, Euclidean, or mean absolute value."""
    with over_rows(code, stage, mode) as rows:
        source, length = f"{stage.source}[{rows.at}]", wrapped(rows.length)
        zero(code, "sum")
        with mode.each(code, rows.length, "+:sum"):
            code.add(f"real e = {source};")
            if stage.name == "l1_norm":
                code.add("sum += fabs(e);", wrong_formula="sum += e;")
            else:
                code.add("sum += e * e;", wrong_formula="sum += e;")
        mode.join(code, "sum")
        if stage.name == "l1_norm":
            scale = f"{length} / sum"
            code.add(f"real inv = {scale};", wrong_formula="real inv = 1 / sum;")
        elif stage.name == "l2_norm":
            code.add("real inv = 1 / sqrt(sum);", wrong_formula="real inv = 1 / sum;")
        else:
            eps = float(stage.attrs["eps"])
            text = f"real inv = 1 / sqrt(sum / {length} + {eps}f);"
            code.add(text, wrong_epsilon=text.replace(f"{eps}f", "0.1f"))
        with mode.each(code, rows.length):
            store(code, stage, f"{source} * inv", rows.at)
