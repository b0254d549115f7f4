"""Products on tensor cores in float32's accuracy: three TF32 products of the high and low parts of both sides.

Each float is cut into a high part of 11 significant bits and a low part of as many; high times high, high times low and
low times high are added up, and low times low is left out: an error of about 2^-22 of a product (the method of
Markidis et al., 2018). Tensor cores cut sums off in place of rounding them, so that a long one would drift: they add up
eight products at a time, and the threads do the rest (Ootomo and Yokota, 2022). The instruction and the places of its
operands in a warp's registers: PTX ISA, ``mma.m16n8k8`` for ``.tf32``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

from kevin.tasks.operators import along
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.dims import plus, product, wrapped
from kevin.writer.kernels.mode import BARRIER, Mode, unrolled
from kevin.writer.kernels.products import Product, product_of, result
from kevin.writer.kernels.products import ways as other_ways
from kevin.writer.kernels.stages import Stage

THREADS = 128
WIDTH = 128
"""Results along a tile's row."""
DEPTH = 16
"""Products that are added up between two barriers."""


@dataclass(frozen=True)
class Tile:
    """``height`` by 128 results, shared by four warps."""

    height: int
    blocks: int
    """Of a multiprocessor at the same time: what the registers are cut to."""
    row: str
    col: str
    """First row and column of a warp."""
    rows: int
    cols: int
    """Of its results, in fragments of 16 and of 8."""


TILES = {
    "tensor": Tile(128, 2, "t / 64 * 64", "t / 32 % 2 * 64", 4, 8),
    "tensor64": Tile(64, 3, "t / 64 * 32", "t / 32 % 2 * 64", 2, 8),
    "tensor32": Tile(32, 4, "", "t / 32 * 32", 2, 4),
    "tensor_split": Tile(64, 3, "t / 64 * 32", "t / 32 % 2 * 64", 2, 8),
}
"""By value of the slot ``product``."""

_BLOCKS = 264
"""Two on each of the 132 multiprocessors of an H100 or H200: with fewer tiles, several blocks share the sum of one."""
_DEEPEST_PART = 512


def ways(stage: Stage) -> tuple[str, ...]:
    """How a product may be computed in CUDA, the plainest first."""
    plain = other_ways(stage)
    g, m, n, k = by_phases(stage).sizes
    if plain == ("naive",) or m < 16 or n < 64 or k < DEPTH or g > 65535:
        return plain
    if m <= 32:
        return (*plain, "tensor32")
    split = ("tensor_split",) if _parts(stage) > 1 else ()
    return (*plain, *split, "tensor64", *(("tensor",) if m > 64 else ()))


def _parts(stage: Stage) -> int:
    """How many blocks share the sum of a tile of 64 results a column, so that all multiprocessors have work."""
    g, m, n, k = by_phases(stage).sizes
    tiles = g * -(-m // 64) * -(-n // WIDTH)
    return max(1, min(_BLOCKS // tiles, k // _DEEPEST_PART))


def num_parts(stage: Stage, mode: Mode) -> int:
    """Blocks that share a sum; zero where each has its own."""
    return _parts(stage) if mode.slots["product"] == "tensor_split" else 0


def add_helpers(code: Code) -> None:
    """Two instructions that CUDA C++ has no name for, and the two parts of a float.

    The high part is rounded as ``cvt.rna.tf32`` does; of the low part tensor cores read no more bits than a TF32 has.
    """
    code.add("template <int N>")
    with code.block("__device__ void copy(float* to, const float* from, bool inside)"):
        code.add('asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::')
        code.add('  "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "n"(N), "r"(inside ? N : 0));')
    with code.block("__device__ void split(float v, unsigned& high, unsigned& low)"):
        code.add("high = (__float_as_uint(v) + 0x1000) & 0xffffe000;")
        code.add("low = __float_as_uint(v - __uint_as_float(high));", wrong_formula="low = 0;")
    with code.block("__device__ void mma(float* c, const unsigned* a, const unsigned* b)"):
        code.add('asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "')
        code.add('  "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"')
        code.add('  : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])')
        code.add('  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));')


def tensor(code: Code, stage: Stage, mode: Mode) -> None:
    """The kernel: while one pair of tiles is multiplied, the next is on its way into shared memory."""
    of, tile = by_phases(stage), TILES[mode.slots["product"]]
    if of.names:
        code.add(f"constexpr idx {', '.join(f'{name} = {text}' for name, text in of.names)};")
    columns = f"(({of.n} + {WIDTH - 1}) / {WIDTH})"
    left = f"left[2][{DEPTH}][{tile.height + 8}]" if of.left_by_m else f"left[2][{tile.height}][{DEPTH + 4}]"
    right = f"right[2][{WIDTH}][{DEPTH + 4}]" if of.right_by_k else f"right[2][{DEPTH}][{WIDTH + 8}]"
    code.add(f"__shared__ __align__(16) float {left}, {right};")
    code.add(f"int t = threadIdx.x, row = {_sum(tile.row, 't % 32 / 4')}, col = {_sum(tile.col, 't % 32 / 4')};")
    if of.g != "1":
        code.add("idx g = blockIdx.y;")
    text = f"idx m0 = blockIdx.x / {columns} * {tile.height}, n0 = blockIdx.x % {columns} * {WIDTH};"
    code.add(text, wrong_axis=text.replace("m0 = blockIdx.x /", "m0 = blockIdx.x %"))
    sums = f"float sum[{tile.rows}][{tile.cols}][4]"
    code.add(f"{sums} = {{}};", uninitialised=f"{sums};")
    parts, first, last = num_parts(stage, mode), "0", of.k
    if parts:
        first, last = "first", "last"
        depth = -(-of.sizes[3] // parts // DEPTH) * DEPTH
        text = f"idx first = blockIdx.z * {depth}, last = min(first + {depth}, {of.k});"
        code.add(text, wrong_axis=text.replace(f"first + {depth}", "first"))
    head = f"for (idx o = {first}; o < {{}} + {DEPTH}; o += {DEPTH})"
    with code.block(
        head.format(last), undeclared_name=head.format("num"), off_by_one=head.format(last).replace(f" + {DEPTH}", "")
    ):
        code.add(f"int s = o / {DEPTH} % 2;")
        code.add('asm volatile("cp.async.wait_all;" ::: "memory");')
        code.add(BARRIER, missing_barrier=None)
        _copy(code, of, tile, last)
        code.add(f"if (o == {first}) continue;")
        code.add("#pragma unroll 1")
        with code.block(f"for (int k = 0; k < {DEPTH}; k += 8)"):
            _multiply(code, of, tile)
    _store(code, stage, of, tile, "first == 0" if parts else "")


def _sum(first: str, second: str) -> str:
    return f"{first} + {second}" if first else second


def _copy(code: Code, of: Product, tile: Tile, last: str) -> None:
    """The next tile of either side, four floats at once where they lie together; zeros beyond the edges."""
    _, m, n, k = of.sizes
    for side, index, num, edge, extent, along_k, value in (
        ("left", "m", tile.height, of.m, m, not of.left_by_m, of.left),
        ("right", "n", WIDTH, of.n, n, of.right_by_k, of.right),
    ):
        is_left = side == "left"
        together = of.left_together if is_left else of.right_together
        width = 4 if together and (k if along_k else extent) % 4 == 0 else 1
        across = (DEPTH if along_k else num) // width
        step, times = THREADS // across, num * DEPTH // width // THREADS
        first = "u" if step == 1 else f"u * {step} + t / {across}" if times > 1 else f"t / {across}"
        second = ("t" if step == 1 else f"t % {across}") + (f" * {width}" if width > 1 else "")
        with unrolled(code, "u", times, 2) if times > 1 else nullcontext():
            x, y = (first, second) if along_k else (second, first)
            code.add(f"idx {index} = {index}0 + {x}, k = o + {y};")
            inside = [f"{index} < {edge}", f"k < {last}"]
            for place in of.left_place if is_left else of.place:
                code.add(f"idx {place};")
            if more := of.left_inside if is_left else of.inside:
                inside.append(more)
            text = f"copy<{4 * width}>(&{side}[s][{first}][{second}], &{value}, {{}});"
            code.add(text.format(" && ".join(inside)), missing_bounds=text.format("true"))


def _multiply(code: Code, of: Product, tile: Tile) -> None:
    """Eight steps along the sum. The low parts go first: beside the others they would be lost.

    The warp's barrier keeps the compiler from reading all columns ahead, for which there are too few registers.
    """
    rows = tile.rows
    code.add(f"unsigned p[2][{rows}][4], q[2][2];")
    with unrolled(code, "r", 4 * rows):
        x, y = "row + r / 4 * 16 + r % 2 * 8", "k + t % 4 + r % 4 / 2 * 4"
        place = f"[{y}][{x}]" if of.left_by_m else f"[{x}][{y}]"
        code.add(f"split(left[1 - s]{place}, p[0][r / 4][r % 4], p[1][r / 4][r % 4]);")
    with unrolled(code, "j", tile.cols):
        code.add("__syncwarp();")
        x, y = "col + j * 8", "k + t % 4 + r * 4"
        place = f"[{x}][{y}]" if of.right_by_k else f"[{y}][{x}]"
        code.add("#pragma unroll")
        code.add(f"for (int r = 0; r < 2; r++) split(right[1 - s]{place}, q[0][r], q[1][r]);")
        code.add(f"float part[{rows}][4] = {{}};")
        code.add("#pragma unroll")
        text = f"mma(part[e % {rows}], p[e < {rows}][e % {rows}], q[e / {rows} == 1]);"
        head = f"for (int e = 0; e < {3 * rows}; e++)"
        code.add(f"{head} {text}", wrong_formula=f"{head} {text.replace(' == 1', ' == 0')}")
        code.add("#pragma unroll")
        line = f"for (int e = 0; e < {4 * rows}; e++) sum[e / 4][j][e % 4] += part[e / 4][e % 4];"
        code.add(line, wrong_formula=line.replace("+=", "="))


def _store(code: Code, stage: Stage, of: Product, tile: Tile, part: str) -> None:
    each = 4 * tile.cols
    with unrolled(code, "e", tile.rows * each):
        m = f"m0 + row + e / {each} * 16 + e % 4 / 2 * 8"
        n = f"n0 + {_sum(tile.col, f't % 4 * 2 + e / 4 % {tile.cols} * 8 + e % 2')}"
        code.add(f"idx m = {m}, n = {n};")
        for place in of.result_place:
            code.add(f"idx {place};")
        outside = [f"m >= {of.m}", f"n >= {of.n}", *of.outside]
        code.add(f"if ({' || '.join(outside)}) continue;", missing_bounds=None)
        result(code, stage, of, f"sum[e / {each}][e / 4 % {tile.cols}][e % 4]", of.at, part)


def tensor_shape(stage: Stage, mode: Mode) -> str:
    """``<<<...>>>`` of the kernel."""
    of, height = by_phases(stage), TILES[mode.slots["product"]].height
    stands_for = dict(of.names)
    n = " * ".join(f"({stands_for[name]})" if name in stands_for else name for name in of.n.split(" * "))
    tiles = f"({of.m} + {height - 1}) / {height} * (({n} + {WIDTH - 1}) / {WIDTH})"
    if parts := num_parts(stage, mode):
        grid = f"dim3({tiles}, {of.g}, {parts})"
    else:
        grid = f"dim3({tiles}, {of.g})" if of.g != "1" else tiles
    return f"<<<{grid}, {THREADS}, 0, stream>>>"


def bounds(mode: Mode) -> str:
    """What ``__launch_bounds__`` says of the kernel."""
    return f"{THREADS}, {TILES[mode.slots['product']].blocks}"


def by_phases(stage: Stage) -> Product:
    """The stage's product; of a transposed convolution with a stride and no dilation one product a phase and sample.

    Of the results along an axis, those whose places leave the same rest by the stride, a phase, read the same taps of
    the window, one in ``stride``; so each phase is a convolution of its own with a smaller window and stride one, and
    multiplies no zeros.
    """
    if not _has_phases(stage):
        return product_of(stage)
    attrs, x, out = stage.attrs, stage.in_dims, stage.out_dims
    num = len(x.names) - 2
    groups = int(attrs.get("groups", 1))
    windows = [along(attrs, axis) for axis in range(num)]
    strides, kernels = [w.stride for w in windows], [w.kernel for w in windows]
    taps = [-(-kernel // stride) for kernel, stride in zip(kernels, strides, strict=True)]
    phases, volume = prod(strides), prod(taps)
    sample = f"g / {phases}" if groups == 1 else f"g / {phases * groups}"
    group = "" if groups == 1 else f"g / {phases} % {groups} * "
    channels = x.names[1] if groups == 1 else f"({x.names[1]} / {groups})"
    filters = out.names[1] if groups == 1 else f"({out.names[1]} / {groups})"
    channel = "k" if volume == 1 else f"k / {volume}"
    source_channel = f"{group}{channels} + {channel}" if group else channel
    row = f"{group}{filters} + m" if group else "m"
    spread = [
        (letter, f"({plus(name, s - 1)}) / {s}")
        for letter, name, s in zip("DHW"[-num:], out.names[2:], strides, strict=True)
        if s > 1
    ]
    extents = [letter if s > 1 else name for letter, name, s in zip("DHW"[-num:], out.names[2:], strides, strict=True)]
    weight, *bias = stage.step.parameters
    names, left_places, places, spots, inside, left_inside, outside = "abc"[-num:], [], [], [], [], [], []
    for axis, name in enumerate(names):
        stride, padding = windows[axis].stride, windows[axis].padding
        phase = plus(_digit("g", strides, axis), padding) if stride > 1 else ""
        step, spot = _digit("k", taps, axis), _digit("n", extents, axis) or "0"
        tap = f"({phase}) % {stride} + {step} * {stride}" if stride > 1 and step else f"({phase}) % {stride}"
        left_places.append(f"{name} = {tap if stride > 1 else step or '0'}")
        if taps[axis] * stride != kernels[axis]:
            left_inside.append(f"{name} < {kernels[axis]}")
        shift = f"{spot} + ({phase}) / {stride}" if stride > 1 else plus(spot, padding)
        places.append(f"{name} = {shift}" + (f" - {step}" if step else ""))
        inside += [f"{name} >= 0", f"{name} < {x.names[2 + axis]}"]
        spots.append(f"{name} = {spot} * {stride} + {_digit('g', strides, axis)}" if stride > 1 else f"{name} = {spot}")
        if out.sizes[2 + axis] % stride:
            outside.append(f"{name} >= {out.names[2 + axis]}")
    tap = f"({source_channel}) * {filters} + m" if " " in source_channel else f"{source_channel} * {filters} + m"
    for name, kernel in zip(names, kernels, strict=True):
        tap = f"({tap}) * {kernel} + {name}"
    num_places = prod(-(-size // s) for size, s in zip(out.sizes[2:], strides, strict=True))
    return Product(
        product([out.names[0], str(phases * groups)]),
        filters,
        product(extents),
        channels if volume == 1 else f"{channels} * {volume}",
        (out.sizes[0] * groups * phases, out.sizes[1] // groups, num_places, x.sizes[1] // groups * volume),
        f"{weight}[{tap}]",
        f"{stage.source}[{_flat(f'{sample} * {x.names[1]} + {source_channel}', x.names[2:], names)}]",
        f"{bias[0]}[{row}]" if bias else None,
        tuple(places),
        " && ".join(inside),
        left_together=False,
        right_together=False,
        left_place=tuple(left_places),
        left_inside=" && ".join(left_inside) or None,
        result_place=tuple(spots),
        outside=tuple(outside),
        names=tuple(spread),
        at=_flat(f"{sample} * {out.names[1]} + {row}", out.names[2:], names),
    )


def _has_phases(stage: Stage) -> bool:
    if not stage.is_transposed:
        return False
    windows = [along(stage.attrs, axis) for axis in range(len(stage.in_dims.names) - 2)]
    return any(w.stride > 1 for w in windows) and all(w.dilation == 1 for w in windows)


def _digit(number: str, sizes: Sequence[int | str], axis: int) -> str:
    """The index along one axis of a flat one; empty where it can only be zero."""
    if str(sizes[axis]) == "1":
        return ""
    numbers = [s for s in sizes[axis + 1 :] if isinstance(s, int)]
    names = [wrapped(s) for s in sizes[axis + 1 :] if isinstance(s, str)]
    below = product([*names, str(prod(numbers))])
    below = wrapped(below) if len(names) > 1 else below
    text = number if below == "1" else f"{number} / {below}"
    is_first = number == "n" and axis == 0
    return text if is_first else f"{text} % {wrapped(str(sizes[axis]))}"


def _flat(row: str, dims: tuple[str, ...], names: str) -> str:
    for dim, name in zip(dims, names, strict=True):
        row = f"({row}) * {dim} + {name}"
    return row
