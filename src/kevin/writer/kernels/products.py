"""Matrix products and convolutions as products: a thread per result, or tiles in shared memory."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

from kevin.tasks.operators import along
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.dims import product, read_at, wrapped
from kevin.writer.kernels.mode import BARRIER, Mode, loop, store, unrolled, zero
from kevin.writer.kernels.stages import Stage

TRIANGLES = {"matmul_upper_triangular": "n < m", "matmul_lower_triangular": "n > m"}
"""Where the result is zero."""

MOST_WORK_FOR_THREADS = 1 << 30
"""Multiplications up to which a thread a result is a way; beyond, it takes a hundred times as long as a library."""


@dataclass(frozen=True)
class Product:
    """``out[g][m][n]`` is the sum over k of left(g, m, k) times right(g, k, n)."""

    g: str
    m: str
    n: str
    k: str
    sizes: tuple[int, int, int, int]
    """Of g, m, n and k."""
    left: str
    right: str
    """Expressions in g, m, n and k; ``right`` may use what ``place`` declares."""
    bias: str | None
    place: tuple[str, ...] = ()
    """Statements that say where ``right`` lies in the input, for element (k, n)."""
    inside: str | None = None
    """Condition under which it lies inside."""
    left_by_m: bool = False
    """Neighbours in memory differ in m, not in k."""
    right_by_k: bool = False
    """Neighbours in memory differ in k, not in n."""
    left_together: bool = True
    """Neighbours in that direction are neighbours in memory."""
    right_together: bool = True
    left_place: tuple[str, ...] = ()
    left_inside: str | None = None
    result_place: tuple[str, ...] = ()
    """Statements that say where result (g, m, n) lies; then ``at`` is its index."""
    outside: tuple[str, ...] = ()
    """Conditions under which there is no such result."""
    at: str = ""
    names: tuple[tuple[str, str], ...] = ()
    """Sizes of which ``n`` is made that have a name inside the kernel alone, and what they stand for."""


def is_window(stage: Stage) -> bool:
    return "conv" in stage.name


def product_of(stage: Stage) -> Product:
    return _conv(stage) if is_window(stage) else _matrix(stage)


def _matrix(stage: Stage) -> Product:
    main, x, out, source = stage.step, stage.in_dims, stage.out_dims, stage.source
    b, bias = main.second or "", None
    rows, cols, inner = product(out.names[:-1]), out.names[-1], x.names[-1]
    sizes = (1, prod(out.sizes[:-1]), out.sizes[-1], x.sizes[-1])
    batch = "1"
    left, right = f"{source}[m * {inner} + k]", f"{b}[k * {cols} + n]"
    match stage.name:
        case "linear" | "matmul_weight":
            right = f"{main.parameters[0]}[n * {inner} + k]"
            bias = f"{main.parameters[1]}[n]" if len(main.parameters) > 1 else None
        case "matmul_transposed_b":
            right = f"{b}[n * {inner} + k]"
        case "matmul_transposed_a" | "matmul_transposed":
            inner, sizes = x.names[0], (*sizes[:3], x.sizes[0])
            left = f"{source}[k * {rows} + m]"
            if stage.name == "matmul_transposed":
                right = f"{b}[n * {inner} + k]"
        case "matmul_batched" | "attention_scores" | "attention_values":
            batch, rows = product(out.names[:-2]), out.names[-2]
            sizes = (prod(out.sizes[:-2]), out.sizes[-2], out.sizes[-1], x.sizes[-1])
            left = f"{source}[(g * {rows} + m) * {inner} + k]"
            turned_right = f"{b}[(g * {rows} + n) * {inner} + k]"
            right = turned_right if stage.name == "attention_scores" else f"{b}[(g * {inner} + k) * {cols} + n]"
        case "matvec":
            rows, cols, sizes = out.names[0], "1", (1, out.sizes[0], 1, x.sizes[-1])
            right = f"{b}[k]"
    turned = stage.name in ("matmul_transposed_a", "matmul_transposed")
    by_k = right.endswith("[k]") or f"n * {inner}" in right or "+ n) *" in right
    return Product(batch, rows, cols, inner, sizes, left, right, bias, left_by_m=turned, right_by_k=by_k)


def _conv(stage: Stage) -> Product:
    """Channels by places; the inner dimension runs over input channels and the window."""
    attrs, x, out = stage.attrs, stage.in_dims, stage.out_dims
    groups = int(attrs.get("groups", 1))
    axes = len(x.names) - 2
    kernels = [along(attrs, axis).kernel for axis in range(axes)]
    volume = prod(kernels)
    channels = x.names[1] if groups == 1 else f"({x.names[1]} / {groups})"
    filters = out.names[1] if groups == 1 else f"({out.names[1]} / {groups})"
    weight, *bias = stage.step.parameters
    group, batch = ("", "g") if groups == 1 else (f"g % {groups}", f"g / {groups}")
    inner = channels if volume == 1 else f"{channels} * {volume}"
    channel = "k" if volume == 1 else f"k / {volume}"
    row = f"{group} * {filters} + m" if group else "m"
    source_channel = f"{group} * {channels} + {channel}" if group else channel
    left = f"{weight}[({row}) * {wrapped(inner)} + k]" if group else f"{weight}[m * {wrapped(inner)} + k]"
    if stage.is_transposed:
        tap = "" if volume == 1 else f" * {volume} + k % {volume}"
        left = f"{weight}[(({source_channel}) * {filters} + m){tap}]"
    places, inside, names = [], [], []
    for axis in range(axes):
        text, conditions, name = _along(stage, axis, axes, kernels)
        places.append(text)
        inside += conditions
        names.append(name)
    transposed = stage.is_transposed
    together = volume == 1 and not transposed and x.sizes[2:] == out.sizes[2:] and not inside
    at = f"{batch} * {x.names[1]} + {source_channel}"
    if together:
        places, at = [], f"({at}) * {wrapped(product(x.names[2:]))} + n"
    else:
        for size, name in zip(x.names[2:], names, strict=True):
            at = f"({at}) * {size} + {name}"
    num = out.names[0] if groups == 1 else f"{out.names[0]} * {groups}"
    sizes = (out.sizes[0] * groups, out.sizes[1] // groups, prod(out.sizes[2:]), x.sizes[1] // groups * volume)
    return Product(
        num,
        filters,
        product(out.names[2:]),
        inner,
        sizes,
        left,
        f"{stage.source}[{at}]",
        f"{bias[0]}[{row}]" if bias else None,
        tuple(places),
        " && ".join(inside) or None,
        left_together=not transposed,
        right_together=together,
    )


def _along(stage: Stage, axis: int, axes: int, kernels: list[int]) -> tuple[str, list[str], str]:
    """Where element (k, n) lies along one axis: a statement, conditions, and the place."""
    _, stride, padding, *_ = along(stage.attrs, axis)
    name, size = "abc"[-axes:][axis], stage.in_dims.names[2 + axis]
    out = stage.out_dims.part(2).coordinate(axis, "n")
    below = prod(kernels[axis + 1 :])
    tap = "k" if below == 1 else f"k / {below}"
    text = read_at(stage.step, axis, out, f"{tap} % {kernels[axis]}")
    if stage.is_transposed:
        conditions = [f"{name} >= 0", *([f"{name} % {stride} == 0"] if stride > 1 else [])]
        place = name if stride == 1 else f"{name} / {stride}"
        return f"{name} = {text}", [*conditions, f"{place} < {size}"], place
    conditions = [f"{name} >= 0", f"{name} < {size}"] if padding else []
    return f"{name} = {text}", conditions, name


def result(code: Code, stage: Stage, of: Product, value: str, index: str = "", part: str = "") -> None:
    """Store the sum of result (g, m, n), which lies at ``index``.

    ``part``: a condition that holds for one of those who each add a part of the sum to the result.
    """
    if not index:
        index = f"(g * {of.m} + m) * {wrapped(of.n)} + n" if of.g != "1" else f"m * {wrapped(of.n)} + n"
    wrong = {}
    if of.bias:
        bias = f"({part} ? {of.bias} : 0)" if part else of.bias
        value, wrong = f"{value} + {bias}", {"op_left_out": value}
    if stage.name == "attention_scores":
        value, wrong = f"{value} / sqrt((real){stage.in_dims.names[-1]})", {"op_left_out": value}
    if mask := TRIANGLES.get(stage.name):
        value, wrong = f"({mask} ? 0 : {value})", {"op_left_out": value}
    if stage.uses_index and index != "i":
        code.add(f"idx i = {index};")
        index = "i"
    if part:
        text = f"atomicAdd(&{stage.target}[{index}], {value});"
        code.add(text, missing_barrier=f"{stage.target}[{index}] += {value};")
        return
    store(code, stage, value, index, **wrong)


def naive(code: Code, stage: Stage, mode: Mode) -> None:
    """One result after the other, or a thread each."""
    of = product_of(stage)
    with mode.results(code, stage.out_dims.total):
        if of.n == "1":
            code.add("idx m = i, n = 0;")
        elif of.g == "1":
            n = wrapped(of.n)
            code.add(
                f"idx m = i / {n}, n = i % {n};", wrong_axis=f"idx m = i % {wrapped(of.m)}, n = i / {wrapped(of.m)};"
            )
        else:
            n, rows = wrapped(of.n), wrapped(product([of.m, of.n]))
            text = f"idx g = i / {rows}, m = i / {n} % {of.m}, n = i % {n};"
            code.add(text, wrong_axis=text.replace(f"i / {n} %", "i %"))
        zero(code, "sum")
        with loop(code, "k", of.k, mode.inner("+:sum")):
            line = f"sum += {of.left} * {of.right};"
            code.add(line, wrong_formula=line.replace(" * " + of.right, " + " + of.right))
        result(code, stage, of, "sum", "i")


def ways(stage: Stage) -> tuple[str, ...]:
    """How a product may be computed: in tiles where they are worth their while and the grid can hold them, and in no
    other way where it is large.
    """
    g, m, n, k = product_of(stage).sizes
    if stage.name == "depthwise_conv2d" or min(m, n) < 8 or g > 65535:
        return ("naive",)
    in_tiles = ("tile", "register", *(("wide",) if min(m, n) >= 64 else ()))
    return in_tiles if g * m * n * k > MOST_WORK_FOR_THREADS else ("naive", *in_tiles)


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
    with unrolled(code, "u", own), unrolled(code, "v", own):
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
        with unrolled(code, "u", own), unrolled(code, "v", own):
            line = f"sum[u][v] += {left} * {right};"
            code.add(line, wrong_formula=line.replace(f"{left} *", f"{left} +"))


def tiles_shape(stage: Stage, mode: Mode) -> str:
    """``<<<...>>>`` of a kernel in tiles."""
    of, side = product_of(stage), TILES[mode.slots["product"]]
    tiles = f"({of.m} + {side - 1}) / {side} * (({of.n} + {side - 1}) / {side})"
    grid = f"dim3({tiles}, {of.g})" if of.g != "1" else tiles
    return f"<<<{grid}, dim3(16, 16), 0, stream>>>"
