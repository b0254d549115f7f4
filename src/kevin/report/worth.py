"""Do turns pay, for whom, what does training change in that, and how are a task's kernels best spent?

One row a recipe, at the number of kernels that the paper's claims are measured at (`kevin.report.claims`): ``worth`` is
the fastest kernel that as many turns as possible find, over that of as many first answers; ``over_base`` and
``over_single`` how much more it is than before training, and than after single-turn training; the last columns are the
split of these kernels that finds the fastest ones. ``equal_kernels`` has the same at every smaller number of kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.report.budgets import Budget, budgets_of_each_size
from kevin.report.claims import (
    BASE,
    MIN_TASKS,
    MULTI,
    NOT_SHOWN,
    REFUTED,
    SHOWN,
    SINGLE,
    Evidence,
    NotMeasured,
    interval_verdict,
    shared_tasks,
)
from kevin.report.estimates import Estimate, mean_estimate, minus, ratio
from kevin.report.metrics import Interval
from kevin.report.recipes import Recipe

PAY, COST, NOT_TOLD = "turns pay", "turns cost", "not told apart"
"""What the interval of ``worth`` says: above 1, below 1, both, or nearer to 1 than the clock tells apart."""

_MEASURES = ("worth", "over_base", "over_single", "best")
COLUMNS = [
    *("policy", "label", "num_seeds", "kernels", "serial", "parallel", "verdict", "best_split"),
    *(f"{name}{end}" for name in _MEASURES for end in ("", "_low", "_high")),
    "num_tasks",
]
_AT_EACH = ("speedup_turns", "speedup_first", "worth", "over_base", "over_single")
EQUAL_COLUMNS = [
    *("policy", "label", "num_seeds", "kernels", "trajectories", "turns"),
    *(f"{name}{end}" for name in _AT_EACH for end in ("", "_low", "_high")),
    "num_tasks",
]


def worth_table(scores: pd.DataFrame, study: Study, search: pd.DataFrame | None = None) -> pd.DataFrame:
    """No rows where kernels were spent in one way only.

    A recipe whose first answers are all wrong has no ``worth``; none has a verdict in a miniature, or of few tasks.

    Args:
        scores: all policies and held-out splits.
        search: of `kevin.report.budgets.read_plain_search`, where there are such rollouts.
    """
    evidence = Evidence(scores, study, search)
    frame = pd.DataFrame(list(_rows(evidence)), columns=COLUMNS)
    return frame.astype(dict.fromkeys(["num_seeds", "kernels", "num_tasks"], "Int64"))


def equal_kernels_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The same of every number of kernels that the rollouts hold: the best of k trajectories of t turns, both powers of
    two, over the best of k t first answers. Without verdicts: of so many rows some lie apart by luck.

    Args:
        scores: all policies and held-out splits.
    """
    frame = pd.DataFrame(list(_equal_rows(Evidence(scores, study))), columns=EQUAL_COLUMNS)
    whole = ["num_seeds", "kernels", "trajectories", "turns", "num_tasks"]
    return frame.astype(dict.fromkeys(whole, "Int64"))


class _Worth(NamedTuple):
    ways: Sequence[Budget]
    """Of equal numbers of kernels, fewest turns first."""
    estimates: Sequence[Estimate]
    """Mean over tasks of the best kernel's speedup, of each."""
    ratio: Estimate


def _rows(evidence: Evidence) -> Iterator[dict[str, Any]]:
    try:
        ways = evidence.ways(evidence.recipes)
    except NotMeasured:
        return
    for common, worth in _compared(evidence, ways):
        row = common | _own_cells(worth)
        if row["num_tasks"] >= MIN_TASKS and not evidence.study.report.miniature:
            row["verdict"] = _verdict(worth.ratio.interval, evidence.study.report.timing_resolution)
        yield row


def _equal_rows(evidence: Evidence) -> Iterator[dict[str, Any]]:
    for ways in budgets_of_each_size([evidence.scores(side) for side in evidence.recipes]):
        for common, worth in _compared(evidence, ways):
            split = worth.ways[-1]
            row = common | {"kernels": split.num_kernels, "trajectories": split.trajectories, "turns": split.turns}
            first, turns = (estimate.interval for estimate in worth.estimates)
            yield row | _interval("speedup_turns", turns) | _interval("speedup_first", first)


def _compared(evidence: Evidence, ways: Sequence[Sequence[Budget]]) -> Iterator[tuple[dict[str, Any], _Worth]]:
    """Of each recipe, whose ways to spend equal kernels these are: its row, and what the row is made of."""
    sides = evidence.recipes
    tasks = shared_tasks([budget.speedup for own in ways for budget in own])
    found: dict[Recipe, _Worth] = {}
    for stream, (side, own) in enumerate(zip(sides, ways, strict=True)):
        estimates = [mean_estimate(budget.speedup.loc[tasks], evidence.study, stream) for budget in own]
        found[side] = _Worth(own, estimates, ratio(estimates[-1], estimates[0]))
    base, single, multi = (_playing(evidence, part) for part in (BASE, SINGLE, MULTI))
    for side, worth in found.items():
        row = {"policy": side.policy, "label": side.label(evidence.study), "num_seeds": side.num_seeds}
        row |= _interval("worth", worth.ratio.interval) | {"num_tasks": len(tasks)}
        if base is not None and side in evidence.trained():
            row |= _interval("over_base", minus(worth.ratio, found[base].ratio).interval)
        if single is not None and side == multi:
            row |= _interval("over_single", minus(worth.ratio, found[single].ratio).interval)
        yield row, worth


def _own_cells(own: _Worth) -> dict[str, Any]:
    best = max(range(len(own.ways)), key=lambda i: own.estimates[i].value)
    few, many = own.ways[0], own.ways[-1]
    row = {"kernels": few.num_kernels, "serial": many.name, "parallel": few.name, "best_split": own.ways[best].name}
    return row | _interval("best", own.estimates[best].interval)


def _playing(evidence: Evidence, part: str) -> Recipe | None:
    try:
        return evidence.recipe(part)
    except NotMeasured:
        return None


def _interval(name: str, interval: Interval) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), interval, strict=True))


def _verdict(worth: Interval, resolution: float) -> str | None:
    if math.isnan(worth.value):
        return None
    if abs(worth.value - 1) < resolution:
        return NOT_TOLD
    verdict = interval_verdict(worth, 1.0, at_least=False)
    return {SHOWN: PAY, REFUTED: COST, NOT_SHOWN: NOT_TOLD}[verdict]
