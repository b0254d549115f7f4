"""Products in tiles: 16 by 16 threads share what they read of either side in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from kevin.writer.code import Code
from kevin.writer.cuda_threads import BARRIER
from kevin.writer.general.mode import Mode, zero
from kevin.writer.general.products import Product, product_of, result
from kevin.writer.general.stages import Stage

TILES = {"tile": 16, "register": 64, "wide": 128}
"""By value of the slot: results along a side of a tile; 16 by 16 threads share it."""


def _reads(code: Code, of: Product) -> None:
    """Functions that read one element of either side; zero beyond the edges."""
    code.add(f"auto left = [=](idx m, idx k) -> float {{ return m < {of.m} && k < {of.k} ? {of.left} : 0; }};")
    code.add("auto right = [=](idx k, idx n) -> float {")
    with code.indented():
        edge = f"if (k >= {of.k} || n >= {of.n}) return 0;"
        code.add(edge, missing_bounds=None)
        for place in of.place:
            code.add(f"idx {place};")
        if of.inside:
            code.add(f"return {of.inside} ? {of.right} : 0;", missing_bounds=f"return {of.right};")
        else:
            code.add(f"return {of.right};")
    code.add("};")


def tiled(code: Code, stage: Stage, mode: Mode) -> None:
    """Tiles of 16, 64 or 128 results a side: one a thread, four by four or eight by eight."""
    of, side = product_of(stage), TILES[mode.slots["product"]]
    own = side // 16
    columns = f"(({of.n} + {side - 1}) / {side})"
    code.add(
        "__shared__ float4 a[16][33], b[16][33];" if own == 8 else f"__shared__ float a[{side}][17], b[16][{side + 1}];"
    )
    code.add("int ty = threadIdx.y, tx = threadIdx.x;")
    if of.g != "1":
        code.add("idx g = blockIdx.y;")
    right = f"idx m0 = blockIdx.x / {columns} * {side}, n0 = blockIdx.x % {columns} * {side};"
    code.add(right, wrong_axis=right.replace("m0 = blockIdx.x /", "m0 = blockIdx.x %"))
    _reads(code, of)
    if own > 1:
        code.add(f"real sum[{own}][{own}] = {{}};", uninitialised=f"real sum[{own}][{own}];")
    else:
        zero(code, "sum")
    with code.block(f"for (idx o = 0; o < {of.k}; o += 16)", undeclared_name="for (idx o = 0; o < num; o += 16)"):
        _load(code, of, own)
        code.add(BARRIER, missing_barrier=None)
        _multiply(code, own)
        code.add(BARRIER, missing_barrier=None)
    _store(code, stage, of, own)


def _store(code: Code, stage: Stage, of: Product, own: int) -> None:
    if own == 1:
        code.add("idx m = m0 + ty, n = n0 + tx;")
        code.add(f"if (m >= {of.m} || n >= {of.n}) return;", missing_bounds=None)
        result(code, stage, of, "sum")
        return
    with _unrolled(code, "u", own), _unrolled(code, "v", own):
        if own == 8:
            code.add("idx m = m0 + u / 4 * 64 + ty * 4 + u % 4, n = n0 + v / 4 * 64 + tx * 4 + v % 4;")
        else:
            code.add("idx m = m0 + u * 16 + ty, n = n0 + v * 16 + tx;")
        code.add(f"if (m >= {of.m} || n >= {of.n}) continue;", missing_bounds=None)
        result(code, stage, of, "sum[u][v]")


def _load(code: Code, of: Product, own: int) -> None:
    """Both tiles, so that neighbouring threads read neighbours in memory. Those of 128 lie by columns, in fours."""
    step = "u * 16 + " if own > 1 else ""
    m, k = ("tx", "ty") if of.left_by_m else ("ty", "tx")
    place = f"((float*)a[{k}])[{step}{m}]" if own == 8 else f"a[{step}{m}][{k}]"
    lines = [f"{place} = left(m0 + {step}{m}, o + {k});"]
    k, n = ("tx", "ty") if of.right_by_k else ("ty", "tx")
    place = f"((float*)b[{k}])[{step}{n}]" if own == 8 else f"b[{k}][{step}{n}]"
    lines.append(f"{place} = right(o + {k}, n0 + {step}{n});")
    with code.block(f"for (int u = 0; u < {own}; u++)") if own > 1 else nullcontext():
        for line in lines:
            code.add(line)


def _multiply(code: Code, own: int) -> None:
    with code.block("for (int k = 0; k < 16; k++)"):
        if own == 1:
            code.add("sum += a[ty][k] * b[k][tx];", wrong_formula="sum += a[ty][k] * b[tx][k];")
            return
        left, right = "a[u * 16 + ty][k]", "b[k][v * 16 + tx]"
        if own == 8:
            left, right = "p[u]", "q[v]"
            code.add("alignas(16) float p[8], q[8];")
            for half, place in enumerate(("", "16 + ")):
                code.add(f"((float4*)p)[{half}] = a[k][{place}ty];")
                code.add(f"((float4*)q)[{half}] = b[k][{place}tx];")
        with _unrolled(code, "u", own), _unrolled(code, "v", own):
            line = f"sum[u][v] += {left} * {right};"
            code.add(line, wrong_formula=line.replace(f"{left} *", f"{left} +"))


@contextmanager
def _unrolled(code: Code, var: str, num: int) -> Iterator[None]:
    """A loop over a thread's own results, unrolled: else they would not stay in registers."""
    code.add("#pragma unroll")
    with code.block(f"for (int {var} = 0; {var} < {num}; {var}++)"):
        yield


def tiles_shape(stage: Stage, mode: Mode) -> str:
    """``<<<...>>>`` of a kernel in tiles."""
    of, side = product_of(stage), TILES[mode.slots["product"]]
    tiles = f"({of.m} + {side - 1}) / {side} * (({of.n} + {side - 1}) / {side})"
    grid = f"dim3({tiles}, {of.g})" if of.g != "1" else tiles
    return f"<<<{grid}, dim3(16, 16), 0, stream>>>"
