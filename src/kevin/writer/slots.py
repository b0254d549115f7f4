"""What a kernel writer can decide, the sentence for each decision in a chain of thought, and what C++ makes of some."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kevin.writer.kernels.code import Code

Slots = Mapping[str, str]

CARE = {"careful": "I write it down with care.", "quick": "I write it down quickly."}
"""Not a slot of the code: how likely the kernel holds a mistake. See `kevin.writer.plan.Habits`."""

SENTENCES: dict[str, dict[str, str]] = {
    "math": {"strict": "Math stays strict.", "fast": "Math is relaxed."},
    "loop": {"plain": "Inner loops are plain.", "simd": "Inner loops are simd.", "unroll": "Inner loops are unrolled."},
    "threads": {"one": "One thread does it all.", "openmp": "OpenMP shares the rows."},
    "real": {"float": "Numbers are float.", "double": "Numbers are double."},
    "fusion": {
        "store": "Further operators go into the store.",
        "pass": "Further operators share a pass.",
    },
    "order": {
        "dot": "One dot product at a time.",
        "rows4": "Four rows at a time.",
        "rows8": "Eight rows at a time.",
        "axpy": "Rows of b are added up in memory.",
        "tile": "Tiles of eight rows stay in registers.",
        "window": "One window at a time.",
        "line": "A line of outputs at a time.",
        "columns": "One column at a time.",
        "sweep": "Whole rows are swept into the result.",
        "running": "One row at a time.",
        "lanes": "Eight rows run side by side.",
        "first": "Compare values as they come.",
        "search": "Find the top, then look for it.",
    },
    "passes": {
        "three": "Top, sum and result in three passes.",
        "stored": "Exponentials are stored and scaled.",
        "two_pass": "Mean first, then the variance.",
        "one_pass": "Sum and squares in one pass.",
    },
}
"""By slot and value. CUDA's own slots follow."""

SENTENCES |= {
    "block_size": {
        "64": "Blocks of 64 threads.",
        "128": "Blocks of 128 threads.",
        "256": "Blocks of 256 threads.",
        "512": "Blocks of 512 threads.",
    },
    "rows": {
        "thread": "One thread owns a row.",
        "tree": "A block owns a row, with a tree in shared memory.",
        "shuffle": "A block owns a row, with warp shuffles.",
        "warp": "A warp owns a row.",
        "split": "64 blocks share a row.",
    },
    "grid": {"one": "One element per thread.", "stride": "A grid-stride loop.", "vector": "Vectors of four floats."},
    "product": {
        "naive": "One thread per result.",
        "tile": "Tiles of 16 in shared memory.",
        "register": "Tiles of 64, four by four in registers.",
        "wide": "Tiles of 128, eight by eight in registers.",
        "tensor": "Tiles of 128 by 128 on tensor cores, three TF32 products each.",
        "tensor64": "Tiles of 64 by 128 on tensor cores, three TF32 products each.",
        "tensor32": "Tiles of 32 by 128 on tensor cores, three TF32 products each.",
        "tensor_split": "Tiles on tensor cores, three TF32 products each; blocks share a sum.",
    },
}


def simd(reduction: str | None = None) -> str:
    """What stands before an innermost loop in C++: a macro that the prelude defines."""
    return f"INNER(reduction({reduction}))" if reduction else "INNER()"


def parallel(reduction: str | None = None) -> str:
    """What stands before an outermost loop in C++."""
    return f"OUTER(reduction({reduction}))" if reduction else "OUTER()"


_MATH_CALL = re.compile(r"\b(exp|tanh|erf|log1p|log|expm1|fabs|sqrt)\(")
_INNER = {"plain": "", "simd": " PRAGMA(omp simd __VA_ARGS__)", "unroll": " PRAGMA(GCC unroll 8)"}
_OUTER = {"one": "", "openmp": " PRAGMA(omp parallel for __VA_ARGS__)"}


def uses_math(body: Code) -> bool:
    return bool(_MATH_CALL.search(body.text()))


def add_prelude(code: Code, slots: Slots, *, uses_math: bool) -> None:
    """What stands before a C++ kernel: arithmetic, pragmas of the innermost and outermost loops, type of the sums."""
    if slots["math"] == "fast":
        code.add("#define __FAST_MATH__ 1")
        code.add('#pragma GCC optimize("fast-math")')
    needed: dict[str, str | None] = {"missing_include": None} if uses_math else {}
    code.add("#include <cmath>", **needed)
    code.add("using namespace std;")
    code.add("#define PRAGMA(x) _Pragma(#x)")
    code.add(f"#define INNER(...){_INNER[slots['loop']]}")
    code.add(f"#define OUTER(...){_OUTER[slots['threads']]}")
    code.add(f"typedef {slots['real']} real;")
