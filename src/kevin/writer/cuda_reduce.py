"""Reductions, scans and losses in CUDA."""

from __future__ import annotations

from kevin.writer.code import Code
from kevin.writer.cuda_threads import add_row_start, add_top, add_zeros, each_element, first_lane, join_sums
from kevin.writer.slots import Slots
from kevin.writer.stage import Stage, add_store

NOTHING_WRONG: dict[str, str] = {}


def reduce_rows(code: Code, stage: Stage, slots: Slots) -> None:
    rows, name = stage.rows, stage.step.op.name
    add_row_start(code, stage, slots, rows, output=False)
    if name == "max_dim":
        add_top(code, slots, rows.length, is_result=True)
        value, wrong = "top", NOTHING_WRONG
    else:
        add_zeros(code, slots, "sum")
        with each_element(code, rows.length):
            code.add("sum += p[n];", wrong_formula="sum += p[0];")
        join_sums(code, slots, "sum")
        mean = name in ("mean_dim", "global_avg_pool")
        value, wrong = (f"sum / {rows.length}", {"op_left_out": "sum"}) if mean else ("sum", NOTHING_WRONG)
    with first_lane(code, slots):
        add_store(code, stage, value, index="r", **wrong)


def argmax(code: Code, stage: Stage, slots: Slots) -> None:
    """The row's threads each find their best; lane 0 of a warp collects them by shuffles."""
    rows = stage.rows
    add_row_start(code, stage, slots, rows, output=False)
    code.add("int best = lane;", uninitialised="int best;")
    with each_element(code, rows.length):
        code.add("best = p[n] > p[best] ? n : best;", wrong_formula="best = p[n] < p[best] ? n : best;")
    if slots["rows"] == "warp":
        with code.block("for (int o = 16; o > 0; o /= 2)"):
            code.add("int b = __shfl_xor_sync(0xffffffff, best, o);")
            code.add(
                "bool better = p[b] > p[best] || (p[b] == p[best] && b < best);",
                wrong_formula="bool better = b < best;",
            )
            code.add("best = better ? b : best;")
    with first_lane(code, slots):
        add_store(code, stage, "best", index="r")


def scan(code: Code, stage: Stage, slots: Slots) -> None:
    """A running sum: by one thread, or by a warp in steps of 32 elements."""
    rows, backward = stage.rows, stage.step.op.name == "reverse_cumsum"
    add_row_start(code, stage, slots, rows)
    add_zeros(code, slots, "sum")
    with each_element(code, rows.length):
        at = "N - 1 - n" if backward else "n"
        if slots["rows"] == "warp":
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


_LOSSES = {
    "mse_loss": ("p[n] - s[n]", "d * d", "d"),
    "smooth_l1_loss": ("fabs(p[n] - s[n])", "d < 1 ? d * d / 2 : d - 0.5f", "d < 1 ? d * d : d - 0.5f"),
    "hinge_loss": ("1 - p[n] * s[n]", "d > 0 ? d : 0", "d"),
}


def loss(code: Code, stage: Stage, slots: Slots) -> None:
    """Each row adds its share of the mean to the result, which the launcher has set to zero."""
    rows, name = stage.rows, stage.step.op.name
    add_row_start(code, stage, slots, rows, output=False)
    if name == "cross_entropy":
        add_top(code, slots, rows.length)
        add_zeros(code, slots, "sum")
        with each_element(code, rows.length):
            code.add("sum += exp(p[n] - top);", wrong_formula="sum += p[n] - top;")
        join_sums(code, slots, "sum")
        share = f"(log(sum) + top - p[{stage.step.second}[r]]) / R"
    else:
        code.add(f"const float* s = {stage.step.second} + {rows.start()};")
        term, added, wrong = (t for t in _LOSSES[name])
        add_zeros(code, slots, "sum")
        with each_element(code, rows.length):
            code.add(f"real d = {term};")
            code.add(f"sum += {added};", wrong_formula=f"sum += {wrong};")
        join_sums(code, slots, "sum")
        share = "sum / x_size"
    with first_lane(code, slots):
        code.add(f"atomicAdd(out, (float)({share}));", missing_barrier=f"out[0] += {share};")


def cosine_similarity(code: Code, stage: Stage, slots: Slots) -> None:
    rows = stage.rows
    add_row_start(code, stage, slots, rows, output=False)
    code.add(f"const float* s = {stage.step.second} + {rows.start()};")
    add_zeros(code, slots, "dot", "pp", "ss")
    with each_element(code, rows.length):
        code.add("dot += p[n] * s[n];", wrong_formula="dot += p[n] + s[n];")
        code.add("pp += p[n] * p[n];", op_left_out=None)
        code.add("ss += s[n] * s[n];")
    join_sums(code, slots, "dot", "pp", "ss")
    with first_lane(code, slots):
        add_store(code, stage, "dot / sqrt(pp * ss)", index="r", wrong_formula="dot / (pp * ss)")
