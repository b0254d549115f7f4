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
from kevin.report.budgets import MULTI, SINGLE, Budget, Evidence, NotMeasured, shared_tasks
from kevin.report.metrics import Estimate, Shape, exp, mean_estimate, minus, ratio, with_ends
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


class Found(NamedTuple):
    """Of one recipe: its splits, and its number among recipes, by which its seeds are drawn."""

    budgets: Mapping[Shape, Budget]
    stream: int


class Primary:
    """What all recipes found, on the tasks that all have answered."""

    def __init__(self, evidence: Evidence) -> None:
        self.study = evidence.study
        self._evidence = evidence
        self.found = {side: Found(evidence.every_budget(side), stream) for stream, side in enumerate(evidence.recipes)}
        played = [budget.speedup for own in self.found.values() for budget in own.budgets.values()]
        self.tasks = shared_tasks(played) if played else pd.Index([])

    def endpoint(self) -> Endpoint:
        """Raises NotMeasured where a policy of it is not evaluated."""
        config = self.study.report.primary
        policy = self._side(config.policy, MULTI)
        return Endpoint(policy, Shape(config.trajectories, config.turns), self._side(config.against, SINGLE))

    def _side(self, policy: str | None, part: str) -> Recipe:
        if policy is None:
            return self._evidence.recipe(part)
        found = [side for side in self._evidence.recipes if side.policy == policy]
        if not found:
            raise NotMeasured(f"{policy}, which report.primary names, is not evaluated")
        return found[0]

    def reference(self) -> Recipe | None:
        """Whose first answers every row is compared with."""
        try:
            return self._side(self.study.report.primary.against, SINGLE)
        except NotMeasured:
            return None

    def measured(self, endpoint: Endpoint) -> Estimate:
        """Of the endpoint, as a logarithm. Raises NotMeasured where one of the two has not spent so many kernels so."""
        sides = ((endpoint.policy, endpoint.shape), (endpoint.against, endpoint.shape.as_first_answers))
        for side, shape in sides:
            if shape not in self.found[side].budgets:
                raise NotMeasured(f"{side.policy} has not spent {shape.num_kernels} kernels a task as {shape}")
        return minus(*(self.mean(side, shape, "log_speedup") for side, shape in sides))

    def mean(self, side: Recipe, shape: Shape, column: str, tasks: pd.Index | None = None) -> Estimate:
        """Over tasks and seeds, of a column of `Budget`."""
        own = self.found[side]
        values: pd.DataFrame = getattr(own.budgets[shape], column)
        return mean_estimate(values.loc[self.tasks if tasks is None else tasks], self.study, own.stream)


def primary_table(
    scores: pd.DataFrame, compiled: Mapping[str, float], study: Study, search: pd.DataFrame | None = None
) -> pd.DataFrame:
    """See the module's text.

    Args:
        scores: all policies and held-out splits, the ceiling among them.
        compiled: speedup of torch.compile over eager by task id.
        search: of `kevin.report.budgets.read_plain_search`, where there are such rollouts.
    """
    evidence = Evidence(scores, study, search)
    primary = Primary(evidence)
    rows = [{"source": OURS} | row for row in (*_rows(primary), *_references(primary, scores, compiled, search))]
    frame = pd.DataFrame([*rows, *_theirs()], columns=COLUMNS)
    return frame.astype(dict.fromkeys(_WHOLE, "Int64"))


def _rows(primary: Primary) -> Iterator[dict[str, Any]]:
    try:
        endpoint: Endpoint | None = primary.endpoint()
    except NotMeasured:
        endpoint = None
    places = [(side, own.stream, shape) for side, own in primary.found.items() for shape in own.budgets]
    for side, _, shape in sorted(places, key=lambda place: (place[2].num_kernels, place[1], place[2].turns)):
        is_primary = endpoint is not None and (side, shape) == (endpoint.policy, endpoint.shape)
        row: dict[str, Any] = {"policy": side.policy, "label": side.label(primary.study), "num_seeds": side.num_seeds}
        row |= {"kernels": shape.num_kernels, **shape._asdict(), "num_tasks": len(primary.tasks)}
        row["endpoint"] = PRIMARY if is_primary else EXPLORATORY
        yield row | _cells(_levels(primary, side, shape) | _comparisons(primary, side, shape))


def _levels(primary: Primary, side: Recipe, shape: Shape) -> dict[str, Estimate]:
    return {
        "speedup": primary.mean(side, shape, "speedup"),
        "geomean": exp(primary.mean(side, shape, "log_speedup")),
        "fast_1": primary.mean(side, shape, "fast_1"),
        "solved": primary.mean(side, shape, "correct"),
    }


def _cells(found: Mapping[str, Estimate]) -> dict[str, float]:
    return {name: value for of, estimate in found.items() for name, value in estimate.interval.cells(of).items()}


def _comparisons(primary: Primary, side: Recipe, shape: Shape) -> dict[str, Estimate]:
    first = shape.as_first_answers
    found: dict[str, Estimate] = {}
    if shape.turns > 1 and first in primary.found[side].budgets:
        found["over_first"] = ratio(*(primary.mean(side, way, "speedup") for way in (shape, first)))
    reference = primary.reference()
    if reference is not None and (side, shape) != (reference, first) and first in primary.found[reference].budgets:
        ours, theirs = primary.mean(side, shape, "log_speedup"), primary.mean(reference, first, "log_speedup")
        found["over_reference"] = exp(minus(ours, theirs))
    return found


# --- what there is to find ----------------------------------------------------------------------------------------


def _references(
    primary: Primary, scores: pd.DataFrame, compiled: Mapping[str, float], search: pd.DataFrame | None
) -> Iterator[dict[str, Any]]:
    known = fastest_known(scores, search).reindex(primary.tasks).fillna(0.0)
    eager = pd.Series(1.0, index=primary.tasks)
    measured = pd.Series(dict(compiled), dtype="float64").reindex(primary.tasks)
    kinds = {EAGER: eager, COMPILED: measured.dropna(), KNOWN: known}
    kinds[ROOM] = pd.concat([eager, measured, known], axis=1).max(axis=1)
    for name, speedups in kinds.items():
        if len(speedups):
            yield _reference(primary, name, speedups.sort_index())


def fastest_known(scores: pd.DataFrame, search: pd.DataFrame | None) -> pd.Series:
    """Speedup of the fastest correct kernel of all that were judged, by task; tasks without one are left out."""
    every = pd.concat([own[["task_id", "outcome", "speedup"]] for own in (scores, search) if own is not None])
    correct = every[every["outcome"] == Outcome.CORRECT.value]
    return correct.astype({"speedup": "float64"}).groupby("task_id")["speedup"].max()


def _reference(primary: Primary, name: str, speedups: pd.Series) -> dict[str, Any]:
    study = primary.study
    logs = mean_estimate(np.log(speedups.clip(lower=1.0)).to_frame(), study)
    found = {
        "speedup": mean_estimate(speedups.to_frame(), study),
        "geomean": exp(logs),
        "fast_1": mean_estimate((speedups >= 1).astype(float).to_frame(), study),
        "solved": mean_estimate((speedups > 0).astype(float).to_frame(), study),
    }
    reference, config = primary.reference(), study.report.primary
    first = Shape(config.trajectories, config.turns).as_first_answers
    if reference is not None and first in primary.found[reference].budgets:
        tasks = pd.Index(speedups.index)
        found["over_reference"] = exp(minus(logs, primary.mean(reference, first, "log_speedup", tasks)))
    row = {"policy": name, "label": name, "endpoint": EXPLORATORY, "num_tasks": len(speedups)}
    return row | _cells(found)


def _theirs() -> list[dict[str, Any]]:
    """The paper's Table 2, with fast_1 where its Table 1 has it."""
    return [
        row | {"source": f"{row['source']}, {row['split']}", "kernels": row["budget"], "solved": row["correct"]}
        for row in paper.table2()
    ]
