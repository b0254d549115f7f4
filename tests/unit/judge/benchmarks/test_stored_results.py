"""Baselines as files that others can use."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from kevin.core.errors import DataError
from kevin.core.provenance import read_provenance
from kevin.core.types import Task
from kevin.judge.benchmarks.stored_results import import_kernelbench, read_measured, write_measured

TASKS = [
    Task(id="kb/1/19", level=1, name="ReLU", source="a", origin="kernelbench"),
    Task(id="kb/2/1", level=2, name="Conv2D_ReLU_BiasAdd", source="b", origin="kernelbench"),
]
FRAME = pd.DataFrame(
    [
        {
            "task_id": task.id,
            "task_digest": task.digest,
            "baseline": baseline,
            "median_us": median_us,
            "iqr_us": 1.349,
            "min_us": 1.0,
            "num_samples": 40,
            "ratio_to_eager": 1.0,
            "device_name": "a GPU",
            "num_threads": 1,
        }
        for task, median_us in zip(TASKS, (130.00000001, 2500.5), strict=True)
        for baseline in ("eager", "compile")
    ]
)


def test_kernelbench_json_comes_back_at_full_precision(tmp_path: Path) -> None:
    write_measured(tmp_path, FRAME, TASKS, {"commit": "abc"})
    exported = json.loads((tmp_path / "kernelbench_eager.json").read_text())
    assert set(exported) == {"level1", "level2"}
    assert exported["level1"]["19_ReLU.py"]["mean"] == pytest.approx(0.13000000001, rel=1e-14)
    assert exported["level1"]["19_ReLU.py"]["std"] == pytest.approx(1e-3)
    back = import_kernelbench(tmp_path / "kernelbench_eager.json", TASKS)
    assert list(back["task_id"]) == ["kb/1/19", "kb/2/1"]
    assert list(back["median_us"]) == pytest.approx([130.00000001, 2500.5], rel=1e-14)


def test_tables_and_provenance_stand_beside_it(tmp_path: Path) -> None:
    write_measured(tmp_path, FRAME, TASKS, {"commit": "abc"})
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "kernelbench_baselines.csv"), FRAME)
    assert read_provenance(tmp_path, "kernelbench_baselines.csv") == {"commit": "abc"}


@pytest.mark.parametrize(
    "content", ["", "[]", '{"level1": {"19_ReLU.py": {}}}', '{"level1": {"7_Other.py": {"mean": 1}}}']
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"theirs\.json"):
        import_kernelbench(path, TASKS)


def test_rows_of_other_tasks_stay(tmp_path: Path) -> None:
    record = {"protocol": {"seed": 1}, "cpu": "a CPU"}
    for i, task in enumerate(TASKS):
        before = read_measured(tmp_path, [task], ["eager", "compile"], record)
        assert len(before) == 2 * i
        rows = FRAME[FRAME["task_id"] == task.id]
        write_measured(tmp_path, pd.concat([before, rows], ignore_index=True), [task], record)
    assert len(read_measured(tmp_path, TASKS, ["eager"], record)) == 4
    exported = json.loads((tmp_path / "kernelbench_compile.json").read_text())
    assert {level: list(files) for level, files in exported.items()} == {
        "level1": ["19_ReLU.py"],
        "level2": ["1_Conv2D_ReLU_BiasAdd.py"],
    }


@pytest.mark.parametrize(
    ("baselines", "record", "message"),
    [
        (["eager", "cuda_graph"], {"protocol": 1}, "without cuda_graph"),
        (["eager"], {"protocol": 2}, "another protocol"),
        (["eager"], {"protocol": 1, "gpus": [{"name": "other"}]}, "another gpu"),
    ],
)
def test_rows_that_cannot_stand_beside_each_other(
    tmp_path: Path, baselines: list[str], record: dict[str, object], message: str
) -> None:
    write_measured(tmp_path, FRAME, TASKS, {"protocol": 1})
    with pytest.raises(DataError, match=message):
        read_measured(tmp_path, TASKS, baselines, record)
