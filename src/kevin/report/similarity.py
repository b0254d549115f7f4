"""How alike two kernels are: what a policy repeats, copies and changes from one turn to the next."""

from __future__ import annotations

import re
from functools import lru_cache

from rapidfuzz.distance import Indel

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PYTHON_COMMENT = re.compile(r"#(?!\s*(?:include|define|undef|pragma|ifn?def|if|elif|else|endif|error)\b)[^\n]*")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\S")

NEAR_COPY = 0.95
"""From this similarity on a kernel counts as a copy of the one before: one or two decisions differ, or nothing."""


@lru_cache(maxsize=16)  # a kernel is compared with the one before it, and then with the next
def tokens(source: str) -> tuple[str, ...]:
    """Names, numbers and signs of C++, CUDA or Python, without comments and layout."""
    return tuple(_TOKEN.findall(_PYTHON_COMMENT.sub(" ", _COMMENT.sub(" ", source))))


def similarity(a: str, b: str) -> float:
    """2 L / T in [0, 1]: L tokens of the longest common subsequence of the two sources, T tokens of both.

    1 means the same program, comments and layout apart.
    """
    return float(Indel.normalized_similarity(tokens(a), tokens(b)))
