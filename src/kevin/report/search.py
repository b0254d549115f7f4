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
from kevin.report.metrics import Interval
from kevin.report.notes import read_note, with_note
from kevin.report.scores import policy_order, score_frame, seed_numbers
from kevin.report.turns import turns_table

COLUMNS = [
    "policy",
    "seed",
    "strategy",
    "kernels",
    "gpu_seconds",
    *(f"{name}{end}" for name in ("correct", "speedup") for end in ("", "_low", "_high")),
    "num_tasks",
]


class SearchRollout(NamedTuple):
    """One policy under one strategy, on all held-out tasks."""

    policy: str
    strategy: str
    scores: pd.DataFrame
    turn_seconds: list[float]
    """Of the device, turn by turn, for all tasks together."""


def read_search(paths: Sequence[Path], tasks: Path, study: Study) -> list[SearchRollout]:
    """Rollouts of ``kevin rollout --strategy``, those of different splits put together, in the order of the study.

    Raises DataError for a file without a strategy or without the seconds of its turns.
    """
    every = read_tasks(tasks)
    found: dict[tuple[str, str], list[tuple[pd.DataFrame, list[float]]]] = {}
    for path in paths:
        turns, meta = read_turns(path)
        policy, strategy, split = (meta.get(key) for key in ("policy", "strategy", "split"))
        if not (policy and strategy and meta.get("turn_seconds")):
            raise DataError(f"{path}: not a rollout of a strategy; make it again with: snakemake {path}")
        scores = score_frame(turns, every, study.reward, policy=policy, split=str(split))
        found.setdefault((policy, strategy), []).append((scores, list(meta["turn_seconds"])))
    order = policy_order([policy for policy, _ in found], study)
    names = list(study.search.strategies)
    ranked = sorted(
        found, key=lambda key: (order.index(key[0]), names.index(key[1]) if key[1] in names else len(names))
    )
    rollouts = []
    for key in ranked:
        scores = pd.concat([own for own, _ in found[key]], ignore_index=True)
        seconds = [sum(parts) for parts in zip(*(own for _, own in found[key]), strict=True)]
        rollouts.append(SearchRollout(*key, scores, seconds))
    return rollouts


def search_table(rollouts: Sequence[SearchRollout], study: Study) -> pd.DataFrame:
    """``correct``: share of tasks with a correct kernel so far; ``speedup``: of the fastest one, 0 without any, mean
    over tasks. ``kernels`` and ``gpu_seconds``: so far, of one task; the seconds are the mean over tasks.

    After each turn of all trajectories; with a single turn for 1, 2, 4, ... of them drawn without replacement (unbiased
    estimate), which take their share of the seconds.
    """
    seeds = seed_numbers(list(dict.fromkeys(r.policy for r in rollouts)), study)
    rows: list[dict[str, Any]] = []
    for rollout in rollouts:
        policy, seed = seeds[rollout.policy]
        head = {"policy": policy, "seed": seed, "strategy": rollout.strategy}
        for kernels, seconds, values in _so_far(rollout):
            cells: dict[str, float] = {}
            for name in ("correct", "speedup"):
                interval: Interval = metrics.mean_interval(
                    values[name], num_resamples=study.report.num_bootstrap, seed=study.seed
                )
                cells |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
            num_tasks = len(values)
            rows.append(
                head | {"kernels": kernels, "gpu_seconds": seconds / num_tasks} | cells | {"num_tasks": num_tasks}
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def _so_far(rollout: SearchRollout) -> Iterator[tuple[int, float, pd.DataFrame]]:
    """(kernels a task, seconds of all tasks, best by task) where there is something to say."""
    num_trajectories = int(rollout.scores["trajectory"].max()) + 1
    if len(rollout.turn_seconds) == 1:
        first = metrics.trajectory_best(rollout.scores)
        most = metrics.smallest_group(first)
        for k in dict.fromkeys([*(2**i for i in range(most.bit_length())), most]):
            found = {name: metrics.best_of_k_by_task(first, name, k) for name in ("correct", "speedup")}
            yield k, rollout.turn_seconds[0] * k / num_trajectories, pd.DataFrame(found)
        return
    for turn in range(1, len(rollout.turn_seconds) + 1):
        by_task = metrics.task_values(metrics.trajectory_best(rollout.scores, turn))
        best = by_task[["correct_best", "speedup_best"]].set_axis(["correct", "speedup"], axis=1)
        yield num_trajectories * turn, sum(rollout.turn_seconds[:turn]), best


def search_turns_table(rollouts: Sequence[SearchRollout], study: Study) -> pd.DataFrame:
    """`turns_table` with a column ``strategy``; nothing of beams and populations, whose turns have other pasts."""
    tables = []
    for strategy in dict.fromkeys(r.strategy for r in rollouts):
        config = study.search.strategies.get(strategy)
        own = [r for r in rollouts if r.strategy == strategy and len(r.turn_seconds) > 1]
        if own and config is not None and config.method == "trajectories":
            table = turns_table(pd.concat([r.scores for r in own], ignore_index=True), study)
            table.insert(2, "strategy", strategy)
            tables.append(table)
    if not tables:
        raise DataError("no strategy with trajectories of several turns is configured under search.strategies")
    return pd.concat(tables, ignore_index=True)


SEARCH_TABLES = {"search": search_table, "search_turns": search_turns_table}


def make_search_table(
    name: str, turns: Sequence[Path], tasks: Path, out: Path, *, study: Study, summaries: Sequence[Path] = ()
) -> Path:
    """Write one of `SEARCH_TABLES`. ``turns``: of all policies, strategies and splits. Returns ``out``."""
    table = SEARCH_TABLES[name](read_search(turns, tasks, study), study)
    write_csv(out, with_note(table, read_note(summaries, study)))
    return out
