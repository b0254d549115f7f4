"""Turns of rollout files by policy, and which trajectories are worth showing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import read_columns, read_rows, read_turns, turns_from_frame
from kevin.core.types import Turn
from kevin.report.scores import CEILING, policy_order


def split_name(turns: Path) -> tuple[str, str]:
    """(policy, split) of ``<policy>-<split>/turns.parquet``. Raises DataError for another name."""
    policy, dash, split = turns.parent.name.rpartition("-")
    if not dash:
        raise DataError(f"{turns}: its folder should be named <policy>-<split>")
    return policy, split


def files_by_policy(paths: Sequence[Path], study: Study) -> dict[str, list[Path]]:
    """Files of turns by policy, in the study's order, without the ceiling."""
    files: dict[str, list[Path]] = {}
    for path in paths:
        files.setdefault(split_name(path)[0], []).append(path)
    return {policy: files[policy] for policy in policy_order([p for p in files if p != CEILING], study)}


def turns_by_policy(paths: Sequence[Path], study: Study) -> dict[str, list[Turn]]:
    """Turns of each policy over all its files, in the study's order, without the ceiling."""
    files = files_by_policy(paths, study)
    return {policy: [t for path in own for t in read_turns(path)[0]] for policy, own in files.items()}


def best_trajectories(turns: Sequence[Turn], task_id: str, limit: int) -> list[list[Turn]]:
    """The task's trajectories that have a verdict, those with the fastest correct kernel first, then by number."""
    groups: dict[int, list[Turn]] = {}
    for t in turns:
        if t.task_id == task_id:
            groups.setdefault(t.trajectory, []).append(t)
    known = [sorted(g, key=lambda t: t.turn) for g in groups.values() if any(t.outcome is not None for t in g)]
    known.sort(key=lambda g: (-max(t.speedup or 0.0 for t in g), g[0].trajectory))
    return known[:limit]


def best_in_files(paths: Mapping[str, Sequence[Path]], limit: int) -> dict[str, dict[str, list[list[Turn]]]]:
    """`best_trajectories` of every task by policy and task, read from its ``turns.parquet`` files.

    Of all other trajectories nothing but their verdicts is held in memory.
    """
    return {policy: _best_of_policy(files, limit) for policy, files in paths.items()}


def _best_of_policy(files: Sequence[Path], limit: int) -> dict[str, list[list[Turn]]]:
    found: dict[str, list[list[Turn]]] = {}
    for path in files:
        verdicts = read_columns(path, "turns", ["task_id", "trajectory", "outcome", "speedup"])
        chosen = _best_numbers(verdicts, limit)
        places = verdicts[["task_id", "trajectory"]].merge(chosen, how="left")["rank"].notna().to_numpy()
        turns = turns_from_frame(read_rows(path, "turns", places))
        groups: dict[tuple[str, int], list[Turn]] = {}
        for turn in turns:
            groups.setdefault((turn.task_id, turn.trajectory), []).append(turn)
        for task, trajectory in chosen[["task_id", "trajectory"]].itertuples(index=False, name=None):
            found.setdefault(task, []).append(sorted(groups[task, trajectory], key=lambda t: t.turn))
    return found


def _best_numbers(verdicts: pd.DataFrame, limit: int) -> pd.DataFrame:
    """Columns task_id, trajectory, rank: of each task the best trajectories that have a verdict, in their order."""
    known = verdicts.groupby(["task_id", "trajectory"], as_index=False, sort=True).agg(
        judged=("outcome", "count"), speedup=("speedup", "max")
    )
    known = known[known["judged"] > 0].fillna({"speedup": 0.0})
    known = known.sort_values(["task_id", "speedup", "trajectory"], ascending=[True, False, True])
    known["rank"] = known.groupby("task_id").cumcount()
    return known[known["rank"] < limit][["task_id", "trajectory", "rank"]]
