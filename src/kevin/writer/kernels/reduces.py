"""Reductions, scans and losses."""

from __future__ import annotations

from kevin.writer.kernels.code import Code
from kevin.writer.kernels.dims import wrapped
from kevin.writer.kernels.mode import Mode, store, zero
from kevin.writer.kernels.norms import add_top, over_rows
from kevin.writer.kernels.rows import Rows, rows_of
from kevin.writer.kernels.stages import Stage

MEANS = ("mean_dim", "global_avg_pool", "adaptive_avg_pool")


def reduce(code: Code, stage: Stage, mode: Mode) -> None:
    """One result a row."""
    name = stage.name
    wrong: dict[str, str] = {}
    with over_rows(code, stage, mode) as rows:
        if name in ("argmax", "argmin"):
            search = mode.slots.get("order") == "search"
            (_search if search else _best)(code, stage, mode, rows)
            value = "n" if search else "best"
        elif name in ("max_dim", "min_dim"):
            _extreme(code, stage, mode, rows)
            value = "top"
        elif name == "logsumexp":
            _add_exponentials(code, stage, mode, rows)
            value, wrong = "top + log(sum)", {"wrong_formula": "log(sum)"}
        elif name == "cosine_similarity":
            _cosine(code, stage, mode, rows)
            value, wrong = "sum / sqrt(xx * yy)", {"wrong_formula": "sum / (xx * yy)"}
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
        if stage.kind == "contract":
            line = f"sum += {stage.source}[{rows.at}] * {stage.step.second}[n];"
        else:
            line = f"sum += {stage.source}[{rows.at}];"
        code.add(line, wrong_formula=line.replace("+=", "="))
    mode.join(code, "sum")
    if stage.name in MEANS:
        return f"sum / {wrapped(rows.length)}", {"op_left_out": "sum"}
    return "sum", {}


def _extreme(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    add_top(code, stage, mode, rows, least=stage.name in ("min_dim", "argmin"), wrong_formula="top = e;")


def _search(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    """The extreme first, then its first index ``n``."""
    _extreme(code, stage, mode, rows)
    code.add("idx n = 0;", uninitialised="idx n;")
    head = f"while (n < {wrapped(rows.length)} - 1 && {stage.source}[{rows.at}] != top) n++;"
    code.add(head, wrong_formula=head.replace("!=", "=="))


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
    with over_rows(code, stage, mode) as rows:
        if stage.name == "cumprod":
            code.add("real sum = 1;", uninitialised="real sum;", wrong_formula="real sum = 0;")
        else:
            zero(code, "sum")
        if mode.rows == "warp":
            _warp_scan(code, stage, *_scanned(stage), rows.length)
            return
        with mode.each(code, rows.length, ""):
            add_scan_step(code, stage, "sum")


def _scanned(stage: Stage) -> tuple[str, str]:
    """The next value of a scan, and where its result lies."""
    rows = rows_of(stage)
    at = rows.at.replace(" n", f" ({rows.length} - 1 - n)", 1) if stage.name == "reverse_cumsum" else rows.at
    value = f"{stage.source}[{at}]"
    return f"({stage.step.second}[{at}] ? {value} : 0)" if stage.name == "masked_cumsum" else value, at


def add_scan_step(code: Code, stage: Stage, total: str) -> None:
    """Element ``n`` of row ``r``: the running ``total`` goes on, and is the result."""
    value, at = _scanned(stage)
    code.add(f"real v = {value};")
    if stage.name == "exclusive_cumsum":
        store(code, stage, total, at, wrong_formula=f"{total} + v")
        code.add(f"{total} += v;")
    else:
        code.add(f"{total} {'*' if stage.name == 'cumprod' else '+'}= v;", wrong_formula=f"{total} = v;")
        store(code, stage, total, at)


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


_TERMS: dict[str, tuple[tuple[str, str], ...]] = {
    "mse_loss": (("real d = e - {t}[{at}];", ""), ("sum += d * d;", "sum += d;")),
    "smooth_l1_loss": (
        ("real d = fabs(e - {t}[{at}]);", "real d = e - {t}[{at}];"),
        ("sum += d < 1 ? d * d / 2 : d - 0.5f;", "sum += d < 1 ? d * d : d - 0.5f;"),
    ),
    "hinge_loss": (("real d = 1 - e * {t}[{at}];", ""), ("sum += d > 0 ? d : 0;", "sum += d;")),
    "hinge_loss_shared": (
        ("real d = 1 - e * {t}[n];", "real d = 1 - e * {t}[r];"),
        ("sum += d > 0 ? d : 0;", "sum += d;"),
    ),
    "kl_div": (("real t = {t}[{at}];", ""), ("sum += t > 0 ? t * (log(t) - log(e)) : 0;", "sum += t * log(e);")),
}
"""By loss what an element ``e`` adds to its row's sum, with what stands there by mistake."""


def is_mean(stage: Stage) -> bool:
    """Whether a stage is a mean over all rows."""
    return stage.kind == "loss" and not stage.step.out_shape


def losses(code: Code, stage: Stage, mode: Mode) -> None:
    """Each row adds its share of the mean to the result, which is set to zero before."""
    with over_rows(code, stage, mode, "+:total") as rows:
        if stage.name == "triplet_loss":
            _triplet(code, stage, mode, rows)
        elif stage.name == "cross_entropy":
            _cross_entropy(code, stage, mode, rows)
        else:
            zero(code, "sum")
            with mode.each(code, rows.length, "+:sum"):
                code.add(f"real e = x[{rows.at}];")
                for line in _TERMS[stage.name]:
                    right, wrong = (text.format(t=stage.step.second, at=rows.at) for text in line)
                    code.add(right, **({"wrong_formula": wrong} if wrong else {}))
            mode.join(code, "sum")
        by_rows = stage.name in ("triplet_loss", "cross_entropy", "kl_div")
        share = f"sum / {wrapped(rows.num) if by_rows else 'x_size'}"
        with mode.first_lane(code):
            if mode.language == "cuda":
                code.add(f"atomicAdd(out, (float)({share}));", missing_barrier=f"out[0] += {share};")
            else:
                code.add(f"total += {share};", wrong_formula=f"total = {share};")


def _triplet(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    zero(code, "near", "far")
    with mode.each(code, rows.length, "+:near,far"):
        code.add(f"real e = x[{rows.at}];")
        for name, other in (("near", stage.step.second), ("far", stage.step.third)):
            code.add(f"{name} += (e - {other}[{rows.at}] + 1e-6f) * (e - {other}[{rows.at}] + 1e-6f);")
    mode.join(code, "near", "far")
    text = f"real sum = sqrt(near) - sqrt(far) + {float(stage.attrs['margin'])}f;"
    code.add(text, wrong_formula=text.replace("sqrt", ""))
    code.add("sum = sum > 0 ? sum : 0;", op_left_out=None)


def _cross_entropy(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    _add_exponentials(code, stage, mode, rows)
    text = f"sum = top + log(sum) - x[o + {stage.step.second}[r]];"
    code.add(text, op_left_out="sum = top + log(sum);", wrong_axis=text.replace("[o + ", "["))


def _add_exponentials(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    """The largest of a row as ``top``, and the sum of what remains to it in the exponent."""
    add_top(code, stage, mode, rows)
    zero(code, "sum")
    with mode.each(code, rows.length, "+:sum"):
        line = f"sum += exp({stage.source}[{rows.at}] - top);"
        code.add(line, wrong_formula=line.replace("exp(", "("))
    mode.join(code, "sum")


def _cosine(code: Code, stage: Stage, mode: Mode, rows: Rows) -> None:
    names = ("sum", "xx", "yy")
    zero(code, *names)
    with mode.each(code, rows.length, f"+:{','.join(names)}"):
        code.add(f"real e = x[{rows.at}], f = {stage.step.second}[{rows.at}];")
        code.add("sum += e * f;", wrong_formula="sum += e + f;")
        code.add("xx += e * e;", op_left_out=None)
        code.add("yy += f * f;")
    mode.join(code, *names)
