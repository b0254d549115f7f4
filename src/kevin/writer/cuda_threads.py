"""How CUDA threads share rows: who reads what, how their parts come together, how kernels are launched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from kevin.writer.code import Code
from kevin.writer.layout import Rows
from kevin.writer.slots import Slots
from kevin.writer.stage import Stage

BARRIER = "__syncthreads();"


def launch_shape(slots: Slots, num_rows: str) -> str:
    """``<<<...>>>`` of a kernel over rows."""
    grids = {
        "thread": f"({num_rows} + B - 1) / B",
        "warp": f"({num_rows} * 32 + B - 1) / B",
        "split": f"{num_rows} * 64",
    }
    return f"<<<{grids.get(slots['rows'], num_rows)}, B, 0, stream>>>"


def add_helper(code: Code, slots: Slots, name: str) -> None:
    """``sum_of`` or ``top_of``: one value per thread to the value of all threads that share a row."""
    if slots["rows"] == "thread":
        return
    join = "v += {}" if name == "sum_of" else "v = max(v, {})"
    with code.block(f"__device__ real {name}(real v)"):
        if slots["rows"] == "tree":
            code.add("__shared__ real s[B];")
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
            code.add(
                f"for (int o = 16; o > 0; o /= 2) {shuffle}", wrong_formula=f"for (int o = 8; o > 0; o /= 2) {wrong}"
            )
            if slots["rows"] in ("shuffle", "split"):
                code.add("__shared__ real s[32];")
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
        undeclared_name=head.format("num"),
    ):
        yield


def add_zeros(code: Code, slots: Slots, *names: str) -> None:
    for name in names:
        code.add(f"real {name} = 0;", uninitialised=f"real {name};")


def join_sums(code: Code, slots: Slots, *names: str, how: str = "sum_of") -> None:
    """Every thread's part becomes the value of the whole row."""
    if slots["rows"] != "thread":
        for name in names:
            code.add(f"{name} = {how}({name});", op_left_out=None)


@contextmanager
def first_lane(code: Code, slots: Slots) -> Iterator[None]:
    """Only one thread of those that share a row goes on."""
    with nullcontext() if slots["rows"] == "thread" else code.block("if (lane == 0)"):
        yield


def add_top(code: Code, slots: Slots, length: str, *, is_result: bool = False) -> None:
    """The largest of a row. Where it only keeps exponentials small (not ``is_result``), any other value would do."""
    code.add("real top = p[0];", uninitialised="real top;")
    with each_element(code, length):
        wrong = {"wrong_formula": "top = p[n] < top ? p[n] : top;"} if is_result else {}
        code.add("top = p[n] > top ? p[n] : top;", **wrong)
    join_sums(code, slots, "top", how="top_of")
