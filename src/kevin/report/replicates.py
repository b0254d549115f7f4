"""The table of replicates: arms of a comparison that was declared before it was run, each seed a pipeline of its own.

Every number is a mean over tasks and seeds of differences between two ways of spending a task's kernels, both of the
same seed. Each way holds the declared number of kernels, so that a task's value is that of the best of them: nothing is
drawn. Those that have no verdict, or were never written as a trajectory ended, are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study, load_study
from kevin.core.config.layers import read_layer
from kevin.core.errors import DataError
from kevin.core.identity import differences
from kevin.report.budgets import spend
from kevin.report.metrics import Interval, Shape, mean_estimate, minus, smallest_shown, with_ends
from kevin.report.pooled import recipe_of
from kevin.report.published import Published
from kevin.report.scores import hardware, read_answers

DECLARED = {"rl_single": 6, "rl_multi": 6, "rl_multi_paper": 2}
"""Seeds of each arm (docs/replicates.md)."""
FIRST_ANSWERS = "parallel"
"""The strategy by which first answers are drawn, of an arm and of its base model."""
MEASURES = ("log_speedup", "solved", "fast_1")
PRIMARY, SECONDARY, EXPLORATORY = "primary", "secondary", "exploratory"
COLUMNS = [
    *("endpoint", "measure", "policy", "spent", "against", "against_spent", "without", "value", "against_value"),
    *with_ends("difference"),
    *("detectable", "num_seeds", "num_seeds_declared", "num_tasks", "num_unjudged"),
]


class Replicate(NamedTuple):
    """One seed of one arm."""

    arm: str
    seed: int
    ways: Mapping[str, pd.DataFrame]
    """Scores by way: ``turns`` and ``first`` of the arm, ``base``, first answers of the model that it began with."""


class Side(NamedTuple):
    """A policy, and how it spends a task's kernels."""

    arm: str
    way: str


def is_declared(arm: str, seed: object) -> bool:
    """Whether a table takes this seed of an arm."""
    return seed in range(1, DECLARED.get(arm, 0) + 1)


def read_replicate(folder: Path, study: Study) -> list[Replicate]:
    """What `kevin publish` wrote of one seed's arms, which have their base model in common.

    The base model's answers may be missing: they come last in a sitting.

    Raises:
        DataError: no arm of a comparison is in it, or not all of one.
    """
    arms = [policy for policy in study.evaluate if study.made_by(policy)]
    if not arms:
        raise DataError(f"{folder}: no trained policy is evaluated here, and an arm is one")
    played: dict[tuple[str, str | None], list[pd.DataFrame]] = {}
    for strategy, own in read_answers(Published(folder).answers, study.reward):
        played.setdefault((str(own["policy"].iloc[0]), strategy), []).append(own)
    found = []
    for arm in arms:
        of = {"turns": (arm, None), "first": (arm, FIRST_ANSWERS), "base": (study.origins(arm)[-1], FIRST_ANSWERS)}
        if lacking := sorted(way for way, key in of.items() if key not in played and way != "base"):
            raise DataError(f"{folder}: no answers of {', '.join(lacking)} of {arm}; make it again")
        ways = {way: pd.concat(played[key], ignore_index=True) for way, key in of.items() if key in played}
        found.append(Replicate(arm, study.seed, ways))
    return found


def read_replicates(folders: Sequence[Path]) -> tuple[list[Replicate], Study]:
    """All of them, and the configuration that they share, with seed 0.

    Raises:
        DataError: there is none, one is of a seed or an arm that was not declared, two are of the same, or they differ
            in more, their judge or their GPU among it.
    """
    if not folders:
        raise DataError("there is no finished replicate yet: docs/replicates.md says how one is made")
    found: dict[tuple[str, int], Replicate] = {}
    shared: Study | None = None
    judged: str | None = None
    for folder in folders:
        study = load_study([Published(folder).config], judges=False)
        for replicate in read_replicate(folder, study):
            what = f"{folder}: seed {replicate.seed} of {replicate.arm}"
            if not is_declared(replicate.arm, replicate.seed):
                raise DataError(f"{what} was not declared (docs/replicates.md): move it to another place")
            if (replicate.arm, replicate.seed) in found:
                raise DataError(f"{what} is there twice")
            found[replicate.arm, replicate.seed] = replicate
        if (own := _judged(folder, study)) != (judged := judged or own):
            raise DataError(f"{folder}: judged {own}, but {folders[0]} {judged}")
        if shared is not None and (other := list(differences(_common(shared), _common(study)))):
            raise DataError(f"{folder}: made with other settings than {folders[0]}: {other[0]}")
        shared = shared or study
    assert shared is not None
    return list(found.values()), shared.model_copy(update={"seed": 0})


def _judged(folder: Path, study: Study) -> str:
    files = Published(folder)
    version = read_layer(files.config).get("judge", {}).get("version")  # which `load_study` leaves out
    return f"by version {version} of the protocol, on {hardware([files.answers], study)}"


def _common(study: Study) -> dict[str, Any]:
    """The settings that all replicates share: not which arm is evaluated."""
    return {key: value for key, value in recipe_of(study).items() if key != "evaluate"}


class Found:
    """What the ways of all replicates found, task by task.

    Args:
        study: what all of them share; it has the endpoint (``report.primary``).
    """

    def __init__(self, replicates: Sequence[Replicate], study: Study) -> None:
        primary = study.report.primary
        self._turns = Shape(primary.trajectories, primary.turns)
        self.study = study
        played = {(Side(r.arm, way), r.seed): own for r in replicates for way, own in r.ways.items()}
        self._tasks = {str(task) for own in played.values() for task in own["task_id"]}
        self._best = {key: self._of(own, *key) for key, own in played.items()}
        self._unjudged = {
            key: len(self._tasks) * self.shape(key[0]).num_kernels - int(own["outcome"].notna().sum())
            for key, own in played.items()
        }

    def shape(self, side: Side) -> Shape:
        return self._turns if side.way == "turns" else self._turns.as_first_answers

    def _of(self, scores: pd.DataFrame, side: Side, seed: int) -> pd.DataFrame:
        """Tasks x measures."""
        shape, what = self.shape(side), f"seed {seed} of {side.arm}, {side.way}"
        if lacking := sorted(self._tasks - set(scores["task_id"])):
            raise DataError(f"{what}: no answer to {len(lacking)} tasks that others have, {lacking[0]} first")
        played = scores.groupby("task_id").agg({"trajectory": "nunique", "turn": "max"})
        other = played[(played["trajectory"] != shape.trajectories) | (played["turn"] != shape.turns)]
        if len(other) or scores.duplicated(["task_id", "trajectory", "turn"]).any():
            raise DataError(f"{what}: not {shape} kernels a task, as declared: {[*other.index, 'some twice'][0]}")
        return spend([scores], shape).values.droplevel(1, axis=1).rename(columns={"correct": "solved"})

    def seeds(self, *sides: Side) -> list[int]:
        """That all sides have."""
        own = [{seed for of, seed in self._best if of == side} for side in sides]
        return sorted(set.intersection(*own))

    def of_both(self, measure: str, side: Side, against: Side) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Tasks x seeds of each, of the seeds that both have; NaN where either has nothing of a task."""
        seeds = self.seeds(side, against)
        own, other = (pd.DataFrame({s: self._best[of, s][measure] for s in seeds}) for of in (side, against))
        return own.where(other.notna()), other.where(own.notna())

    def difference(self, own: pd.DataFrame, other: pd.DataFrame) -> Interval:
        """Of what `of_both` found, in the same tasks and seeds. One seed has no interval: it does not show how seeds
        differ."""
        found = minus(mean_estimate(own, self.study), mean_estimate(other, self.study)).interval
        return found if own.notna().any().sum() > 1 else Interval(found.value, math.nan, math.nan)

    def row(self, endpoint: str, measure: str, side: Side, against: Side, without: str | None = None) -> dict[str, Any]:
        """Numbers are absent where no seed has both.

        Args:
            without: a task that is left out.
        """
        seeds = self.seeds(side, against)
        left = [without] if without else []
        own, other = (values.drop(index=left) for values in self.of_both(measure, side, against))
        difference = self.difference(own, other)
        return {
            **{"endpoint": endpoint, "measure": measure},
            **{"policy": _name(side), "spent": str(self.shape(side))},
            **{"against": _name(against), "against_spent": str(self.shape(against))},
            **{"without": without, "value": own.mean().mean(), "against_value": other.mean().mean()},
            **dict(zip(with_ends("difference"), difference, strict=True)),
            "detectable": smallest_shown(difference.low, difference.high),
            "num_seeds": int(own.notna().any().sum()),
            "num_seeds_declared": min(DECLARED.get(s.arm, 0) for s in (side, against)),
            "num_tasks": int(own.notna().any(axis=1).sum()),
            "num_unjudged": sum(self._unjudged[of, seed] for of in (side, against) for seed in seeds),
        }


def primary_sides(study: Study) -> tuple[Side, Side]:
    return Side(str(study.report.primary.policy), "turns"), Side(str(study.report.primary.against), "first")


def _name(side: Side) -> str:
    return f"base model of {side.arm}" if side.way == "base" else side.arm


def replicates_table(found: Found) -> pd.DataFrame:
    """The primary endpoint first, then the secondary ones, then all that is exploratory; last the primary endpoint
    without the task that weighs most in it."""
    primary = MEASURES[0], *primary_sides(found.study)
    asked = [
        (PRIMARY if (measure, *sides) == primary else endpoint, measure, *sides)
        for endpoint, sides in _compared(found.study)
        for measure in MEASURES
    ]
    asked.sort(key=lambda row: (PRIMARY, SECONDARY, EXPLORATORY).index(row[0]))
    rows = [found.row(*row) for row in asked]
    own, other = found.of_both(*primary)
    added = (own - other).mean(axis=1).abs()
    if added.any():
        rows.append(found.row(EXPLORATORY, *primary, without=str(added.idxmax())))
    return pd.DataFrame(rows, columns=COLUMNS)


def _compared(study: Study) -> Iterator[tuple[str, tuple[Side, Side]]]:
    """Two sides each, and the endpoint that all measures of them are, but the primary one."""
    primary = study.report.primary
    multi, single = str(primary.policy), str(primary.against)
    others = [arm for arm in DECLARED if arm not in (multi, single)]
    endpoints = {arm: EXPLORATORY if arm in others else SECONDARY for arm in (multi, single, *others)}
    for arm in (multi, *others):
        yield endpoints[arm], (Side(arm, "turns"), Side(single, "first"))
    for arm, endpoint in endpoints.items():
        own, other = ("first", "turns") if arm == single else ("turns", "first")
        yield endpoint, (Side(arm, other), Side(arm, own))
        yield endpoint, (Side(arm, own), Side(arm, "base"))
    for arm in (multi, *others):
        for way in ("first", "turns"):  # spent alike, training alone differs
            yield EXPLORATORY, (Side(arm, way), Side(single, way))
