"""Test-time search compared: what each strategy has found after so many kernels and so many seconds of the device.

``search``: one row for each policy, seed, strategy and number of kernels. ``search_turns``: what turns are worth under
each strategy whose trajectories do not depend on each other (`kevin.report.turns`), controls among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import read_tasks, read_turns, write_csv
from kevin.report import metrics
from kevin.report.budgets import doublings
from kevin.report.metrics import mean_estimate, with_ends
from kevin.report.recipes import by_seed, policy_order, recipes
from kevin.report.scores import read_answers, read_typed, score_frame
from kevin.report.turns import turns_table

COLUMNS = [
    *("policy", "seed", "strategy", "kernels", "gpu_seconds"),
    *with_ends("correct", "speedup"),
    *("num_tasks", "num_seeds"),
]


class SearchRollout(NamedTuple):
    """One policy under one strategy, on all held-out tasks."""

    policy: str
    strategy: str | None
    """None of a policy's own rollout."""
    scores: pd.DataFrame
    turn_seconds: list[float]
    """Of the device, turn by turn, for all tasks together."""


def read_rollout(path: Path, tasks: Path, study: Study) -> SearchRollout:
    """One file of turns, scored. Raises DataError for what is no rollout."""
    turns, meta = read_turns(path)
    if not meta.get("policy"):
        raise DataError(f"{path}: not a rollout of a policy; make it again with: snakemake {path}")
    split = str(meta.get("split"))
    scores = score_frame(turns, read_tasks(tasks), study.reward, policy=meta["policy"], split=split)
    return SearchRollout(meta["policy"], meta.get("strategy"), scores, list(meta.get("turn_seconds") or ()))


def read_search(paths: Sequence[Path], tasks: Path, study: Study) -> list[SearchRollout]:
    """Rollouts of ``kevin rollout --strategy``, those of different splits put together, in the order of the study.

    A ``.csv`` is one of published answers, beside which ``search_seconds.csv`` stands. Raises DataError for a file
    without a strategy or without the seconds of its turns.
    """
    found: dict[tuple[str, str], list[tuple[pd.DataFrame, list[float]]]] = {}
    for path in paths:
        if path.suffix == ".csv":
            for (policy, strategy), own in read_published_search(path, study):
                found.setdefault((policy, strategy), []).append(own)
            continue
        rollout = read_rollout(path, tasks, study)
        if not (rollout.strategy and rollout.turn_seconds):
            raise DataError(f"{path}: not a rollout of a strategy; make it again with: snakemake {path}")
        found.setdefault((rollout.policy, rollout.strategy), []).append((rollout.scores, rollout.turn_seconds))
    order = policy_order([policy for policy, _ in found], study)
    names = study.search.names
    ranked = sorted(
        found, key=lambda key: (order.index(key[0]), names.index(key[1]) if key[1] in names else len(names))
    )
    rollouts = []
    for key in ranked:
        scores = pd.concat([own for own, _ in found[key]], ignore_index=True)
        seconds = [sum(parts) for parts in zip(*(own for _, own in found[key]), strict=True)]
        rollouts.append(SearchRollout(*key, scores, seconds))
    return rollouts


SECONDS = "search_seconds.csv"


def write_seconds(rollouts: Sequence[SearchRollout], out: Path) -> None:
    """Seconds of the device, one row a policy, strategy and turn, of all held-out tasks together."""
    rows = [(r.policy, r.strategy, n, s) for r in rollouts for n, s in enumerate(r.turn_seconds, start=1)]
    write_csv(out, pd.DataFrame(rows, columns=["policy", "strategy", "turn", "seconds"]))


Published = tuple[tuple[str, str], tuple[pd.DataFrame, list[float]]]


def read_published_search(path: Path, study: Study) -> Iterator[Published]:
    """Policy and strategy of each, its scores and seconds. Raises DataError where a file cannot be read."""
    parts: dict[tuple[str, str], list[pd.DataFrame]] = {}
    for strategy, own in read_answers(path, study.reward):
        if strategy is not None:
            parts.setdefault((str(own["policy"].iloc[0]), strategy), []).append(own)
    if not parts:
        return
    seconds = read_typed(path.with_name(SECONDS), "seconds", {"turn": "int64", "seconds": "float64"})
    by_key = {key: own["seconds"].tolist() for key, own in seconds.groupby(["policy", "strategy"])}
    for key, frames in parts.items():
        if key not in by_key:
            raise DataError(f"{path.with_name(SECONDS)}: no seconds of {key[1]} by {key[0]}")
        yield key, (pd.concat(frames, ignore_index=True), by_key[key])


def search_table(rollouts: Sequence[SearchRollout], study: Study) -> pd.DataFrame:
    """``correct``: share of tasks with a correct kernel so far; ``speedup``: of the fastest one, 0 without any, mean
    over tasks. ``kernels`` and ``gpu_seconds``: so far, of one task; the seconds are the mean over tasks.

    After each turn of all trajectories; with a single turn for 1, 2, 4, ... of them drawn without replacement (unbiased
    estimate), which take their share of the seconds. Several seeds of a policy have a row each, and one together where
    all have the same number of kernels, with the mean of their seconds.
    """
    rows: list[dict[str, Any]] = []
    for recipe in recipes((r.policy for r in rollouts), study):
        found = {(r.policy, r.strategy): list(_so_far(r)) for r in rollouts if r.policy in recipe.seeds}
        for strategy in dict.fromkeys(strategy for _, strategy in found):
            for seed, policies in recipe.rows():
                head = {"policy": recipe.policy, "seed": seed, "strategy": strategy, "num_seeds": len(policies)}
                steps = [{s.kernels: s for s in found.get((p, strategy), ())} for p in policies]
                shared = [n for n in steps[0] if all(n in own for own in steps)]
                rows += [head | _cells([own[n] for own in steps], study) for n in shared]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"seed": "Int64"})


class _SoFar(NamedTuple):
    kernels: int
    """Of one task."""
    seconds: float
    """Of all tasks."""
    values: pd.DataFrame
    """Best by task: columns correct, speedup."""


def _cells(seeds: Sequence[_SoFar], study: Study) -> dict[str, Any]:
    cells: dict[str, Any] = {"kernels": seeds[0].kernels, "num_tasks": max(len(s.values) for s in seeds)}
    cells["gpu_seconds"] = sum(s.seconds / len(s.values) for s in seeds) / len(seeds)
    for name in ("correct", "speedup"):
        cells |= mean_estimate(by_seed([s.values[name] for s in seeds]), study).interval.cells(name)
    return cells


def _so_far(rollout: SearchRollout) -> Iterator[_SoFar]:
    """Where there is something to say."""
    num_trajectories = int(rollout.scores["trajectory"].max()) + 1
    if len(rollout.turn_seconds) == 1:
        first = metrics.trajectory_best(rollout.scores)
        most = metrics.smallest_group(first)
        for k in doublings(most):
            found = {name: metrics.best_of_k_by_task(first, name, k) for name in ("correct", "speedup")}
            yield _SoFar(k, rollout.turn_seconds[0] * k / num_trajectories, pd.DataFrame(found))
        return
    for turn in range(1, len(rollout.turn_seconds) + 1):
        by_task = metrics.task_values(metrics.trajectory_best(rollout.scores, turn))
        best = by_task[["correct_best", "speedup_best"]].set_axis(["correct", "speedup"], axis=1)
        yield _SoFar(num_trajectories * turn, sum(rollout.turn_seconds[:turn]), best)


def search_turns_table(rollouts: Sequence[SearchRollout], study: Study) -> pd.DataFrame:
    """`turns_table` with a column ``strategy``; nothing of beams and populations, whose turns have other pasts."""
    tables = []
    for strategy in dict.fromkeys(r.strategy for r in rollouts):
        config = study.search.strategies.get(strategy or "")
        own = [r for r in rollouts if r.strategy == strategy and len(r.turn_seconds) > 1]
        if own and config is not None and config.method == "trajectories":
            table = turns_table(pd.concat([r.scores for r in own], ignore_index=True), study)
            table.insert(2, "strategy", strategy)
            tables.append(table)
    if not tables:
        raise DataError("no strategy with trajectories of several turns is configured under search.strategies")
    return pd.concat(tables, ignore_index=True)
