"""One budget of kernels a task, spent on more trajectories or on more turns of each.

From the study's rollouts: the budget is the number of trajectories that every task has, k = budget / turns of them are
drawn (the unbiased estimate of best@k), and of each the first turns are taken: a prompt does not say how many turns
will follow, so the first t turns of a longer run are a run of t turns. From rollouts of ``search`` that differ in their
number of turns alone: each as it is, at its own, larger budget (the paper's 128 kernels: 16 x 8 and 128 x 1).

`Evidence` holds all of these by the parts that a study's policies play, which follow from the configuration: the first
recipe of ``evaluate`` that reinforcement learning made over several turns, the first that it made over one, and the
model that the former started from. Claims and the primary table are read off it.
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
from kevin.report.metrics import Shape
from kevin.report.recipes import Recipe, by_seed, recipes
from kevin.report.scores import read_answers

_COLUMNS = ["policy", "strategy", "task_id", "trajectory", "turn", "outcome", "speedup"]


class Budget(NamedTuple):
    """One way to spend the kernels of a task, and what it found: tasks x seeds, the mean over all ways to draw so many
    trajectories."""

    shape: Shape
    correct: pd.DataFrame
    """The chance that one of the trajectories holds a correct kernel."""
    speedup: pd.DataFrame
    """Of the fastest correct kernel, 0 without one."""
    log_speedup: pd.DataFrame
    """The same as a logarithm, with eager as the floor: whoever has no faster kernel runs eager, 0."""
    fast_1: pd.DataFrame
    """The chance that one of them holds a correct kernel at least as fast as eager."""


def extent(seeds: Sequence[pd.DataFrame]) -> tuple[int, int]:
    """Trajectories that every task has, and turns that each seed has played."""
    budget = min((metrics.smallest_group(metrics.trajectory_best(own, num_turns=1)) for own in seeds), default=0)
    return budget, min(int(metrics.usable(own)["turn"].max()) for own in seeds) if budget else 0


def budget_splits(seeds: Sequence[pd.DataFrame]) -> list[Shape]:
    """Of equal numbers of kernels: as many as every task has trajectories, on turns or not."""
    budget, longest = extent(seeds)
    return [Shape(budget // turns, turns) for turns in range(1, longest + 1) if budget % turns == 0]


def budgets_of_rollouts(seeds: Sequence[pd.DataFrame]) -> list[Budget]:
    """Of a policy, the scores of its seeds: its ways to spend the same kernels, fewest turns first."""
    return [_played(seeds, shape) for shape in budget_splits(seeds)]


def every_budget(rollouts: Sequence[Sequence[pd.DataFrame]]) -> dict[Shape, Budget]:
    """Of one policy every split that it has played: of either number powers of two, and the most there are.

    Args:
        rollouts: each the scores of all seeds. A split is taken from the rollout that has the most trajectories of so
            many turns, of equals from the first.
    """
    extents = [extent(seeds) for seeds in rollouts]
    found: dict[Shape, Budget] = {}
    for turns in doublings(max((longest for _, longest in extents), default=0)):
        most, seeds = max(
            ((most, seeds) for (most, longest), seeds in zip(extents, rollouts, strict=True) if longest >= turns),
            key=lambda rollout: rollout[0],
        )
        shapes = [Shape(k, turns) for k in doublings(most)]
        found |= {shape: _played(seeds, shape) for shape in shapes}
    return found


def doublings(limit: int) -> list[int]:
    """1, 2, 4, ... and ``limit`` itself."""
    return sorted({*(2**i for i in range(limit.bit_length())), *([limit] if limit else [])})


def read_plain_search(paths: Sequence[Path], study: Study) -> pd.DataFrame:
    """Verdicts of rollouts of those strategies that change the number of turns and nothing else.

    Columns policy, strategy, task_id, trajectory, turn, outcome, speedup. A ``.csv`` is one of published answers
    (`kevin.report.scores.write_answers`), with any number of policies and strategies. Raises DataError for a file that
    is no rollout of a strategy.
    """
    frames, plain = [], plain_strategies(study)
    for path in paths:
        if path.suffix == ".csv":
            parts = [own.assign(strategy=name) for name, own in read_answers(path, study.reward) if name in plain]
            frames += [own[_COLUMNS] for own in parts]
            continue
        meta = read_metadata(path, "turns")
        policy, strategy = meta.get("policy"), meta.get("strategy")
        if not (policy and strategy):
            raise DataError(f"{path}: not a rollout of a strategy; make it again with: snakemake {path}")
        if strategy in plain:
            frames.append(read_columns(path, "turns", _COLUMNS[2:]).assign(policy=policy, strategy=strategy))
    return pd.concat(frames, ignore_index=True)[_COLUMNS] if frames else pd.DataFrame(columns=_COLUMNS)


def plain_strategies(study: Study) -> list[str]:
    own = study.search.strategies.items()
    return [name for name, s in own if s.method == "trajectories" and set(s.rollout) <= {"num_turns"}]


def budgets_of_search(recipe: Recipe, search: pd.DataFrame) -> list[Budget]:
    """The same of rollouts of ``search``, where all seeds of the policy have them at one number of kernels."""
    found: list[Budget] = []
    for _, rollouts in search.groupby("strategy", sort=False):
        own = {policy: metrics.trajectory_best(turns) for policy, turns in rollouts.groupby("policy")}
        if all(policy in own for policy in recipe.seeds):
            seeds = [own[policy] for policy in recipe.seeds]
            if trajectories := min(metrics.smallest_group(seed) for seed in seeds):
                found.append(_spent(seeds, Shape(trajectories, int(rollouts["turn"].max()))))
    return sorted(found, key=lambda budget: budget.shape.turns)


def _played(seeds: Sequence[pd.DataFrame], shape: Shape) -> Budget:
    """Of each seed's scores, which may hold more turns."""
    return _spent([metrics.trajectory_best(own, shape.turns) for own in seeds], shape)


def _spent(seeds: Sequence[pd.DataFrame], shape: Shape) -> Budget:
    """Of each seed's `metrics.trajectory_best`."""
    measured = [
        own.assign(log_speedup=np.log(own["speedup"].clip(lower=1.0)), fast_1=metrics.fast(own, 1.0)) for own in seeds
    ]
    found = {
        column: by_seed([metrics.best_of_k_by_task(own, column, shape.trajectories) for own in measured])
        for column in ("correct", "speedup", "log_speedup", "fast_1")
    }
    return Budget(shape, **found)


# --- by the parts that policies play ------------------------------------------------------------------------------

MULTI, SINGLE, BASE = "multi-turn RL", "single-turn RL", "the model before training"


class NotMeasured(Exception):
    """Why there is no number here."""


class Evidence:
    """The scores of a study's policies, by the parts that they play."""

    def __init__(self, scores: pd.DataFrame, study: Study, search: pd.DataFrame | None = None) -> None:
        judged = metrics.usable(scores)
        self.study, self._search = study, search
        self.recipes = recipes(judged["policy"].unique(), study)
        self._budgets: dict[Recipe, dict[Shape, Budget]] = {}
        self._scores: dict[str, pd.DataFrame] = {str(p): own for p, own in judged.groupby("policy", sort=False)}

    def recipe(self, part: str) -> Recipe:
        """Raises NotMeasured where no compared policy plays this part."""
        if part == BASE:
            return self._base()
        found = [r for r in self.recipes if self._part(r.policy) == part]
        if not found:
            raise NotMeasured(f"no policy made by {part} is evaluated")
        return found[0]

    def _base(self) -> Recipe:
        run = self.study.made_by(self.recipe(MULTI).policy)
        init = self.study.for_run(str(run)).train.init
        found = [r for r in self.recipes if init in r.seeds]
        if not found:
            raise NotMeasured(f"{init}, which the training started from, is not evaluated")
        return found[0]

    def _part(self, policy: str) -> str | None:
        run = self.study.made_by(policy) if policy in self.study.policies else None
        if run is None or (train := self.study.for_run(run).train).method != "grpo":
            return None
        return MULTI if train.num_turns > 1 else SINGLE

    def trained(self) -> list[Recipe]:
        return [r for r in self.recipes if self._part(r.policy) is not None]

    def scores(self, recipe: Recipe) -> list[pd.DataFrame]:
        return [self._scores[policy] for policy in recipe.seeds]

    def rollouts(self, recipe: Recipe) -> list[list[pd.DataFrame]]:
        """Scores of its seeds: of the study's own rollouts, then of those of ``search`` that all seeds have on all of
        its tasks."""
        own = self.scores(recipe)
        found, tasks = [own], set().union(*(seed["task_id"] for seed in own))
        search = self._search if self._search is not None else own[0].iloc[:0].assign(strategy=None)
        for _, rollouts in search.groupby("strategy", sort=False):
            seeds = [metrics.usable(rollouts[rollouts["policy"] == policy]) for policy in recipe.seeds]
            if all(tasks <= set(seed["task_id"]) for seed in seeds):
                found.append(seeds)
        return found

    def kernels(self, recipe: Recipe) -> pd.DataFrame:
        """All that was judged of a policy's seeds, ``search`` included: columns task_id, outcome, speedup."""
        found = self.scores(recipe)
        if self._search is not None:
            found.append(self._search[self._search["policy"].isin(recipe.seeds)])
        return pd.concat([own[["task_id", "outcome", "speedup"]] for own in found])

    def ways_of_search(self, sides: Sequence[Recipe]) -> list[str]:
        """How ``search`` spent the kernels of any of these, as ``128 × 1``."""
        if self._search is None:
            return []
        found = [budget.shape for side in sides for budget in budgets_of_search(side, self._search)]
        return list(dict.fromkeys(map(str, sorted(found, key=lambda shape: -shape.turns))))

    def values(self, recipe: Recipe, metric: str, shape: Shape) -> pd.DataFrame:
        """Tasks x seeds of a column of `metrics.task_values_at`."""
        return by_seed([metrics.task_values_at(own, shape, (1.0,))[metric] for own in self.scores(recipe)])

    def every_budget(self, recipe: Recipe) -> dict[Shape, Budget]:
        """All splits into trajectories x turns that it has played, further rollouts of ``search`` among them."""
        if recipe not in self._budgets:
            self._budgets[recipe] = every_budget(self.rollouts(recipe))
        return self._budgets[recipe]

    def budgets(self, sides: Sequence[Recipe]) -> list[tuple[Budget, Budget]]:
        """Of each policy first answers, and the split with most turns, at the most kernels that all have spent so.

        Raises NotMeasured where there is one way only.
        """
        found = [self.every_budget(side) for side in sides]
        shared = set[Shape].intersection(*(set(own) for own in found))
        ways = [shape for shape in shared if shape.turns > 1 and shape.as_first_answers in shared]
        if not ways:
            raise NotMeasured("too few trajectories or turns to spend the same kernels in two ways")
        most = max(ways, key=lambda shape: (shape.num_kernels, shape.turns))
        return [(own[most.as_first_answers], own[most]) for own in found]

    def shape(self, *sides: Recipe) -> Shape:
        """What the rollouts of all seeds of all these have."""
        return metrics.common_shape([own for side in sides for own in self.scores(side)])


def shared_tasks(values: Sequence[pd.DataFrame]) -> pd.Index:
    """That all of these have, each tasks x seeds."""
    shared = values[0].index
    for own in values[1:]:
        shared = shared.intersection(own.index)
    return shared.sort_values()
