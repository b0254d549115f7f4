"""How long a round is, which of them count, when there have been enough, and what they say."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.types import Round, Timing

MIN_ROUNDS = 3
_DISTURBED = 1.5
"""Times as long as eager is known to take: a round that does not count."""
_LOOSE, _EXTRA_BUDGETS = 5.0, 3.0
"""What is good enough once the budget is spent, and for how much longer that is waited for."""
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


def is_known(timing: TimingProtocol, ratios: list[float], late_s: float) -> bool:
    """Whether the ratio is known as well as is wanted, or, once the budget is spent, as well as it can be.

    Args:
        late_s: since then; negative before.
    """
    if late_s > _EXTRA_BUDGETS * timing.budget_s:
        return True
    return bool(ratios) and settled(ratios, timing.relative_error * (_LOOSE if late_s > 0 else 1.0))


def undisturbed(protocol: JudgeProtocol, rounds: list[Round], among: Sequence[int], fastest_us: float) -> list[int]:
    """On a host, those ``among`` the rounds in which eager took about as long as it is known to need; all on a GPU.

    A process whose memory is still being mapped takes tens of times longer, call after call. What slows the candidate
    down counts, other work on its core apart: its times may depend on its inputs.

    Args:
        fastest_us: of a round of eager calls before.
    """
    if protocol.device == "cuda":
        return list(among)
    best_us = min((fastest_us, *(rounds[i].reference_us for i in among)))
    return [i for i in among if rounds[i].reference_us <= _DISTURBED * best_us]


def summarize(samples_us: list[float]) -> Timing:
    """Median and interquartile range at full precision."""
    ordered = sorted(samples_us)
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else [ordered[0]] * 3
    return Timing(
        median_us=statistics.median(ordered),
        iqr_us=quartiles[2] - quartiles[0],
        min_us=ordered[0],
        num_samples=len(ordered),
    )
