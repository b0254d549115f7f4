"""Operators over rows in CUDA: softmax and norms, reductions, scans, losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from kevin.writer import layout
from kevin.writer.code import Code
from kevin.writer.layout import Rows
from kevin.writer.slots import Slots
from kevin.writer.stage import Stage, add_store, math

BARRIER = "__syncthreads();"
Loop = Callable[[], AbstractContextManager[None]]


def launch_shape(slots: Slots, num_rows: str) -> str:
    """``<<<...>>>`` of a kernel over rows."""
    size = slots["block_size"]
    match slots["rows"]:
        case "thread":
            grid = f"({num_rows} + {int(size) - 1}) / {size}"
        case "warp":
            grid = f"({num_rows} * 32 + {int(size) - 1}) / {size}"
        case "split":
            grid = f"{num_rows} * 64"
        case _:
            grid = num_rows
    return f"<<<{grid}, {size}, 0, stream>>>"


def add_helper(code: Code, slots: Slots, name: str) -> None:
    """``sum_of`` or ``top_of``: one value per thread to the value of all threads that share a row."""
    if slots["rows"] == "thread":
        return
    real = slots["real"]
    join = "v += {}" if name == "sum_of" else "v = max(v, {})"
    with code.block(f"__device__ {real} {name}({real} v)"):
        if slots["rows"] == "tree":
            code.add(f"__shared__ {real} s[{slots['block_size']}];")
            code.add("s[threadIdx.x] = v;")
            code.add(BARRIER, missing_barrier=None)
            with code.block("for (int h = blockDim.x / 2; h > 0; h /= 2)"):
                code.add(f"if (threadIdx.x < h) {join.format('s[threadIdx.x + h]')};")
                code.add("s[threadIdx.x] = v;")
                code.add(BARRIER, missing_barrier=None)
            code.add("v = s[0];")
            code.add(BARRIER, missing_barrier=None)
        else:
            shuffle = join.format("__shfl_xor_sync(0xffffffff, v, o)") + ";"
            wrong = shuffle.replace("xor", "down")
            code.add(f"for (int o = 16; o > 0; o /= 2) {shuffle}", wrong_formula=f"for (int o = 8; o > 0; o /= 2) {wrong}")
            if slots["rows"] in ("shuffle", "split"):
                code.add(f"__shared__ {real} s[32];")
                code.add("if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;")
                code.add(BARRIER, missing_barrier=None)
                code.add("v = s[0];")
                with code.block("for (int w = 1; w < blockDim.x / 32; w++)"):
                    code.add(f"{join.format('s[w]')};")
                code.add(BARRIER, missing_barrier=None)
        code.add("return v;")


def add_row_start(code: Code, stage: Stage, slots: Slots, rows: Rows, *, output: bool = True) -> None:
    """Which row and which of its elements are this thread's: ``r``, ``lane`` and ``lanes``; ``p`` and ``q``."""
    code.add("int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;")
    place = {
        "thread": ("i", "0", "1"),
        "warp": ("i / 32", "i % 32", "32"),
        "split": ("blockIdx.x / 64", "i % (64 * blockDim.x)", "64 * blockDim.x"),
    }.get(slots["rows"], ("blockIdx.x", "threadIdx.x", "blockDim.x"))
    code.add(f"int64_t r = {place[0]};")
    code.add(f"int64_t lane = {place[1]}, lanes = {place[2]};")
    if slots["rows"] in ("thread", "warp"):
        code.add(f"if (r >= {rows.num}) return;", missing_bounds=None)
    code.add(f"const float* p = {stage.source} + {rows.start()};")
    if output:
        code.add(f"float* q = {stage.target} + {rows.start()};")


@contextmanager
def each_element(code: Code, length: str) -> Iterator[None]:
    head = "for (int64_t n = lane; n < {}; n += lanes)"
    with code.block(
        head.format(length),
        off_by_one=head.format(f"{length} - 1"),
        undeclared_name=head.format("size"),
    ):
        yield


def _zeros(code: Code, slots: Slots, *names: str) -> None:
    for name in names:
        code.add(f"{slots['real']} {name} = 0;", uninitialised=f"{slots['real']} {name};")


def partial_moments(code: Code, stage: Stage, slots: Slots, rows: Rows) -> None:
    """First of two kernels: 64 blocks a row leave their sums in ``part``."""
    add_row_start(code, stage, slots, rows, output=False)
    _zeros(code, slots, "sum", "sq")
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
    _zeros(code, slots, "sum", "sq")
    with code.block("for (int64_t b = r * 64; b < r * 64 + 64; b++)"):
        code.add("sum += part[2 * b];")
        code.add("sq += part[2 * b + 1];", wrong_formula="sq += part[2 * b];")
    code.add(f"{slots['real']} mean = sum / {count};", wrong_formula=f"{slots['real']} mean = sum;")
    _inverse(code, slots, f"sq / {count} - mean * mean", eps)


def norm_rows(stage: Stage) -> Rows:
    """Rows of a layer, instance or group norm."""
    if stage.step.op.name != "group_norm":
        return stage.rows
    groups = stage.step.op.attrs["groups"]
    return Rows(f"R / C * {groups}", f"C / {groups} * N")


def join_sums(code: Code, slots: Slots, *names: str, how: str = "sum_of") -> None:
    """Every thread's part becomes the value of the whole row."""
    if slots["rows"] != "thread":
        for name in names:
            code.add(f"{name} = {how}({name});", op_left_out=None)


def _top(code: Code, slots: Slots, length: str) -> None:
    code.add(f"{slots['real']} top = p[0];", uninitialised=f"{slots['real']} top;")
    with each_element(code, length):
        code.add("top = p[n] > top ? p[n] : top;", wrong_formula="top = p[n] < top ? p[n] : top;")
    join_sums(code, slots, "top", how="top_of")


def _store_row(code: Code, stage: Stage, slots: Slots, value: str, rows: Rows, **wrong: str) -> None:
    channel = layout.channel(len(stage.step.in_shape))
    with each_element(code, rows.length):
        index = f"{rows.start()} + n"
        add_store(code, stage, slots, value, index=index, channel=channel, place="q[n]", **wrong)


def softmax(code: Code, stage: Stage, slots: Slots) -> None:
    rows, log = stage.rows, stage.step.op.name == "log_softmax"
    add_row_start(code, stage, slots, rows)
    _top(code, slots, rows.length)
    _zeros(code, slots, "sum")
    with each_element(code, rows.length):
        if slots["passes"] == "stored" and not log:
            code.add(math("q[n] = expf(p[n] - top);", slots))
            code.add("sum += q[n];")
        else:
            code.add(math("sum += expf(p[n] - top);", slots), wrong_formula="sum += p[n] - top;")
    join_sums(code, slots, "sum")
    if log:
        code.add(math(f"{slots['real']} shift = logf(sum);", slots))
        _store_row(code, stage, slots, "p[n] - top - shift", rows, wrong_formula="p[n] - top")
    else:
        code.add(f"{slots['real']} scale = 1 / sum;")
        value = "q[n] * scale" if slots["passes"] == "stored" else "expf(p[n] - top) * scale"
        _store_row(code, stage, slots, value, rows)


def _inverse(code: Code, slots: Slots, variance: str, eps: float, unbiased: str | None = None) -> None:
    head = f"{slots['real']} inv = 1 / sqrtf("
    wrong = {"wrong_epsilon": math(f"{head}{variance} + 0.1f);", slots)}
    if unbiased:
        wrong["unbiased_variance"] = math(f"{head}{unbiased} + {eps}f);", slots)
    code.add(math(f"{head}{variance} + {eps}f);", slots), **wrong)


def moments(code: Code, slots: Slots, count: str, eps: float, loop: Loop, element: str) -> None:
    """``mean`` and ``inv`` of all elements that the threads of a row run over."""
    real = slots["real"]
    one_pass = slots["passes"] == "one_pass"
    _zeros(code, slots, "sum", *(("sq",) if one_pass else ()))
    with loop():
        code.add(f"sum += {element};", op_left_out=None)
        if one_pass:
            code.add(f"sq += {element} * {element};")
    join_sums(code, slots, "sum", *(("sq",) if one_pass else ()))
    code.add(f"{real} mean = sum / {count};", wrong_formula=f"{real} mean = sum;")
    if one_pass:
        _inverse(code, slots, f"sq / {count} - mean * mean", eps)
        return
    _zeros(code, slots, "sq")
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
    code.add(f"{slots['real']} scale = inv * {stage.weight}[r];", op_left_out=f"{slots['real']} scale = inv;")
    code.add(f"{slots['real']} shift = {stage.bias}[r] - mean * scale;")
    with each_element(code, rows.length):
        code.add("int64_t e = (n / N * C + r) * N + n % N;", wrong_axis="int64_t e = r * N + n % N;")
        add_store(code, stage, slots, f"{stage.source}[e] * scale + shift", index="e", channel="r")


def length_norm(code: Code, stage: Stage, slots: Slots) -> None:
    rows, rms = stage.rows, stage.step.op.name == "rms_norm"
    add_row_start(code, stage, slots, rows)
    _zeros(code, slots, "sq")
    with each_element(code, rows.length):
        code.add("sq += p[n] * p[n];", wrong_formula="sq += p[n];")
    join_sums(code, slots, "sq")
    inner, wrong = (f"sq / {rows.length} + {stage.step.op.attrs['eps']}f", "sq") if rms else ("sq", "sq + 1")
    multiply = slots["passes"] == "multiply"
    head = f"{slots['real']} inv = 1 / sqrtf(" if multiply else f"{slots['real']} size = sqrtf("
    code.add(math(f"{head}{inner});", slots), wrong_epsilon=math(f"{head}{wrong});", slots))
    _store_row(code, stage, slots, "p[n] * inv" if multiply else "p[n] / size", rows)


@contextmanager
def first_lane(code: Code, slots: Slots) -> Iterator[None]:
    """Only one thread of those that share a row goes on."""
    with nullcontext() if slots["rows"] == "thread" else code.block("if (lane == 0)"):
        yield


def reduce_rows(code: Code, stage: Stage, slots: Slots) -> None:
    rows, name = stage.rows, stage.step.op.name
    add_row_start(code, stage, slots, rows, output=False)
    if name == "max_dim":
        _top(code, slots, rows.length)
        value, wrong = "top", {}
    else:
        _zeros(code, slots, "sum")
        with each_element(code, rows.length):
            code.add("sum += p[n];", wrong_formula="sum += p[0];")
        join_sums(code, slots, "sum")
        mean = name in ("mean_dim", "global_avg_pool")
        value, wrong = (f"sum / {rows.length}", {"op_left_out": "sum"}) if mean else ("sum", {})
    with first_lane(code, slots):
        add_store(
            code, stage, slots, value, index="r", channel=layout.channel_after_reduction(stage.step, "r"), **wrong
        )


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
            code.add("bool better = p[b] > p[best] || (p[b] == p[best] && b < best);", wrong_formula="bool better = b < best;")
            code.add("best = better ? b : best;")
    with first_lane(code, slots):
        add_store(code, stage, slots, "best", index="r")


def scan(code: Code, stage: Stage, slots: Slots) -> None:
    """A running sum: by one thread, or by a warp in steps of 32 elements."""
    rows, backward = stage.rows, stage.step.op.name == "reverse_cumsum"
    real = slots["real"]
    add_row_start(code, stage, slots, rows)
    _zeros(code, slots, "sum")
    with each_element(code, rows.length):
        at = "N - 1 - n" if backward else "n"
        if slots["rows"] == "warp":
            code.add(f"{real} v = p[{at}];")
            with code.block("for (int o = 1; o < 32; o *= 2)"):
                code.add(f"{real} u = __shfl_up_sync(0xffffffff, v, o);")
                code.add("if (lane >= o) v += u;", missing_bounds="v += u;")
            code.add("v += sum;", op_left_out=None)
            code.add("sum = __shfl_sync(0xffffffff, v, 31);")
            code.add(f"q[{at}] = v;", missing_semicolon=f"q[{at}] = v")
        else:
            code.add(f"sum += p[{at}];")
            code.add(f"q[{at}] = sum;", missing_semicolon=f"q[{at}] = sum", wrong_axis="q[0] = sum;")


_LOSSES = {
    "mse_loss": ("p[n] - s[n]", "d * d", "d"),
    "smooth_l1_loss": ("fabsf(p[n] - s[n])", "d < 1 ? d * d / 2 : d - 0.5f", "d < 1 ? d * d : d - 0.5f"),
    "hinge_loss": ("1 - p[n] * s[n]", "d > 0 ? d : 0", "d"),
}


def loss(code: Code, stage: Stage, slots: Slots) -> None:
    """Each row adds its share of the mean to the result, which the launcher has set to zero."""
    rows, name = stage.rows, stage.step.op.name
    add_row_start(code, stage, slots, rows, output=False)
    if name == "cross_entropy":
        _top(code, slots, rows.length)
        _zeros(code, slots, "sum")
        with each_element(code, rows.length):
            code.add(math("sum += expf(p[n] - top);", slots), wrong_formula="sum += p[n] - top;")
        join_sums(code, slots, "sum")
        share = f"(logf(sum) + top - p[{stage.step.second}[r]]) / R"
    else:
        code.add(f"const float* s = {stage.step.second} + {rows.start()};")
        term, added, wrong = (math(t, slots) for t in _LOSSES[name])
        _zeros(code, slots, "sum")
        with each_element(code, rows.length):
            code.add(f"{slots['real']} d = {term};")
            code.add(f"sum += {added};", wrong_formula=f"sum += {wrong};")
        join_sums(code, slots, "sum")
        share = "sum / x_size"
    with first_lane(code, slots):
        share = math(share, slots)
        cast = f"(float)({share})" if slots["real"] == "double" else share
        code.add(f"atomicAdd(out, {cast});", missing_barrier=f"out[0] += {cast};")


def cosine_similarity(code: Code, stage: Stage, slots: Slots) -> None:
    rows = stage.rows
    add_row_start(code, stage, slots, rows, output=False)
    code.add(f"const float* s = {stage.step.second} + {rows.start()};")
    _zeros(code, slots, "dot", "pp", "ss")
    with each_element(code, rows.length):
        code.add("dot += p[n] * s[n];", wrong_formula="dot += p[n] + s[n];")
        code.add("pp += p[n] * p[n];", op_left_out=None)
        code.add("ss += s[n] * s[n];")
    join_sums(code, slots, "dot", "pp", "ss")
    with first_lane(code, slots):
        add_store(code, stage, slots, "dot / sqrtf(pp * ss)", index="r", wrong_formula="dot / (pp * ss)")
