"""Which compositions are the same exercise, whatever the details: what is evaluated must not be taught at school."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FAMILIES = {
    "conv": r"(depthwise_)?conv\d?d?(_pointwise)?",
    "conv_transpose": r"conv_?transpose\d?d?",
    "linear": r"linear|gemm|bmm|mat(mul|vec)(_\w+)?",
    "max_pool": r"max_?pool(\dd)?",
    "avg_pool": r"avg_?pool(\dd)?",
    "global_avg_pool": r"global_?avg_?pool(ing)?|adaptive_avg_pool",
    "add": r"add(_\w+)?|bias_?add|residual_?add",
    "subtract": r"subtract|sub_\w+|residual_sub",
    "scale": r"scale|scaling|multiply|divide|(mul|div)_\w+",
    "clamp": r"clamp(_\w+)?|hardtanh",
    **{word: rf"{word}(_(dim|scalar|param))?" for word in ("min", "max", "sum", "mean")},
}
_PATTERNS = {family: re.compile(pattern) for family, pattern in _FAMILIES.items()}


def family(operator: str) -> str:
    """Of an operator, by our name or by its word in a KernelBench name, in lower case; itself where it is alone."""
    return next((name for name, pattern in _PATTERNS.items() if pattern.fullmatch(operator)), operator)


def families(operators: Sequence[str]) -> tuple[str, ...]:
    """Of a sequence of operators."""
    return tuple(map(family, operators))
