"""Scores, returns and advantages (arXiv 2507.11948, section 3): plain functions over numbers, no framework.

Notation: a *group* is the m trajectories of one task, each of up to n turns. Missing scores (harness failures) are
None and carry no weight anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kevin.core.types import Outcome

if TYPE_CHECKING:
    from kevin.core.config import RewardConfig

AdvantageMode = Literal["group", "turn", "leave_one_out", "turn_leave_one_out"]
_EPS = 1e-4


def configured_score(outcome: Outcome | None, speedup: float | None, config: RewardConfig) -> float | None:
    """S = w * correct + (T_baseline / T_kernel) * correct, the speedup up to a cap (Dr. Kernel has 3, the paper none).

    0 for every kernel that is not correct; None where the harness failed: that is never a score of 0.

    Args:
        speedup: T_baseline / T_kernel, needed when the outcome is correct.

    Raises:
        ValueError: a correct outcome without a finite, positive speedup.
    """
    if outcome is None:
        return None
    if outcome is not Outcome.CORRECT:
        return 0.0
    if speedup is None or not math.isfinite(speedup) or speedup <= 0:
        raise ValueError(f"a correct kernel needs a finite positive speedup, got {speedup}")
    return config.correctness_weight + (speedup if config.speedup_cap is None else min(speedup, config.speedup_cap))


def turn_rewards(scores: Sequence[float | None], num_tokens: Sequence[int], config: RewardConfig) -> list[float | None]:
    """What each turn of one trajectory is rewarded with: r_t = max(S_t - w * B_t, f) - p * n_t / 1000, B_1 = 0.

    B_t is the score of the kernel that the turn started from: of the turn before (``last``), or the best of all before
    (``best``). w = 0 is the paper, w = 1 rewards progress alone, as Kernel-Smith does (arXiv 2603.28342). SCoRe's bonus
    S_t + a (S_t - S_{t-1}) (arXiv 2409.12917, section 5) is this with w = a / (1 + a), times 1 + a.
    f is ``progress_floor``, none by default. With w = 1, ``best`` and f = 0 the rewards of a trajectory add up to the
    score of its best kernel: a turn that finds nothing better costs nothing, and one that repeats earns nothing.
    p is ``length_penalty``, n_t the tokens of the turn's answer (``num_tokens``), of a wrong one too: the paper, which
    dropped its length penalty, does not say how it counted.
    """
    rewards: list[float | None] = []
    started_from = 0.0
    for s, n in zip(scores, num_tokens, strict=True):
        if s is None:
            rewards.append(None)
        else:
            progress = s - config.progress_weight * started_from
            floored = progress if config.progress_floor is None else max(progress, config.progress_floor)
            rewards.append(floored - config.length_penalty * n / 1000)
            started_from = max(started_from, s) if config.progress_over == "best" else s
    return rewards


def configured_returns(
    scores: Sequence[float | None], num_tokens: Sequence[int], config: RewardConfig
) -> list[float | None]:
    """Discounted return of each turn of one trajectory, from its turns' rewards (`turn_rewards`).

    ``sum``: R_t = sum_{i>=t} gamma^(i-t) * r_i. ``max``: R_t = max_{i>=t} gamma^(i-t) * r_i.
    A turn without a reward has no return, and adds nothing to the returns of the turns before it.
    """
    rewards = turn_rewards(scores, num_tokens, config)
    result: list[float | None] = [None] * len(rewards)
    future: float | None = None
    for t in range(len(rewards) - 1, -1, -1):
        own = rewards[t]
        later = None if future is None else config.gamma * future
        if own is None:
            future = later
            continue
        if later is not None:
            own = own + later if config.returns == "sum" else max(own, later)
        result[t] = future = own
    return result


def advantages(
    group_returns: Sequence[float | None],
    *,
    mode: AdvantageMode = "group",
    turns: Sequence[int] | None = None,
) -> list[float]:
    """Advantage of each turn-sample of one task's group of m * n returns.

    ``group``: (R - mean) / (std + 1e-4) with the unbiased std over all samples of the task (the paper's rule).
    ``leave_one_out``: R_i - mean of the others', not divided (RLOO, arXiv 2402.14740).
    ``turn``, ``turn_leave_one_out``: the same among the m samples of one turn number; the last is TRLOO (Dr. Kernel,
    arXiv 2602.05885). With gamma a first turn's return adds up more scores than a last one's: only these compare like
    with like.
    A missing return is left out of the baseline and gets exactly 0; so does every sample of a group without variance.

    Args:
        turns: the turn number of each sample, for the modes by turn.

    Raises:
        ValueError: a mode by turn without as many turn numbers as returns.
    """
    if mode in ("turn", "turn_leave_one_out"):
        if turns is None or len(turns) != len(group_returns):
            raise ValueError(f"advantages by {mode} need the turn number of each of the {len(group_returns)} returns")
        result = [0.0] * len(group_returns)
        for number in set(turns):
            places = [i for i, t in enumerate(turns) if t == number]
            own = [group_returns[i] for i in places]
            within = advantages(own, mode="group" if mode == "turn" else "leave_one_out")
            for i, advantage in zip(places, within, strict=True):
                result[i] = advantage
        return result
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
    return [0.0 if r is None else (r - mean) / (std + _EPS) for r in group_returns]
