"""CUDA: what kernels begin with, how threads that share a row come together, how kernels are launched."""

from __future__ import annotations

from kevin.writer.kernels.code import Code
from kevin.writer.slots import Slots

BARRIER = "__syncthreads();"


def add_prelude(code: Code, slots: Slots) -> None:
    """What stands before a CUDA kernel: arithmetic and the type of the sums."""
    if slots["math"] == "fast":
        code.add("#define exp __expf")
        code.add("#define log __logf")
    code.add(f"typedef {slots['real']} real;")


def launch_shape(rows: str, num_rows: str) -> str:
    """``<<<...>>>`` of a kernel over rows, by who owns them."""
    grids = {
        "thread": f"({num_rows} + B - 1) / B",
        "warp": f"({num_rows} * 32 + B - 1) / B",
        "split": f"{num_rows} * 64",
    }
    return f"<<<{grids.get(rows, num_rows)}, B, 0, stream>>>"


def add_helper(code: Code, slots: Slots, name: str) -> None:
    """``sum_of`` or ``top_of``: one value per thread to the value of all threads that share a row."""
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
