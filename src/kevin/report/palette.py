"""How each outcome looks and is called, in figures and on the page: a colour, and something that survives in grey."""

from __future__ import annotations

from typing import NamedTuple

from kevin.core.types import Outcome


class OutcomeStyle(NamedTuple):
    label: str
    color: str
    hatch: str
    icon: str


OUTCOMES = {
    Outcome.CORRECT: OutcomeStyle("correct", "#009E73", "", "✓"),
    Outcome.QUARANTINED: OutcomeStyle("implausibly fast", "#F0E442", "++", "?"),
    Outcome.INCORRECT: OutcomeStyle("wrong result", "#E69F00", "///", "✗"),
    Outcome.TIMEOUT: OutcomeStyle("time limit", "#CC79A7", "xxx", "✗"),
    Outcome.RUNTIME_ERROR: OutcomeStyle("runtime error", "#D55E00", "\\\\\\", "✗"),
    Outcome.COMPILE_ERROR: OutcomeStyle("compile error", "#56B4E9", "...", "✗"),
    Outcome.REFUSED: OutcomeStyle("rule violation", "#0072B2", "|||", "✗"),
    Outcome.PARSE_ERROR: OutcomeStyle("no code found", "#c3c7cf", "oo", "✗"),
}
"""From good to bad, the order of stacking."""
