"""Test-time search compared: what each strategy has found after so many kernels and so many seconds of the device.

``search``: one row for each policy, seed, strategy and number of kernels. ``search_turns``: what turns are worth under
each strategy whose trajectories do not depend on each other (`kevin.report.turns`), controls among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import read_tasks, read_turns, write_csv
from kevin.report import metrics
from kevin.report.budgets import doublings
from kevin.report.metrics import mean_estimate, with_ends
from kevin.report.recipes import policy_order, recipes
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
    found: dict[tuple[str, str], list[SearchRollout]] = {}
    for path in paths:
        is_published = path.suffix == ".csv"
        read = read_published_search(path, study) if is_published else [read_rollout(path, tasks, study)]
        for rollout in read:
            if not (rollout.strategy and rollout.turn_seconds):
                raise DataError(f"{path}: not a rollout of a strategy; make it again with: snakemake {path}")
            found.setdefault((rollout.policy, rollout.strategy), []).append(rollout)
    policies = policy_order([policy for policy, _ in found], study)
    strategies = [*study.search.names, *(strategy for _, strategy in found)]
    rollouts = []
    for key in sorted(found, key=lambda key: (policies.index(key[0]), strategies.index(key[1]))):
        scores = pd.concat([own.scores for own in found[key]], ignore_index=True)
        seconds = [sum(parts) for parts in zip(*(own.turn_seconds for own in found[key]), strict=True)]
        rollouts.append(SearchRollout(*key, scores, seconds))
    return rollouts


SECONDS = "search_seconds.csv"
_SECONDS = ["policy", "strategy", "turn", "seconds"]


def write_seconds(rollouts: Sequence[SearchRollout], out: Path) -> None:
    """Seconds of the device, one row a policy, strategy and turn, of all held-out tasks together."""
    rows = [(r.policy, r.strategy, n, s) for r in rollouts for n, s in enumerate(r.turn_seconds, start=1)]
    write_csv(out, pd.DataFrame(rows, columns=_SECONDS))


def read_published_search(path: Path, study: Study) -> list[SearchRollout]:
    """Raises DataError where a file cannot be read."""
    answers = [own.assign(strategy=s) for s, own in read_answers(path, study.reward) if s is not None]
    if not answers:
        return []
    written = read_typed(path.with_name(SECONDS), "seconds", {"turn": "int64", "seconds": "float64"}, _SECONDS)
    seconds = {key: own["seconds"].tolist() for key, own in written.groupby(["policy", "strategy"])}
    found = []
    for (policy, strategy), scores in pd.concat(answers, ignore_index=True).groupby(["policy", "strategy"], sort=False):
        if (policy, strategy) not in seconds:
            raise DataError(f"{path.with_name(SECONDS)}: no seconds of {strategy} by {policy}")
        own = scores.drop(columns="strategy")
        found.append(SearchRollout(str(policy), str(strategy), own, seconds[policy, strategy]))
    return found


def search_table(rollouts: Sequence[SearchRollout], study: Study) -> pd.DataFrame:
    """``correct``: share of tasks with a correct kernel so far; ``speedup``: of the fastest one, 0 without any, mean
    over tasks. ``kernels`` and ``gpu_seconds``: so far, of one task; the seconds are the mean over tasks.

    After each turn of all trajectories; with a single turn for 1, 2, 4, ... of them drawn without replacement (unbiased
    estimate), which take their share of the seconds. Several seeds of a policy have a row each, and one together where
    all have the same number of kernels, with the mean of their seconds.
    """
    rows = []
    for recipe in recipes((r.policy for r in rollouts), study):
        found = {(r.policy, r.strategy): _so_far(r) for r in rollouts if r.policy in recipe.seeds}
        for strategy in dict.fromkeys(strategy for _, strategy in found):
            for row in recipe.rows():
                head = {"policy": row.kind, "seed": row.seed, "strategy": strategy, "num_seeds": row.num_seeds}
                seeds = [found.get((policy, strategy), {}) for policy in row.seeds]
                for kernels in (n for n in seeds[0] if all(n in own for own in seeds)):
                    here = [own[kernels] for own in seeds]
                    cells = metrics.cells(
                        {m: mean_estimate((own.best[m] for own in here), study) for m in ("correct", "speedup")}
                    )
                    cells["num_tasks"] = max(len(own.best) for own in here)
                    cells["gpu_seconds"] = sum(own.seconds / len(own.best) for own in here) / len(here)
                    rows.append(head | {"kernels": kernels} | cells)
    return pd.DataFrame(rows, columns=COLUMNS).astype({"seed": "Int64"})


class _SoFar(NamedTuple):
    seconds: float
    """Of all tasks."""
    best: pd.DataFrame
    """By task: columns correct, speedup."""


def _so_far(rollout: SearchRollout) -> dict[int, _SoFar]:
    """By kernels of one task, where there is something to say."""
    most = int(rollout.scores["trajectory"].max()) + 1
    seconds = rollout.turn_seconds
    if len(seconds) == 1:
        first = metrics.trajectory_best(rollout.scores)
        return {k: _SoFar(seconds[0] * k / most, _best(first, k)) for k in doublings(metrics.smallest_group(first))}
    return {
        most * turn: _SoFar(sum(seconds[:turn]), _best(metrics.trajectory_best(rollout.scores, turn)))
        for turn in range(1, len(seconds) + 1)
    }


def _best(trajectories: pd.DataFrame, drawn: int | None = None) -> pd.DataFrame:
    return metrics.task_values(trajectories, drawn).rename(columns=lambda name: name.removesuffix("_best"))


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
