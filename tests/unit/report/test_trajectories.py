"""The best trajectories, read from files without holding the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_fixtures import make_task, make_turn, make_turns

from kevin.core.errors import DataError
from kevin.core.files import read_rows, write_turns
from kevin.core.types import Outcome, Turn
from kevin.report.viewer import best_in_files


def best_trajectories(turns: list[Turn], task_id: str, limit: int) -> list[list[Turn]]:
    """Of all turns in memory."""
    groups: dict[int, list[Turn]] = {}
    for t in turns:
        if t.task_id == task_id:
            groups.setdefault(t.trajectory, []).append(t)
    known = [sorted(g, key=lambda t: t.turn) for g in groups.values() if any(t.outcome is not None for t in g)]
    known.sort(key=lambda g: (-max(t.speedup or 0.0 for t in g), g[0].trajectory))
    return known[:limit]


@pytest.mark.parametrize("limit", [0, 1, 3, 99])
def test_files_give_the_same_as_all_turns_in_memory(tmp_path: Path, limit: int) -> None:
    tasks = [make_task(name, 1) for name in ("relu", "gelu", "tanh", "lost")]
    turns = make_turns(tasks[:3], 0.3, seed=4, num_trajectories=5, num_turns=3)
    turns += [make_turn(tasks[3].id, 0, 1, None), make_turn(tasks[0].id, 7, 1, None)]
    turns += [make_turn(tasks[1].id, n, 1, Outcome.CORRECT, 2.0) for n in (9, 8)]
    files = [tmp_path / name / "turns.parquet" for name in ("p0-level1", "p0-level2")]
    write_turns(files[0], reversed([t for t in turns if t.task_id != tasks[2].id]), {})
    write_turns(files[1], [t for t in turns if t.task_id == tasks[2].id], {})
    found = best_in_files({"p0": files}, limit)["p0"]
    for task in tasks:
        assert found.get(task.id, []) == best_trajectories(turns, task.id, limit)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"turns\.parquet: no such file; make it with: snakemake"):
        read_rows(tmp_path / "turns.parquet", "turns", [])
    (tmp_path / "turns.parquet").write_text("")
    with pytest.raises(DataError, match="cannot be read"):
        best_in_files({"p0": [tmp_path / "turns.parquet"]}, 1)
