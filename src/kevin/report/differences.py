"""Policies against each other, task by task: paired differences with intervals over tasks and seeds.

One row for each pair of recipes (the later one in ``evaluate`` against the earlier one), measure, split and subset of
the tasks that both have answered. ``correct``, ``speedup`` and ``fast_1`` are those of the tables of policies, best of
a task's trajectories and their mean, at as many trajectories and turns as both have; ``mended``, ``kept`` and
``improved`` those of `kevin.report.turns`, all turns together. Each resample draws the same tasks for both policies,
and seeds of each apart (`kevin.report.estimates`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from itertools import combinations
from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.estimates import Estimate, mean_estimate, minus, share_estimate, smallest_shown
from kevin.report.metrics import Shape
from kevin.report.parts import parts, subsets
from kevin.report.recipes import Recipe, by_seed, recipes
from kevin.report.turns import turn_changes

MEANS = tuple(f"{name}_{of}" for name in ("correct", "speedup", "fast_1") for of in ("best", "avg"))
SHARES = ("mended", "kept", "improved")
METRICS = (*MEANS, *SHARES)
COLUMNS = [
    *("policy", "against", "metric", "split", "subset", "difference", "difference_low", "difference_high"),
    *("excludes_zero", "detectable", "num_tasks", "num_seeds", "num_seeds_against"),
]


def differences_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """See the module's text. ``excludes_zero``: whether the interval does; ``detectable``: the smallest difference that
    so many tasks and seeds could have shown. A difference of which a policy has no such kernels, or that no task is
    shared for, has no numbers."""
    found = recipes(scores["policy"].unique(), study)
    frames = {str(policy): own for policy, own in scores.groupby("policy", sort=False)}
    shares = {policy: _shares(own) for policy, own in frames.items()}

    @cache
    def values(policy: str, shape: Shape) -> dict[str, pd.Series]:
        means = metrics.task_values_at(frames[policy], shape, (1.0,))
        return shares[policy] | {name: means[name] for name in MEANS}

    rows: list[list[Any]] = []
    for split, part in parts(scores):
        for subset, chosen in subsets(part):
            tasks = pd.Index(chosen["task_id"].unique())
            for against, policy in combinations(found, 2):
                sides = (policy, against)
                shape = metrics.common_shape([frames[seed] for side in sides for seed in side.seeds])
                own = {seed: values(seed, shape) for side in sides for seed in side.seeds}
                for metric in METRICS:
                    cells = _difference(policy, against, metric, own, tasks, study)
                    head = [policy.policy, against.policy, metric, split, subset]
                    rows.append([*head, *cells, policy.num_seeds, against.num_seeds])
    return pd.DataFrame(rows, columns=COLUMNS)


def _shares(own: pd.DataFrame) -> dict[str, pd.Series]:
    """Of one policy, by task: of each of `SHARES` what is counted and of how many."""
    found: dict[str, pd.Series] = {}
    groups = turn_changes(own).groupby("task_id")
    for name in SHARES:
        found |= {name: groups[name].sum(), f"{name}_of": groups[name].count()}
    return found


def _difference(
    policy: Recipe,
    against: Recipe,
    metric: str,
    values: Mapping[Any, Mapping[str, pd.Series]],
    tasks: pd.Index,
    study: Study,
) -> list[Any]:
    """Difference, its ends, whether they exclude 0, what could have been shown, and the number of tasks."""
    sides = [by_seed([values[seed][metric] for seed in side.seeds]) for side in (policy, against)]
    shared = sides[0].index.intersection(sides[1].index).intersection(tasks).sort_values()
    if not len(shared):
        return [None, None, None, None, None, 0]
    estimates: list[Estimate] = []
    for stream, (side, own) in enumerate(zip((policy, against), sides, strict=True)):
        if metric in SHARES:
            of = by_seed([values[seed][f"{metric}_of"] for seed in side.seeds])
            estimates.append(share_estimate(own.loc[shared], of.loc[shared], study, stream))
        else:
            estimates.append(mean_estimate(own.loc[shared], study, stream))
    interval = minus(*estimates).interval
    excludes = None if math.isnan(interval.value) else bool(interval.low > 0 or interval.high < 0)
    return [*interval, excludes, smallest_shown(interval.low, interval.high), len(shared)]
