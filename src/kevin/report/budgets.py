"""One budget of kernels a task, spent on more trajectories or on more turns of each.

From the study's rollouts: the budget is the number of trajectories that every task has, k = budget / turns of them are
drawn (the unbiased estimate of best@k), and of each the first turns are taken: a prompt does not say how many turns
will follow, so the first t turns of a longer run are a run of t turns. From rollouts of ``search`` that differ in their
number of turns alone: each as it is, at its own, larger budget (the paper's 128 kernels: 16 x 8 and 128 x 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import read_columns, read_metadata
from kevin.report import metrics
from kevin.report.answers import read_strategies
from kevin.report.recipes import Recipe, budget_splits, by_seed, extent

_COLUMNS = ["task_id", "trajectory", "turn", "outcome", "speedup"]


Split = tuple[int, int]
"""Trajectories, and turns of each."""


class Budget(NamedTuple):
    """One way to spend the kernels of a task, and what it found: tasks x seeds, the mean over all ways to draw so many
    trajectories."""

    trajectories: int
    turns: int
    correct: pd.DataFrame
    """The chance that one of the trajectories holds a correct kernel."""
    speedup: pd.DataFrame
    """Of the fastest correct kernel, 0 without one."""
    log_speedup: pd.DataFrame
    """The same as a logarithm, with eager as the floor: whoever has no faster kernel runs eager, 0."""
    fast_1: pd.DataFrame
    """The chance that one of them holds a correct kernel at least as fast as eager."""

    @property
    def num_kernels(self) -> int:
        return self.trajectories * self.turns

    @property
    def name(self) -> str:
        return f"{self.trajectories} × {self.turns}"


def budgets_of_rollouts(groups: Sequence[Sequence[pd.DataFrame]]) -> list[list[Budget]]:
    """Of several policies, each the scores of its seeds: their ways to spend the same kernels, fewest turns first."""
    splits = budget_splits([own for seeds in groups for own in seeds])
    return [[_played(seeds, k, turns) for k, turns in splits] for seeds in groups]


def every_budget(rollouts: Sequence[Sequence[pd.DataFrame]]) -> dict[Split, Budget]:
    """Of one policy every split that it has played: of either number powers of two, and the most there are.

    Args:
        rollouts: each the scores of all seeds. A split is taken from the rollout that has the most trajectories of so
            many turns, of equals from the first.
    """
    extents = [extent(seeds) for seeds in rollouts]
    found = {}
    for turns in _doubled(max((longest for _, longest in extents), default=0)):
        most, seeds = max(
            ((most, seeds) for (most, longest), seeds in zip(extents, rollouts, strict=True) if longest >= turns),
            key=lambda rollout: rollout[0],
        )
        for k in _doubled(most):
            found[k, turns] = _played(seeds, k, turns)
    return found


def _doubled(limit: int) -> list[int]:
    return sorted({*(2**i for i in range(limit.bit_length())), *([limit] if limit else [])})


def read_plain_search(paths: Sequence[Path], study: Study) -> pd.DataFrame:
    """Verdicts of rollouts of those strategies that change the number of turns and nothing else.

    Columns policy, strategy, task_id, trajectory, turn, outcome, speedup. A ``.csv`` is one of published answers
    (`kevin.report.answers`), with any number of policies and strategies. Raises DataError for a file that is no rollout
    of a strategy.
    """
    frames = []
    for path in paths:
        if path.suffix == ".csv":
            own = read_strategies(path)
            frames.append(own[own["strategy"].isin(plain_strategies(study))])
            continue
        meta = read_metadata(path, "turns")
        policy, strategy = meta.get("policy"), meta.get("strategy")
        if not (policy and strategy):
            raise DataError(f"{path}: not a rollout of a strategy; make it again with: snakemake {path}")
        if strategy in plain_strategies(study):
            frames.append(read_columns(path, "turns", _COLUMNS).assign(policy=policy, strategy=strategy))
    columns = ["policy", "strategy", *_COLUMNS]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def plain_strategies(study: Study) -> list[str]:
    own = study.search.strategies.items()
    return [name for name, s in own if s.method == "trajectories" and set(s.rollout) <= {"num_turns"}]


def budgets_of_search(recipes: Sequence[Recipe], search: pd.DataFrame) -> list[list[Budget]]:
    """The same of rollouts of ``search``, where all seeds of all these policies have them at one number of kernels."""
    policies = [policy for recipe in recipes for policy in recipe.seeds]
    found: list[list[Budget]] = [[] for _ in recipes]
    for _, rollouts in search.groupby("strategy", sort=False):
        own = dict(list(rollouts.groupby("policy")))
        if any(policy not in own for policy in policies):
            continue
        trajectories = min(metrics.smallest_group(metrics.trajectory_best(own[policy])) for policy in policies)
        turns = int(rollouts["turn"].max())
        if trajectories:
            for recipe, into in zip(recipes, found, strict=True):
                seeds = [metrics.trajectory_best(own[policy]) for policy in recipe.seeds]
                into.append(_spent(seeds, trajectories, turns))
    return [sorted(own, key=lambda budget: budget.turns) for own in found]


def _played(seeds: Sequence[pd.DataFrame], k: int, turns: int) -> Budget:
    """Of each seed's scores, which may hold more turns."""
    return _spent([metrics.trajectory_best(own, turns) for own in seeds], k, turns)


def _spent(seeds: Sequence[pd.DataFrame], k: int, turns: int) -> Budget:
    """Of each seed's `metrics.trajectory_best`."""
    measured = [
        own.assign(log_speedup=np.log(own["speedup"].clip(lower=1.0)), fast_1=metrics.fast(own, 1.0)) for own in seeds
    ]
    found = {
        column: by_seed([metrics.best_of_k_by_task(own, column, k) for own in measured])
        for column in ("correct", "speedup", "log_speedup", "fast_1")
    }
    return Budget(k, turns, **found)
