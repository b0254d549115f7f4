"""The scores of a study's policies, by the parts that they play: what claims and the primary table are read off.

Which policy plays which part follows from the configuration: the first recipe of ``evaluate`` that reinforcement
learning made over several turns, the first that it made over one, and the model that the former started from.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.budgets import Budget, Split, budgets_of_search, every_budget
from kevin.report.metrics import Shape
from kevin.report.recipes import Recipe, by_seed, recipes

MULTI, SINGLE, BASE = "multi-turn RL", "single-turn RL", "the model before training"


class NotMeasured(Exception):
    """Why there is no number here."""


class Evidence:
    """The scores of a study's policies, by the parts that they play."""

    def __init__(self, scores: pd.DataFrame, study: Study, search: pd.DataFrame | None = None) -> None:
        judged = metrics.usable(scores)
        self.study, self._search = study, search
        self.recipes = recipes(judged["policy"].unique(), study)
        self._budgets: dict[Recipe, dict[Split, Budget]] = {}
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
        found = [budget for side in sides for own in budgets_of_search([side], self._search) for budget in own]
        return list(dict.fromkeys(budget.name for budget in sorted(found, key=lambda budget: -budget.turns)))

    def values(self, recipe: Recipe, metric: str, shape: Shape) -> pd.DataFrame:
        """Tasks x seeds of a column of `metrics.task_values_at`."""
        return by_seed([metrics.task_values_at(own, shape, (1.0,))[metric] for own in self.scores(recipe)])

    def every_budget(self, recipe: Recipe) -> dict[Split, Budget]:
        """All splits into trajectories x turns that it has played, further rollouts of ``search`` among them."""
        if recipe not in self._budgets:
            self._budgets[recipe] = every_budget(self.rollouts(recipe))
        return self._budgets[recipe]

    def budgets(self, sides: Sequence[Recipe]) -> list[tuple[Budget, Budget]]:
        """Of each policy first answers, and the split with most turns, at the most kernels that all have spent so.

        Raises NotMeasured where there is one way only.
        """
        found = [self.every_budget(side) for side in sides]
        shared = set[Split].intersection(*(set(own) for own in found))
        ways = [(k * turns, turns) for k, turns in shared if turns > 1 and (k * turns, 1) in shared]
        if not ways:
            raise NotMeasured("too few trajectories or turns to spend the same kernels in two ways")
        kernels, turns = max(ways)
        return [(own[kernels, 1], own[kernels // turns, turns]) for own in found]

    def shape(self, *sides: Recipe) -> Shape:
        """What the rollouts of all seeds of all these have."""
        return metrics.common_shape([own for side in sides for own in self.scores(side)])


def shared_tasks(values: Sequence[pd.DataFrame]) -> pd.Index:
    """That all of these have, each tasks x seeds."""
    shared = values[0].index
    for own in values[1:]:
        shared = shared.intersection(own.index)
    return shared.sort_values()
