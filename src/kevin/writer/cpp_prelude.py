"""What stands before a C++ kernel: arithmetic, type of the sums, pragmas of the innermost and outermost loops."""

from __future__ import annotations

import re

from kevin.writer.code import Code
from kevin.writer.slots import Slots

_MATH_CALL = re.compile(r"\b(exp|tanh|erf|log1p|log|expm1|fabs|sqrt)\(")
_INNER = {"plain": "", "simd": " PRAGMA(omp simd __VA_ARGS__)", "unroll": " PRAGMA(GCC unroll 8)"}
_OUTER = {"one": "", "openmp": " PRAGMA(omp parallel for __VA_ARGS__)"}


def uses_math(body: Code) -> bool:
    return bool(_MATH_CALL.search(body.text()))


def add_prelude(code: Code, slots: Slots, *, uses_math: bool) -> None:
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
