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
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import read_columns, read_metadata
from kevin.report import metrics
from kevin.report.metrics import Estimate, Shape, by_seed, mean_estimate
from kevin.report.recipes import Recipe, recipes
from kevin.report.scores import read_answers

_COLUMNS = ["policy", "strategy", "task_id", "trajectory", "turn", "outcome", "speedup"]
NO_SEARCH = pd.DataFrame(columns=_COLUMNS)


class Budget(NamedTuple):
    """One way to spend the kernels of a task, and what it found."""

    shape: Shape
    values: pd.DataFrame
    """Tasks x (measure, seed), each the mean over all ways to draw so many trajectories. ``correct``, ``fast_1``: the
    chance that one of them holds a correct kernel, and one at least as fast as eager; ``speedup``: of the fastest
    correct kernel, 0 without one; ``log_speedup``: its logarithm, with eager as the floor: whoever has no faster kernel
    runs eager, 0."""


def spend(seeds: Sequence[pd.DataFrame], shape: Shape) -> Budget:
    """Of the scores of each seed, which may hold more of both."""
    every = [metrics.with_fast(metrics.trajectory_best(own, shape.turns), [1.0]) for own in seeds]
    every = [own.assign(log_speedup=np.log(own["speedup"].clip(lower=1.0))) for own in every]
    found = {
        name: by_seed(metrics.best_of(own, name, shape.trajectories) for own in every)
        for name in ("correct", "speedup", "log_speedup", "fast_1")
    }
    return Budget(shape, pd.concat(found, axis=1))


def extent(seeds: Sequence[pd.DataFrame]) -> Shape:
    """Trajectories that every task has, and turns that each seed has played."""
    most = min((metrics.smallest_group(metrics.trajectory_best(own, num_turns=1)) for own in seeds), default=0)
    return Shape(most, min(int(metrics.usable(own)["turn"].max()) for own in seeds) if most else 0)


def budgets_of_rollouts(seeds: Sequence[pd.DataFrame]) -> list[Budget]:
    """Of a policy, the scores of its seeds: the ways to spend as many kernels as every task has trajectories, fewest
    turns first."""
    most, longest = extent(seeds)
    return [spend(seeds, Shape(most // turns, turns)) for turns in range(1, longest + 1) if most % turns == 0]


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
        found |= {shape: spend(seeds, shape) for shape in (Shape(k, turns) for k in doublings(most))}
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
    frames = []
    for path in paths:
        if path.suffix == ".csv":
            frames += [own.assign(strategy=strategy) for strategy, own in read_answers(path, study.reward)]
            continue
        meta = read_metadata(path, "turns")
        if not (meta.get("policy") and meta.get("strategy")):
            raise DataError(f"{path}: not a rollout of a strategy; make it again with: snakemake {path}")
        own = read_columns(path, "turns", _COLUMNS[2:])
        frames.append(own.assign(policy=meta["policy"], strategy=meta["strategy"]))
    plain = plain_strategies(study)
    frames = [own[_COLUMNS] for own in frames if own["strategy"].isin(plain).all()]
    return pd.concat(frames, ignore_index=True) if frames else NO_SEARCH


def plain_strategies(study: Study) -> list[str]:
    own = study.search.strategies.items()
    return [name for name, s in own if s.method == "trajectories" and set(s.rollout) <= {"num_turns"}]


def budgets_of_search(recipe: Recipe, search: pd.DataFrame) -> list[Budget]:
    """The same of rollouts of ``search``, where all seeds of the policy have them at one number of kernels."""
    found: list[Budget] = []
    for _, rollouts in search.groupby("strategy", sort=False):
        seeds = [rollouts[rollouts["policy"] == policy] for policy in recipe.seeds]
        most = min(metrics.smallest_group(metrics.trajectory_best(own)) for own in seeds)
        if most:
            found.append(spend(seeds, Shape(most, int(rollouts["turn"].max()))))
    return sorted(found, key=lambda budget: budget.shape.turns)


# --- by the parts that policies play ------------------------------------------------------------------------------

MULTI, SINGLE, BASE = "multi-turn RL", "single-turn RL", "the model before training"


class NotMeasured(Exception):
    """Why there is no number here."""


class Evidence:
    """The scores of a study's policies, by the parts that they play, and what they found with every budget."""

    def __init__(self, scores: pd.DataFrame, study: Study, search: pd.DataFrame = NO_SEARCH) -> None:
        judged = metrics.usable(scores)
        self.study, self.search = study, search
        self.recipes = recipes(judged["policy"].unique(), study)
        self._scores: dict[str, pd.DataFrame] = {str(p): own for p, own in judged.groupby("policy", sort=False)}

    def recipe(self, part: str) -> Recipe:
        """Raises NotMeasured where no compared policy plays this part."""
        if part == BASE:
            init = self.study.for_run(str(self.study.made_by(self.recipe(MULTI).policy))).train.init
            return self._first(
                [r for r in self.recipes if init in r.seeds],
                f"{init}, which the training started from, is not evaluated",
            )
        return self._first(
            [r for r in self.recipes if self._part(r.policy) == part], f"no policy made by {part} is evaluated"
        )

    def named(self, policy: str | None, part: str) -> Recipe:
        """The recipe that ``report.primary`` names, or that plays a part where it names none; raises NotMeasured."""
        if policy is None:
            return self.recipe(part)
        found = [r for r in self.recipes if r.policy == policy]
        return self._first(found, f"{policy}, which report.primary names, is not evaluated")

    def _first(self, found: Sequence[Recipe], lacking: str) -> Recipe:
        if not found:
            raise NotMeasured(lacking)
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

    def shape(self, *sides: Recipe) -> Shape:
        """What the rollouts of all seeds of all these have."""
        return metrics.common_shape([own for side in sides for own in self.scores(side)])

    def values(self, recipe: Recipe, metric: str, shape: Shape) -> pd.DataFrame:
        """Tasks x seeds of a column of `metrics.values_at`."""
        return by_seed(metrics.values_at(own, shape)[metric] for own in self.scores(recipe))

    @cached_property
    def budgets(self) -> dict[Recipe, dict[Shape, Budget]]:
        """All splits into trajectories x turns that each has played, further rollouts of ``search`` among them where
        all seeds have these on all of its tasks."""
        found = {}
        for recipe in self.recipes:
            rollouts = [self.scores(recipe)]
            tasks = set().union(*(own["task_id"] for own in rollouts[0]))
            for _, own in self.search.groupby("strategy", sort=False):
                seeds = [metrics.usable(own[own["policy"] == policy]) for policy in recipe.seeds]
                if all(tasks <= set(seed["task_id"]) for seed in seeds):
                    rollouts.append(seeds)
            found[recipe] = every_budget(rollouts)
        return found

    @cached_property
    def tasks(self) -> pd.Index:
        """Those that all recipes have answered."""
        return shared_tasks([budget.values for own in self.budgets.values() for budget in own.values()])

    def mean(self, side: Recipe, shape: Shape, measure: str, tasks: pd.Index | None = None) -> Estimate:
        """Over tasks and seeds, those of each recipe drawn apart; of all shared tasks, or of these."""
        values = self.budgets[side][shape].values[measure].loc[self.tasks if tasks is None else tasks]
        return mean_estimate(values, self.study, self.recipes.index(side))

    def both_ways(self, sides: Sequence[Recipe]) -> list[tuple[Budget, Budget]]:
        """Of each policy first answers, and the split with most turns, at the most kernels that all have spent so.

        Raises NotMeasured where there is one way only.
        """
        found = [self.budgets[side] for side in sides]
        shared = set[Shape].intersection(*(set(own) for own in found))
        ways = [shape for shape in shared if shape.turns > 1 and shape.as_first_answers in shared]
        if not ways:
            raise NotMeasured("too few trajectories or turns to spend the same kernels in two ways")
        most = max(ways, key=lambda shape: (shape.num_kernels, shape.turns))
        return [(own[most.as_first_answers], own[most]) for own in found]


def shared_tasks(values: Sequence[pd.DataFrame]) -> pd.Index:
    """That all of these have, each by task."""
    shared: set[str] = set.intersection(*(set(own.index) for own in values)) if values else set()
    tasks: pd.Index = pd.Index(sorted(shared))
    return tasks
