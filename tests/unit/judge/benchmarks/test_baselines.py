"""Baselines: what the compiler has of earlier processes; what it made ends the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task
from kevin.judge.benchmarks import baselines
from kevin.tasks.catalog import catalog

CACHE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.mark.parametrize("named", [None, "/somewhere"])
def test_the_compiler_reuses_nothing_of_an_earlier_process(monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    monkeypatch.delenv(CACHE, raising=False)
    if named:
        monkeypatch.setenv(CACHE, named)
    seen = []

    def no_device(*_: Any) -> Iterator[Any]:
        seen.append(os.environ[CACHE])
        assert named or not list(Path(seen[0]).iterdir())
        raise DeviceError("none here")
        yield

    monkeypatch.setattr(baselines, "_measured_apart", no_device)
    with pytest.raises(DeviceError, match="none here"):
        baselines.measure_baselines([], JudgeProtocol(device="cpu"))
    assert seen[0] == named if named else not Path(seen[0]).exists()
    assert os.environ.get(CACHE) == named


def measure_or_abort(task: Task, protocol: JudgeProtocol, wanted: tuple[str, ...]) -> list[dict[str, Any]]:
    """In another process: where the compiler is asked, it ends as often as the file has lines."""
    deaths = Path(os.environ["KEVIN_TEST_DEATHS"])
    if "compile" in wanted and (left := deaths.read_text()):
        deaths.write_text(left[:-1])
        os.abort()
    return [{"task_id": task.id, "baseline": name} for name in wanted]


BOTH = ["eager", "compile"]


@pytest.mark.parametrize(("num_deaths", "found"), [(0, BOTH), (1, BOTH), (2, ["eager"])])
def test_a_process_that_is_ended_costs_no_other_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_deaths: int, found: list[str]
) -> None:
    (tmp_path / "deaths").write_text("x" * num_deaths)
    monkeypatch.setenv("KEVIN_TEST_DEATHS", str(tmp_path / "deaths"))
    protocol, tasks = JudgeProtocol(device="cpu"), catalog("cpu")[:2]
    measured = {
        task.id: [row["baseline"] for row in rows]
        for task, rows in baselines._measured_apart(tasks, protocol, ("eager", "compile"), measure_or_abort)
    }
    assert measured == {tasks[0].id: found, tasks[1].id: BOTH}
