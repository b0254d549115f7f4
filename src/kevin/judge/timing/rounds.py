"""How long a round is, and when there have been enough of them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from kevin.core.protocol import JudgeProtocol

MIN_ROUNDS = 3
_GPU_LEAD_US = 300.0
"""Flushing the L2 of a GPU and waiting for the launch, before every timed call."""
_LOOK_SHARE, _LOOKED_AT = 0.5, 36
"""Of a round's length, for looking at the outputs of its calls; how many of them are wanted."""
_LEAST_STEPS, _GROWING_SHARE, _OTHERS_SHARE = 4, 0.8, 0.25
_SLOW, _SLOW_SPREAD = 0.1, 0.05
"""Of a kernel that is ten times slower than eager no more need be known than two measurements agree on."""


def calls_per_round(protocol: JudgeProtocol, kernel_us: float, num_slots: int) -> int:
    """As many calls as fill a round; every call needs a slot of its own, and one more goes to the untimed call."""
    lead_us = _GPU_LEAD_US if protocol.device == "cuda" else 0.0
    wanted = -(-protocol.timing.round_us // max(kernel_us + lead_us, 1.0))
    return int(max(1, min(wanted, num_slots - 1, protocol.timing.max_calls_per_round)))


def calls_to_look_at(protocol: JudgeProtocol, num_calls: int, look_us: float) -> int:
    """Of the calls of a round, those whose outputs are compared: as many as take a small part of it, or make
    `_LOOKED_AT` of all rounds together and take no longer than two.

    Args:
        look_us: what comparing one takes, with making what is expected of it; 0 while that is unknown.
    """
    t = protocol.timing
    if not look_us:
        return 1
    wanted = max(_LOOK_SHARE * t.round_us / look_us, min(-(-_LOOKED_AT // t.min_rounds), 2 * t.round_us / look_us))
    return int(max(1, min(wanted, num_calls)))


def enough_rounds(protocol: JudgeProtocol, num_rounds: int, timed_us: float) -> bool:
    """Whether the least that is always measured has been; the clock of a GPU is steady, long calls need fewer rounds.

    Args:
        timed_us: what the candidate's timed calls took together.
    """
    t = protocol.timing
    is_long = protocol.device == "cuda" and timed_us >= t.min_rounds * t.round_us
    return num_rounds >= (min(MIN_ROUNDS, t.min_rounds) if is_long else t.min_rounds)


def leaked_bytes(held: Sequence[tuple[int | None, int | None]], calls_per_round: int) -> int:
    """What a candidate keeps more with every call, if it grows in nearly every round, and not between them; else 0.

    Args:
        held: bytes before and after the candidate's calls of each round. They may be those of a whole device: what its
            other users take, processes that start above all, comes between the candidate's calls as well.
        calls_per_round: the untimed one counted too.
    """
    known = [(a, b) for a, b in held if a is not None and b is not None][1:]  # the first may make what later ones use
    within = [after - before for before, after in known]
    between = [before - after for (_, after), (before, _) in itertools.pairwise(known)]
    if len(within) < _LEAST_STEPS or _growing(within) < _GROWING_SHARE or _growing(between) > _OTHERS_SHARE:
        return 0
    return int(statistics.median(within) / calls_per_round)


def _growing(steps: Sequence[int]) -> float:
    """Share of the steps that are up."""
    return sum(s > 0 for s in steps) / len(steps)


def known_slow(ratios: list[float]) -> bool:
    """Whether the last two measurements agree on a kernel that is hopelessly slower than eager."""
    low, high = min(ratios[-2:]), max(ratios[-2:])
    return len(ratios) >= 2 and high < _SLOW and high - low <= _SLOW_SPREAD * high


def settled(ratios: list[float], relative_error: float) -> bool:
    """Whether the standard error of the mean ratio is below ``relative_error`` of it. Outliers beyond 3 MAD are cut."""
    mid = statistics.median(ratios)
    mad = statistics.median(abs(r - mid) for r in ratios)
    kept = [r for r in ratios if abs(r - mid) <= 3 * 1.4826 * mad] if mad > 0 else ratios
    if len(kept) < 3:
        return False
    return bool(statistics.stdev(kept) / len(kept) ** 0.5 < relative_error * statistics.fmean(kept))
