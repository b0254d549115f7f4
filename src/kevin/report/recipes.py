"""Recipes: a policy together with those that are further seeds of it (``seed_of``), as tables list and pool them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.scores import CEILING, first_seed, policy_label


class Recipe(NamedTuple):
    """One way to make a policy, done once or several times."""

    policy: str
    """The key that stands for its seeds."""
    seeds: tuple[str, ...]
    """Policies, as they are evaluated."""

    @property
    def num_seeds(self) -> int:
        return len(self.seeds)

    def label(self, study: Study) -> str:
        return policy_label(self.policy, study, self.num_seeds)


def recipes(policies: Iterable[Any], study: Study) -> list[Recipe]:
    """The recipes of these policies, the ceiling left out, in the order of their first ones."""
    found: dict[str, list[str]] = {}
    for policy in dict.fromkeys(map(str, policies)):
        if policy != CEILING:
            found.setdefault(first_seed(policy, study), []).append(policy)
    return [Recipe(kind, tuple(seeds)) for kind, seeds in found.items()]


class Rows(NamedTuple):
    """What one row of a table is made of: one policy, or all seeds of a recipe together."""

    policy: str
    """Its key; of the recipe where its seeds are pooled."""
    kind: str
    """The key of the recipe."""
    seed: int | None
    """Number among the recipe's seeds, from 0; None where they are pooled."""
    seeds: tuple[pd.DataFrame, ...]
    """The scores of each."""

    @property
    def num_seeds(self) -> int:
        return len(self.seeds)

    @property
    def recipe(self) -> Recipe:
        """Of the policies that the row is made of."""
        return Recipe(self.policy, tuple(str(own["policy"].iloc[0]) for own in self.seeds))


def rows_of(scores: pd.DataFrame, study: Study) -> Iterator[Rows]:
    """Each policy alone, and behind the last seed of a recipe that has several all of them together."""
    own: dict[Any, pd.DataFrame] = dict(list(scores.groupby("policy", sort=False)))
    for recipe in recipes(own, study):
        frames = tuple(own[policy] for policy in recipe.seeds)
        for number, frame in enumerate(frames):
            yield Rows(recipe.seeds[number], recipe.policy, number, (frame,))
        if len(frames) > 1:
            yield Rows(recipe.policy, recipe.policy, None, frames)


def rows_by(scores: pd.DataFrame, column: str, study: Study) -> Iterator[tuple[Any, Rows]]:
    """`rows_of` for each value of a column, those of one policy together."""
    found = {value: list(rows_of(own, study)) for value, own in scores.groupby(column, sort=False)}
    for row in rows_of(scores, study):
        for value, rows in found.items():
            for own in rows:
                if (own.policy, own.seed is None) == (row.policy, row.seed is None):
                    yield value, own._replace(seed=row.seed)


def by_seed(values: Sequence[pd.Series]) -> pd.DataFrame:
    """Values by task (index) as one frame, a column for each seed; NaN where a seed has none of a task."""
    return pd.concat(list(values), axis=1, keys=range(len(values)), sort=True)


def extent(seeds: Sequence[pd.DataFrame]) -> tuple[int, int]:
    """Trajectories that every task has, and turns that each seed has played."""
    budget = min((metrics.smallest_group(metrics.trajectory_best(own, num_turns=1)) for own in seeds), default=0)
    return budget, min(int(metrics.usable(own)["turn"].max()) for own in seeds) if budget else 0


def budget_splits(seeds: Sequence[pd.DataFrame]) -> list[tuple[int, int]]:
    """(trajectories, turns) of equal numbers of kernels: as many as every task has trajectories, on turns or not."""
    budget, longest = extent(seeds)
    return [(budget // turns, turns) for turns in range(1, longest + 1) if budget % turns == 0]
