"""Scores, returns and advantages (arXiv 2507.11948, section 3): plain functions over numbers, no framework.

Notation: a *group* is the m trajectories of one task, each of up to n turns. Missing scores (harness failures) are
None and carry no weight anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from kevin.core.types import Outcome

ReturnMode = Literal["sum", "max"]
AdvantageMode = Literal["group", "leave_one_out"]


def score(
    outcome: Outcome,
    speedup: float | None,
    *,
    correctness_weight: float = 0.3,
    speedup_cap: float | None = None,
) -> float:
    """S = w * correct + (T_baseline / T_kernel) * correct; 0 for every kernel that is not correct.

    Args:
        speedup: T_baseline / T_kernel, needed when the outcome is correct.
        speedup_cap: upper limit of the speedup's contribution (not in the paper; Dr. Kernel uses 3).

    Raises:
        ValueError: a correct outcome without a finite, positive speedup.
    """
    if outcome is not Outcome.CORRECT:
        return 0.0
    if speedup is None or not math.isfinite(speedup) or speedup <= 0:
        raise ValueError(f"a correct kernel needs a finite positive speedup, got {speedup}")
    return correctness_weight + (speedup if speedup_cap is None else min(speedup, speedup_cap))


def returns(scores: Sequence[float | None], *, gamma: float = 0.4, mode: ReturnMode = "sum") -> list[float | None]:
    """Discounted return of each turn of one trajectory.

    ``sum``: R_t = sum_{i>=t} gamma^(i-t) * S_i. ``max``: R_t = max_{i>=t} gamma^(i-t) * S_i.
    A turn without a score has no return, and adds nothing to the returns of the turns before it.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must lie in [0, 1], got {gamma}")
    result: list[float | None] = [None] * len(scores)
    future = 0.0
    for t in range(len(scores) - 1, -1, -1):
        s = scores[t]
        own = 0.0 if s is None else s
        future = own + gamma * future if mode == "sum" else max(own, gamma * future)
        result[t] = None if s is None else future
    return result


def advantages(
    group_returns: Sequence[float | None], *, mode: AdvantageMode = "group", eps: float = 1e-4
) -> list[float]:
    """Advantage of each turn-sample of one task's group of m * n returns.

    ``group``: (R - mean) / (std + eps) with the unbiased std over all samples of the task (the paper's rule).
    ``leave_one_out``: R_i - mean of the others' (TRLOO of Dr. Kernel), not divided.
    A missing return is left out of the baseline and gets exactly 0; so does every sample of a group without variance.
    """
    known = [r for r in group_returns if r is not None]
    if len(known) < 2:
        return [0.0] * len(group_returns)
    mean = math.fsum(known) / len(known)
    if max(known) == min(known):
        return [0.0] * len(group_returns)
    if mode == "leave_one_out":
        scale = len(known) / (len(known) - 1)
        return [0.0 if r is None else (r - mean) * scale for r in group_returns]
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in known) / (len(known) - 1))
    return [0.0 if r is None else (r - mean) / (std + eps) for r in group_returns]
