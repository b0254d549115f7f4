"""How alike two kernels are: what a policy repeats, copies and changes from one turn to the next."""

from __future__ import annotations

import difflib
import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PYTHON_COMMENT = re.compile(r"#(?!\s*(?:include|define|undef|pragma|ifn?def|if|elif|else|endif|error)\b)[^\n]*")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\S")

NEAR_COPY = 0.95
"""From this similarity on a kernel counts as a copy of the one before: one or two decisions differ, or nothing."""


def tokens(source: str) -> list[str]:
    """Names, numbers and signs of C++, CUDA or Python, without comments and layout."""
    return _TOKEN.findall(_PYTHON_COMMENT.sub(" ", _COMMENT.sub(" ", source)))


def similarity(a: str, b: str) -> float:
    """2 M / T in [0, 1]: M tokens in matching blocks of the two sources, T tokens of both (Ratcliff and Obershelp).

    1 means the same program, comments and layout apart.
    """
    return difflib.SequenceMatcher(None, tokens(a), tokens(b), autojunk=False).ratio()
