"""Strategies of search at test time: their table and figure, from files."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
from report_fixtures import make_study, make_task, make_turn

from kevin.core.config import validate_study
from kevin.core.errors import DataError
from kevin.core.files import write_tasks, write_turns
from kevin.core.types import Outcome
from kevin.report import show
from kevin.report.catalogue import make_figure, make_table
from kevin.report.search import COLUMNS, read_search, search_table, search_turns_table

IDS = [("l1/a", "level1"), ("l1/b", "level1"), ("l2/c", "level2")]
SPEEDUPS = {"l1/a": [[None, 2.0], [1.0, None]], "l1/b": [[None, None], [None, None]], "l2/c": [[3.0, 1.0], [None, 5.0]]}
"""By task, trajectory and turn."""


@pytest.fixture
def study():
    base = make_study(2)
    strategies = {"parallel": {"rollout": {"num_turns": 1}}, "serial": {}, "beam": {"method": "beam"}}
    raw = base.model_dump(mode="json") | {"search": {"strategies": strategies}}
    return validate_study(raw, "test")


@pytest.fixture
def files(tmp_path):
    """Serial: 2 x 2 of every task; parallel: the same four kernels as first answers."""
    tasks = [(make_task(name.split("/")[1], int(name[1])), split) for name, split in IDS]
    write_tasks(tmp_path / "tasks.parquet", tasks, {})
    paths = []
    for policy, strategy, split in itertools.product(("p1", "p0"), ("serial", "parallel"), ("level1", "level2")):
        turns = []
        for task, _ in (pair for pair in IDS if pair[1] == split):
            flat = list(itertools.chain(*SPEEDUPS[task]))
            for i, s in enumerate(flat):
                place = (i // 2, i % 2 + 1) if strategy == "serial" else (i, 1)
                turns.append(make_turn(task, *place, Outcome.CORRECT if s else Outcome.INCORRECT, s))
        path = tmp_path / strategy / f"{policy}-{split}" / "turns.parquet"
        seconds = [6.0, 3.0] if strategy == "serial" else [12.0]
        write_turns(path, turns, {"policy": policy, "split": split, "strategy": strategy, "turn_seconds": seconds})
        paths.append(path)
    return paths, tmp_path / "tasks.parquet"


def test_the_table_says_what_was_found_after_so_many_kernels_and_seconds(study, files):
    table = search_table(read_search(*files, study), study)
    assert list(table.columns) == COLUMNS
    assert table[["policy", "strategy"]].drop_duplicates().to_numpy().tolist() == [
        [p, s] for p in ("p0", "p1") for s in ("parallel", "serial")
    ]
    serial = table.query("policy == 'p0' and strategy == 'serial'").set_index("kernels")
    assert serial.index.tolist() == [2, 4]
    # both splits: 12 and 6 seconds for three tasks
    assert serial["gpu_seconds"].tolist() == pytest.approx([12 / 3, 18 / 3])
    assert serial["speedup"].tolist() == pytest.approx([(1 + 0 + 3) / 3, (2 + 0 + 5) / 3])
    assert serial["correct"].tolist() == pytest.approx([2 / 3, 2 / 3])
    assert serial["num_tasks"].tolist() == [3, 3]


def test_one_turn_is_estimated_for_fewer_of_its_kernels(study, files):
    table = search_table(read_search(*files, study), study)
    parallel = table.query("policy == 'p1' and strategy == 'parallel'").set_index("kernels")
    assert parallel.index.tolist() == [1, 2, 4]
    assert parallel["gpu_seconds"].tolist() == pytest.approx([24 / 3 / 4, 24 / 3 / 2, 24 / 3])
    for k in (1, 2, 4):
        by_task = []
        for speedups in SPEEDUPS.values():
            drawn = list(itertools.combinations([s or 0.0 for s in itertools.chain(*speedups)], k))
            by_task.append(sum(max(d) for d in drawn) / len(drawn))
        assert parallel.loc[k, "speedup"] == pytest.approx(sum(by_task) / 3)
        assert parallel.loc[k, "speedup_low"] <= parallel.loc[k, "speedup"] <= parallel.loc[k, "speedup_high"]


def test_files_and_figure(study, files, tmp_path):
    out = make_table("search", tmp_path / "search.csv", study=study, search=files[0], tasks=files[1])
    made = make_figure("search", tmp_path / "figures", study=study, table=out)
    assert [p.name for p in made] == ["search.png", "search.pdf", "search.csv"]
    pd.testing.assert_frame_equal(pd.read_csv(made[2]), pd.read_csv(out))
    shown = show.search(pd.read_csv(out), study)
    assert len(shown.cells) == len(pd.read_csv(out))


def test_turns_are_told_of_independent_trajectories_only(study, files):
    table = search_turns_table(read_search(*files, study), study)
    assert set(table["strategy"]) == {"serial"} and set(table["split"]) == {"all", "level1", "level2"}
    row = table.query("policy == 'p0' and split == 'level2' and turn == 2").iloc[0]
    assert (row["mended"], row["kept"], row["num_wrong_before"]) == (1.0, 1.0, 1)


def test_a_rollout_without_a_strategy_is_refused(study, files, tmp_path):
    path = tmp_path / "turns.parquet"
    write_turns(path, [make_turn("l1/a", 0, 1, Outcome.INCORRECT)], {"policy": "p0", "split": "level1"})
    with pytest.raises(DataError, match="not a rollout of a strategy"):
        read_search([path], files[1], study)
