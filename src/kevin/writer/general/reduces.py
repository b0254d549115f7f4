"""Reductions, scans and losses."""

from __future__ import annotations

from kevin.writer.code import Code
from kevin.writer.general.dims import wrapped
from kevin.writer.general.mode import Mode, store, zero
from kevin.writer.general.norms import add_start, add_top
from kevin.writer.general.rows import Rows, rows_of
from kevin.writer.general.stages import Stage

MEANS = ("mean_dim", "global_avg_pool", "adaptive_avg_pool")


def reduce(code: Code, stage: Stage, mode: Mode) -> None:
    """One result a row."""
    rows, name = rows_of(stage), stage.name
    wrong: dict[str, str] = {}
    with mode.each_row(code, rows.num):
        add_start(code, rows)
        if name in ("argmax", "argmin"):
            _best(code, stage, mode, rows)
            value = "best"
        elif name in ("max_dim", "min_dim"):
            _extreme(code, stage, mode, rows)
            value = "top"
        elif name == "logsumexp":
            add_top(code, stage, mode, rows)
            zero(code, "sum")
            with mode.each(code, rows.length, "+:sum"):
                line = f"sum += exp({stage.source}[{rows.at}] - top);"
                code.add(line, wrong_formula=line.replace("exp(", "("))
            mode.join(code, "sum")
            value, wrong = "top + log(sum)", {"wrong_formula": "log(sum)"}
        else:
            value, wrong = _total(code, stage, mode, rows)
        with mode.first_lane(code):
            store(code, stage, value, "r", **wrong)


def _total(code: Code, stage: Stage, mode: Mode, rows: Rows) -> tuple[str, dict[str, str]]:
    if stage.name == "prod_dim":
        code.add("real all = 1;", wrong_formula="real all = 0;", uninitialised="real all;")
        with mode.each(code, rows.length, "*:all"):
            code.add(f"all *= {stage.source}[{rows.at}];")
        return "all", {}
    zero(code, "sum")
    with mode.each(code, rows.length, "+:sum"):
        if stage.main and stage.main.kind == "contract":
            line = f"sum += {stage.source}[{rows.at}] * {stage.main.second}[n];"
        else:
            line = f"sum += {stage.source}[{rows.at}];"
        code.add(line, wrong_formula=line.replace("+=", "="))
    mode.join(code, "sum")
    if stage.name in MEANS:
        return f"sum / {wrapped(rows.length)}", {"op_left_out": "sum"}
    return "sum", {}


def _extreme(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    least = stage.name in ("min_dim", "argmin")
    sign = "<" if least else ">"
    code.add(f"real top = {'' if least else '-'}3e38f;", uninitialised="real top;")
    with mode.each(code, rows.length, f"{'min' if least else 'max'}:top"):
        code.add(f"real e = {stage.source}[{rows.at}];")
        code.add(f"top = e {sign} top ? e : top;", wrong_formula="top = e;")
    if mode.rows != "thread":
        code.add("top = -top_of(-top);" if least else "top = top_of(top);", op_left_out=None)


def _best(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    """The first index of the extreme: by one thread as it goes, by several in a second look."""
    sign = "<" if stage.name == "argmin" else ">"
    if mode.rows == "thread":
        code.add(f"real top = {stage.source}[{rows.first}];")
        code.add("idx best = 0;", uninitialised="idx best;")
        with mode.each(code, rows.length, ""):
            code.add(f"real e = {stage.source}[{rows.at}];")
            code.add(f"if (e {sign} top) best = n;", wrong_formula=f"if (top {sign} e) best = n;")
            code.add(f"top = e {sign} top ? e : top;")
        return
    _extreme(code, stage, mode, rows)
    code.add(f"real best = {rows.length};", uninitialised="real best;")
    with mode.each(code, rows.length):
        code.add(f"if ({stage.source}[{rows.at}] == top && n < best) best = n;", wrong_formula="best = n;")
    code.add("best = -top_of(-best);", op_left_out=None)


def scan(code: Code, stage: Stage, mode: Mode) -> None:
    """A running sum or product: by one thread, or by a warp in steps of 32 elements."""
    assert stage.main is not None
    rows, name = rows_of(stage), stage.name
    at = rows.at.replace(" n", f" ({rows.length} - 1 - n)", 1) if name == "reverse_cumsum" else rows.at
    value = f"{stage.source}[{at}]"
    if name == "masked_cumsum":
        value = f"({stage.main.second}[{at}] ? {value} : 0)"
    with mode.each_row(code, rows.num):
        add_start(code, rows)
        if name == "cumprod":
            code.add("real sum = 1;", uninitialised="real sum;", wrong_formula="real sum = 0;")
        else:
            zero(code, "sum")
        if mode.rows == "warp":
            _warp_scan(code, stage, value, at, rows.length)
            return
        with mode.each(code, rows.length, ""):
            code.add(f"real v = {value};")
            if name == "exclusive_cumsum":
                store(code, stage, "sum", at, wrong_formula="sum + v")
                code.add("sum += v;")
            else:
                code.add("sum *= v;" if name == "cumprod" else "sum += v;", wrong_formula="sum = v;")
                store(code, stage, "sum", at)


def _warp_scan(code: Code, stage: Stage, value: str, at: str, length: str) -> None:
    """All lanes take part in every step, those beyond the row too: else the shuffles would not meet."""
    exclusive, sign = stage.name == "exclusive_cumsum", "*" if stage.name == "cumprod" else "+"
    head = f"for (idx n = lane; n < {length} + lane; n += 32)"
    with code.block(head, undeclared_name=head.replace(length, "num", 1), off_by_one=head.replace(" + lane", "")):
        code.add(f"real v = n < {length} ? {value} : 0;", missing_bounds=f"real v = {value};")
        if exclusive:
            code.add("real own = v;")
        with code.block("for (int k = 1; k < 32; k *= 2)"):
            code.add("real u = __shfl_up_sync(0xffffffff, v, k);")
            code.add(f"if (lane >= k) v {sign}= u;", wrong_formula=f"v {sign}= u;")
        code.add(f"v {sign}= sum;", op_left_out=None)
        code.add("sum = __shfl_sync(0xffffffff, v, 31);")
        with code.block(f"if (n < {length})"):
            store(code, stage, "v - own" if exclusive else "v", at)


def losses(code: Code, stage: Stage, mode: Mode) -> None:
    """Each row adds its share of the mean to the result, which is set to zero before."""
    assert stage.main is not None
    rows, second = rows_of(stage), stage.main.second
    with mode.each_row(code, rows.num, "+:total"):
        add_start(code, rows)
        zero(code, *(("near", "far") if stage.name == "triplet_loss" else ("sum",)))
        with mode.each(code, rows.length, "+:near,far" if stage.name == "triplet_loss" else "+:sum"):
            code.add(f"real e = x[{rows.at}];")
            if stage.name == "triplet_loss":
                for sum_name, other in (("near", second), ("far", stage.main.third)):
                    code.add(f"{sum_name} += (e - {other}[{rows.at}] + 1e-6f) * (e - {other}[{rows.at}] + 1e-6f);")
            elif stage.name == "kl_div":
                code.add(f"real t = {second}[{rows.at}];")
                code.add("sum += t > 0 ? t * (log(t) - log(e)) : 0;", wrong_formula="sum += t * log(e);")
            else:
                code.add(f"real d = 1 - e * {second}[n];", wrong_axis=f"real d = 1 - e * {second}[r];")
                code.add("sum += d > 0 ? d : 0;", wrong_formula="sum += d;")
        if stage.name == "triplet_loss":
            mode.join(code, "near", "far")
            margin = float(stage.main.op.attrs["margin"])
            text = f"real sum = sqrt(near) - sqrt(far) + {margin}f;"
            code.add(text, wrong_formula=text.replace("sqrt", ""))
            code.add("sum = sum > 0 ? sum : 0;", op_left_out=None)
        else:
            mode.join(code, "sum")
        share = "sum / x_size" if stage.name == "hinge_loss_shared" else f"sum / {wrapped(rows.num)}"
        with mode.first_lane(code):
            if mode.language == "cuda":
                code.add(f"atomicAdd(out, (float)({share}));", missing_barrier=f"out[0] += {share};")
            else:
                code.add(f"total += {share};", wrong_formula=f"total = {share};")
