"""Who stands in a row of a table, and of which tasks it is: policies and their seeds, their names, parts of the tasks.

A recipe is a policy together with those that are further seeds of it (``seed_of``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.core.types import Outcome

CEILING = "ceiling"
"""The policy that stands for the kernel writer's search."""


def policy_order(policies: Sequence[str], study: Study) -> list[str]:
    """As in ``study.evaluate``, then others by name, the ceiling last."""
    wanted = {name: i for i, name in enumerate(study.evaluate)}
    return sorted(policies, key=lambda p: (p == CEILING, wanted.get(p, len(wanted)), p))


def policy_label(policy: str, study: Study, num_seeds: int = 1) -> str:
    """The name that people read; ``num_seeds``: of what stands under it."""
    if policy == CEILING:
        return "ceiling (kernel writer)"
    config = study.policies.get(policy)
    label = config.label if config is not None and config.label else policy
    return f"{label} ({num_seeds} seeds)" if num_seeds > 1 else label


def first_seed(policy: str, study: Study) -> str:
    """The policy that stands for this one's seeds: itself, as a rule."""
    config = study.policies.get(policy)
    return (config.seed_of if config is not None else None) or policy


def seeds_are_pipelines(study: Study) -> bool:
    """Whether a seed stands for a whole study (`kevin pool`), whose trainings began with a base model of its own: then
    policies of one seed belong together."""
    begun = [(policy, study.origins(policy)[-1]) for policy in study.evaluate if policy in study.policies]
    return any(origin != policy and study.policies[origin].seed_of is not None for policy, origin in begun)


def split_label(split: str) -> str:
    """``level1`` -> ``Level 1``; ``all`` -> ``All held-out``."""
    if split in _SPLIT_LABELS:
        return _SPLIT_LABELS[split]
    return f"Level {split[5:]}" if split.startswith("level") and split[5:].isdigit() else split


_SPLIT_LABELS = {"all": "All held-out", "unseen": "New fused tasks"}


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


# --- parts of the held-out tasks ----------------------------------------------------------------------------------


ALL_SPLITS = "all"
ALL_TASKS, UNFLAWED = "all tasks", "without flawed tasks"


def subsets(scores: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """All tasks; and those without known flaws, where that is not the same or nothing."""
    yield ALL_TASKS, scores
    if scores["flawed"].any() and not scores["flawed"].all():
        yield UNFLAWED, scores[~scores["flawed"]]


def parts(scores: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """All held-out tasks, then each split where there are several."""
    yield ALL_SPLITS, scores
    groups = list(scores.groupby("split", sort=True))
    if len(groups) > 1:
        for split, own in groups:
            yield str(split), own


# --- recipes ------------------------------------------------------------------------------------------------------


class Recipe(NamedTuple):
    """One way to make a policy, done once or several times, or one of these times alone: what a row is made of."""

    kind: str
    """The key that stands for its seeds."""
    seeds: tuple[str, ...]
    """Policies, as they are evaluated."""
    seed: int | None = None
    """Number of the one seed that this is, from 0; None where all are together."""

    @property
    def policy(self) -> str:
        return self.kind if self.seed is None else self.seeds[0]

    @property
    def num_seeds(self) -> int:
        return len(self.seeds)

    def label(self, study: Study) -> str:
        return policy_label(self.policy, study, self.num_seeds)

    def rows(self) -> Iterator[Recipe]:
        """Each seed alone, and behind the last one of several all of them."""
        yield from (Recipe(self.kind, (policy,), number) for number, policy in enumerate(self.seeds))
        if self.num_seeds > 1:
            yield self


def recipes(policies: Iterable[Any], study: Study) -> list[Recipe]:
    """The recipes of these policies, the ceiling left out, in the order of their first ones."""
    found: dict[str, list[str]] = {}
    for policy in dict.fromkeys(map(str, policies)):
        if policy != CEILING:
            found.setdefault(first_seed(policy, study), []).append(policy)
    return [Recipe(kind, tuple(seeds)) for kind, seeds in found.items()]


Scored = tuple[Recipe, list[pd.DataFrame]]
"""What a row is made of, and the scores of each of its seeds."""


def rows_of(scores: pd.DataFrame, study: Study) -> Iterator[Scored]:
    """Each policy alone, and behind the last seed of a recipe that has several all of them together."""
    own: dict[Any, pd.DataFrame] = dict(list(scores.groupby("policy", sort=False)))
    for recipe in recipes(own, study):
        for row in recipe.rows():
            yield row, [own[policy] for policy in row.seeds]


def rows_by_split(scores: pd.DataFrame, study: Study) -> Iterator[tuple[dict[str, Any], list[pd.DataFrame]]]:
    """`rows_of` for each split, those of one policy together: the head of a row, and the scores of its seeds.

    ``seed`` is none where they are together; a seed keeps its number where another one has none of a split.
    """
    own: dict[Any, pd.DataFrame] = dict(list(scores.groupby(["split", "policy"], sort=False)))
    for row, _ in rows_of(scores, study):
        for split in scores["split"].unique():
            seeds = [own[split, policy] for policy in row.seeds if (split, policy) in own]
            if len(seeds) > (row.seed is None and row.num_seeds > 1):
                yield {"policy": row.kind, "seed": row.seed, "split": split, "num_seeds": len(seeds)}, seeds
