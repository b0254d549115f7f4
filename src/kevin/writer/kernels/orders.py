"""C++: orders of loops in which numbers that were read once are used again."""

from __future__ import annotations

from contextlib import nullcontext

from kevin.writer.kernels import windows
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.dims import Dims, reduced_dims_of, wrapped
from kevin.writer.kernels.mode import Mode, loop, store
from kevin.writer.kernels.norms import add_start
from kevin.writer.kernels.products import Product, product_of, result
from kevin.writer.kernels.reduces import add_scan_step
from kevin.writer.kernels.rows import rows_of
from kevin.writer.kernels.stages import Stage
from kevin.writer.slots import parallel, simd

ORDERED = ("rows4", "rows8", "axpy", "tile", "sweep", "lanes")
"""Orders that are written here; a window's lines and what is plain stand where the loops do."""


def orders(stage: Stage) -> tuple[str, ...]:
    """How a stage's loops may be ordered, the plainest first; nothing where there is no choice."""
    if _can_be_swept(stage):
        return ("columns", "sweep")
    if stage.kind == "scan" and stage.name != "cumprod":
        rows = rows_of(stage)
        return ("running",) if rows.apart or stage.in_dims.num // rows.num_elements % 8 else ("running", "lanes")
    if stage.name in ("argmax", "argmin"):
        return ("first", "search")
    if stage.kind not in ("contract", "pool") or stage.name == "matmul_diagonal":
        return ()
    if stage.kind == "pool" or stage.name == "depthwise_conv2d":
        return windows.orders(stage)
    of = product_of(stage)
    _, m, n, _ = of.sizes
    if of.place:
        return windows.orders(stage)
    if of.left_by_m:
        return ("dot",)
    if of.right_by_k or n == 1:
        return ("dot", *(order for order, num in (("rows4", 4), ("rows8", 8)) if m % num == 0))
    axpy = ("axpy",) if n <= windows.LONGEST_LINE else ()
    return ("dot", *axpy, *(("tile",) if m % 8 == 0 and n % 32 == 0 else ()))


def ordered(code: Code, stage: Stage, mode: Mode) -> None:
    """A stage in one of these orders."""
    match mode.slots["order"]:
        case "sweep":
            _sweep(code, stage)
        case "lanes":
            _lanes(code, stage)
        case order:
            _product(code, stage, order)


def _product(code: Code, stage: Stage, order: str) -> None:
    of = product_of(stage)
    with loop(code, "g", of.g, parallel()) if of.g != "1" else nullcontext():
        outer = parallel() if of.g == "1" else None
        if order == "axpy":
            _rows_of_right(code, stage, of, outer)
        elif order == "tile":
            _tiles(code, stage, of, outer)
        else:
            _some_rows(code, stage, of, int(order.removeprefix("rows")), outer)


def _add_product(code: Code, of: Product, place: str) -> None:
    line = f"sum{place} += {of.left} * {of.right};"
    code.add(line, wrong_formula=line.replace(" * " + of.right, " + " + of.right))


def _add_sums(code: Code, size: str) -> None:
    code.add(f"real sum{size} = {{}};", uninitialised=f"real sum{size};")


def _some_rows(code: Code, stage: Stage, of: Product, num: int, outer: str | None) -> None:
    """Dot products of several rows with one column, which is then read once for all of them."""
    columns = loop(code, "n", of.n) if of.n != "1" else nullcontext()
    with loop(code, "m0", of.m, outer, step=num), columns:
        _add_sums(code, f"[{num}]")
        with loop(code, "k", of.k, simd("+:sum")), loop(code, "u", str(num)):
            code.add("idx m = m0 + u;")
            _add_product(code, of, "[u]")
        with loop(code, "u", str(num)):
            code.add("idx m = m0 + u;")
            result(code, stage, of, "sum[u]", "m" if of.n == "1" else "")


def _rows_of_right(code: Code, stage: Stage, of: Product, outer: str | None) -> None:
    """Rows of the right side, scaled, are added up in a row of sums."""
    with loop(code, "m", of.m, outer):
        _add_sums(code, f"[{of.n}]")
        with loop(code, "k", of.k), loop(code, "n", of.n, simd()):
            _add_product(code, of, "[n]")
        with loop(code, "n", of.n, simd()):
            result(code, stage, of, "sum[n]")


def _tiles(code: Code, stage: Stage, of: Product, outer: str | None) -> None:
    """Blocks of 8 x 32 results that stay in vector registers."""
    place = "idx m = m0 + u, n = n0 + v;"
    with loop(code, "m0", of.m, outer, step=8), loop(code, "n0", of.n, step=32):
        _add_sums(code, "[8][32]")
        with loop(code, "k", of.k), loop(code, "u", "8"), loop(code, "v", "32", simd()):
            code.add(place, wrong_axis="idx m = m0 + u, n = m0 + v;")
            _add_product(code, of, "[u][v]")
        with loop(code, "u", "8"), loop(code, "v", "32", simd()):
            code.add(place)
            result(code, stage, of, "sum[u][v]")


def _lanes(code: Code, stage: Stage) -> None:
    """A running sum of eight rows side by side."""
    rows = rows_of(stage)
    with loop(code, "m0", rows.num, parallel(), step=8):
        _add_sums(code, "[8]")
        with loop(code, "n", rows.length), loop(code, "u", "8", simd()):
            code.add("idx r = m0 + u;")
            add_start(code, rows)
            add_scan_step(code, stage, "sum[u]")


def _can_be_swept(stage: Stage) -> bool:
    """Whether a stage adds up, or compares, rows that lie side by side."""
    if stage.name not in ("sum_dim", "mean_dim", "max_dim", "min_dim"):
        return False
    return rows_of(stage).apart and _swept(stage)[2].num <= windows.LONGEST_LINE


def _swept(stage: Stage) -> tuple[Dims, Dims, Dims]:
    """Dimensions before the reduced ones, the reduced ones, and those after."""
    dims, (first, num) = stage.in_dims, reduced_dims_of(stage.step)
    return dims.part(0, first), dims.part(first, first + num), dims.part(first + num)


def _sweep(code: Code, stage: Stage) -> None:
    """A reduction of rows that lie side by side: all of them step by step, in memory's order."""
    before, reduced, after = _swept(stage)
    length, inner = wrapped(reduced.total), wrapped(after.total)
    sums = windows.Sums("acc", after.total)
    sign = {"max_dim": ">", "min_dim": "<"}.get(stage.name)
    with loop(code, "i", before.total, parallel()):
        sums.begin(code, {">": "-3e38f", "<": "3e38f"}.get(sign or "", "0"))
        with loop(code, "n", reduced.total), sums.each(code):
            text = f"real e = {stage.source}[{{}}];"
            right, wrong = f"(i * {length} + n) * {inner} + q", f"(i * {inner} + q) * {length} + n"
            code.add(text.format(right), wrong_axis=text.format(wrong))
            added = f"acc[q] = e {sign} acc[q] ? e : acc[q];" if sign else "acc[q] += e;"
            code.add(added, wrong_formula="acc[q] = e;")
        with sums.each(code):
            if stage.name == "mean_dim":
                store(code, stage, f"acc[q] / {length}", sums.index, op_left_out="acc[q]")
            else:
                store(code, stage, "acc[q]", sums.index)
