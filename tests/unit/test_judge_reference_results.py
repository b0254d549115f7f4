"""Baselines as files that others can use."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from kevin.core.errors import DataError
from kevin.core.types import Task
from kevin.judge.reference_results import import_kernelbench, write_reference

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
    write_reference(tmp_path, FRAME, TASKS, {"commit": "abc"})
    exported = json.loads((tmp_path / "kernelbench_eager.json").read_text())
    assert set(exported) == {"level1", "level2"}
    assert exported["level1"]["19_ReLU.py"]["mean"] == pytest.approx(0.13000000001, rel=1e-14)
    assert exported["level1"]["19_ReLU.py"]["std"] == pytest.approx(1e-3)
    back = import_kernelbench(tmp_path / "kernelbench_eager.json", TASKS)
    assert list(back["task_id"]) == ["kb/1/19", "kb/2/1"]
    assert list(back["median_us"]) == pytest.approx([130.00000001, 2500.5], rel=1e-14)


def test_tables_and_provenance_stand_beside_it(tmp_path: Path) -> None:
    write_reference(tmp_path, FRAME, TASKS, {"commit": "abc"})
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "kernelbench_baselines.csv"), FRAME)
    assert json.loads((tmp_path / "kernelbench_baselines.provenance.json").read_text()) == {"commit": "abc"}


@pytest.mark.parametrize(
    "content", ["", "[]", '{"level1": {"19_ReLU.py": {}}}', '{"level1": {"7_Other.py": {"mean": 1}}}']
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"theirs\.json"):
        import_kernelbench(path, TASKS)
