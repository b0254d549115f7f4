"""The study's first table: what each policy finds with every number of kernels, spent on turns or on first answers.

One row a recipe (all its seeds together), number of kernels and split into trajectories x turns (powers of two, and the
most there are), on the tasks that all recipes have answered. Beside the levels stand two comparisons at equal kernels:
``over_first``, the mean speedup over that of as many first answers of the same recipe; ``over_reference``, the
geometric mean speedup over that of as many first answers of ``report.primary.against``. Of one row the second of these
is the study's primary endpoint (``report.primary``), which the column ``endpoint`` says. All else is exploratory.

Then what there is to find: eager, torch.compile, the fastest correct kernel that was judged for a task (of policies,
their further rollouts, the kernel writer), and the fastest of the three. Their ``over_reference`` is the room that is
left. Last the paper's Table 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.core.types import Outcome
from kevin.report import paper
from kevin.report.budgets import MULTI, NO_SEARCH, SINGLE, Evidence, NotMeasured
from kevin.report.metrics import Estimate, Shape, cells, exp, mean_estimate, minus, ratio, with_ends
from kevin.report.paper import OURS
from kevin.report.recipes import Recipe

PRIMARY, EXPLORATORY = "primary", "exploratory"
EAGER, COMPILED = "PyTorch eager", "torch.compile"
KNOWN, ROOM = "fastest correct kernel judged", "fastest of kernel, eager and torch.compile"
_MEASURES = ("speedup", "geomean", "fast_1", "solved", "over_first", "over_reference")
COLUMNS = [
    *("source", "policy", "label", "num_seeds", "kernels", "trajectories", "turns", "endpoint"),
    *with_ends(*_MEASURES),
    "num_tasks",
]
_WHOLE = ("num_seeds", "kernels", "trajectories", "turns", "num_tasks")


class Endpoint(NamedTuple):
    """The study's primary endpoint: two recipes at equal kernels."""

    policy: Recipe
    shape: Shape
    against: Recipe
    """Spends as many on first answers."""


def endpoint_of(evidence: Evidence) -> Endpoint:
    """Raises NotMeasured where a policy of it is not evaluated."""
    config = evidence.study.report.primary
    policy = evidence.named(config.policy, MULTI)
    return Endpoint(policy, Shape(config.trajectories, config.turns), evidence.named(config.against, SINGLE))


def measured(endpoint: Endpoint, evidence: Evidence) -> Estimate:
    """As a logarithm. Raises NotMeasured where one of the two has not spent so many kernels so."""
    sides = ((endpoint.policy, endpoint.shape), (endpoint.against, endpoint.shape.as_first_answers))
    for side, shape in sides:
        if shape not in evidence.budgets[side]:
            raise NotMeasured(f"{side.policy} has not spent {shape.num_kernels} kernels a task as {shape}")
    return minus(*(evidence.mean(side, shape, "log_speedup") for side, shape in sides))


def primary_table(
    scores: pd.DataFrame, compiled: Mapping[str, float], study: Study, search: pd.DataFrame = NO_SEARCH
) -> pd.DataFrame:
    """See the module's text.

    Args:
        scores: all policies and held-out splits, the ceiling among them.
        compiled: speedup of torch.compile over eager by task id.
        search: of `kevin.report.budgets.read_plain_search`, where there are such rollouts.
    """
    evidence = Evidence(scores, study, search)
    rows = [{"source": OURS} | row for row in (*_rows(evidence), *_references(evidence, scores, compiled))]
    # the paper's Table 2, with fast_1 where its Table 1 has it
    theirs = [
        row | {"source": f"{row['source']}, {row['split']}", "kernels": row["budget"], "solved": row["correct"]}
        for row in paper.table2()
    ]
    return pd.DataFrame([*rows, *theirs], columns=COLUMNS).astype(dict.fromkeys(_WHOLE, "Int64"))


def _rows(evidence: Evidence) -> Iterator[dict[str, Any]]:
    try:
        endpoint: Endpoint | None = endpoint_of(evidence)
    except NotMeasured:
        endpoint = None
    places = [(shape, side) for side, own in evidence.budgets.items() for shape in own]
    order = evidence.recipes.index
    for shape, side in sorted(places, key=lambda place: (place[0].num_kernels, order(place[1]), place[0].turns)):
        is_primary = endpoint is not None and (side, shape) == (endpoint.policy, endpoint.shape)
        row: dict[str, Any] = {"policy": side.policy, "label": side.label(evidence.study), "num_seeds": side.num_seeds}
        row |= {"kernels": shape.num_kernels, **shape._asdict(), "num_tasks": len(evidence.tasks)}
        row["endpoint"] = PRIMARY if is_primary else EXPLORATORY
        logs = evidence.mean(side, shape, "log_speedup")
        found = {
            "speedup": evidence.mean(side, shape, "speedup"),
            "geomean": exp(logs),
            "fast_1": evidence.mean(side, shape, "fast_1"),
            "solved": evidence.mean(side, shape, "correct"),
        }
        first = shape.as_first_answers
        if shape.turns > 1 and first in evidence.budgets[side]:
            found["over_first"] = ratio(found["speedup"], evidence.mean(side, first, "speedup"))
        if (side, shape) != (_reference(evidence), first):
            found |= _over_reference(logs, first, evidence)
        yield row | cells(found)


def _reference(evidence: Evidence) -> Recipe | None:
    """Whose first answers every row is compared with."""
    try:
        return evidence.named(evidence.study.report.primary.against, SINGLE)
    except NotMeasured:
        return None


def _over_reference(
    logs: Estimate, first: Shape, evidence: Evidence, tasks: pd.Index | None = None
) -> dict[str, Estimate]:
    reference = _reference(evidence)
    if reference is None or first not in evidence.budgets[reference]:
        return {}
    return {"over_reference": exp(minus(logs, evidence.mean(reference, first, "log_speedup", tasks)))}


# --- what there is to find ----------------------------------------------------------------------------------------


def _references(evidence: Evidence, scores: pd.DataFrame, compiled: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    study, tasks = evidence.study, evidence.tasks
    config = study.report.primary
    every = pd.concat([own[["task_id", "outcome", "speedup"]] for own in (scores, evidence.search)])
    correct = every[every["outcome"] == Outcome.CORRECT.value].astype({"speedup": "float64"})
    known = correct.groupby("task_id")["speedup"].max().reindex(tasks).fillna(0.0)
    eager = pd.Series(1.0, index=tasks)
    measured = pd.Series(dict(compiled), dtype="float64").reindex(tasks)
    kinds = {EAGER: eager, COMPILED: measured.dropna(), KNOWN: known}
    if not kinds[COMPILED].empty:
        kinds[ROOM] = pd.concat([eager, measured, known], axis=1).max(axis=1)
    for name, speedups in kinds.items():
        if speedups.empty:
            continue
        logs = mean_estimate(np.log(speedups.clip(lower=1.0)), study)
        found = {
            "speedup": mean_estimate(speedups, study),
            "geomean": exp(logs),
            "fast_1": mean_estimate((speedups >= 1).astype(float), study),
            "solved": mean_estimate((speedups > 0).astype(float), study),
        }
        first = Shape(config.trajectories, config.turns).as_first_answers
        found |= _over_reference(logs, first, evidence, pd.Index(speedups.index))
        yield {"policy": name, "label": name, "endpoint": EXPLORATORY, "num_tasks": len(speedups)} | cells(found)
