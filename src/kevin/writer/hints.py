"""What the profile in a correct kernel's feedback points to: decisions that may change what it complains of."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_LOW_SHARE = 60.0
"""Per cent of a peak below which a profile is read as a complaint."""


class Hint(NamedTuple):
    said: str
    """The feedback's own sentence."""
    slots: tuple[str, ...]
    """Decisions that it points to."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    complains: Callable[[re.Match[str]], bool]
    slots: tuple[str, ...]


def _is_low(match: re.Match[str]) -> bool:
    return float(match[1]) < _LOW_SHARE


def _always(match: re.Match[str]) -> bool:
    return True


_RULES = (
    _Rule(
        re.compile(r"It reaches (\S+) % of the memory bandwidth\."),
        _is_low,
        ("grid", "fusion", "passes", "rows", "threads"),
    ),
    _Rule(re.compile(r"It reaches (\S+) % of the arithmetic peak\."), _is_low, ("product", "order", "loop", "real")),
    _Rule(
        re.compile(r"Of the warps that a multiprocessor holds (\S+) % are active\."), _is_low, ("block_size", "rows")
    ),
    _Rule(re.compile(r"Warps wait for a barrier \d+%[^.]*\."), _always, ("rows", "block_size")),
    _Rule(re.compile(r"Warps wait for global memory \d+%[^.]*\."), _always, ("grid", "fusion", "product")),
    _Rule(re.compile(r"Warps wait for the arithmetic units \d+%[^.]*\."), _always, ("math", "real", "loop")),
    _Rule(
        re.compile(r"It uses \S+ registers a thread, \S+ bytes spilled\."),
        _always,
        ("product", "loop", "block_size"),
    ),
)


def hints(feedback: str) -> list[Hint]:
    """What a feedback's profile complains of, with the decisions that may help; empty without a profile."""
    found = ((rule, match) for rule in _RULES if (match := rule.pattern.search(feedback)))
    return [Hint(match.group(), rule.slots) for rule, match in found if rule.complains(match)]
