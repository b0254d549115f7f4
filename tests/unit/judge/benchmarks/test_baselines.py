"""Baselines: what the compiler has of earlier processes; what it made ends the process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from baseline_worker import compile_or_end, measure_or_abort

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol, TimingProtocol
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


def test_every_task_is_compiled_ahead_and_few_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KEVIN_TEST_COMPILED", str(tmp_path))
    tasks = [catalog("cpu")[0].model_copy(update={"id": f"task{number}"}) for number in range(2 * 8 + 1)]
    baselines._compile_ahead(tasks, JudgeProtocol(device="cpu"), ("compile",), 1, compile_or_end)
    process = dict(path.name.split("-") for path in tmp_path.iterdir())
    assert set(process) == {f"task{number}" for number in (*range(9), 16)}
    assert len({process[f"task{number}"] for number in range(8)}) == 1
    assert len(set(process.values())) == 3
    assert [r.args[0] for r in caplog.records if r.args] == [f"task{number}" for number in range(8, 16)]


BOTH = ["eager", "compile"]


@pytest.mark.parametrize(("num_deaths", "found"), [(1, BOTH), (2, ["eager"])])
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


def test_baselines_are_timed_as_a_users_process_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a task whose module has set flags of PyTorch, which are the whole process's."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    source = catalog("cpu")[0].source.replace(
        "import torch\n", "import torch\ntorch.backends.cudnn.benchmark = True\n", 1
    )
    task = Task(id="test", level=1, name="test", source=source, origin="user")
    seen: list[bool] = []

    class Device:  # a real one would pin this process to its core
        name, protocol = "test", JudgeProtocol(timing=TimingProtocol(min_rounds=3, max_rounds=3, budget_s=0.05))

        def lease(self, *, exclusive: bool) -> AbstractContextManager[None]:
            return nullcontext()

        def turn(self) -> AbstractContextManager[None]:
            return nullcontext()

        def clock(self, call: Callable[[], object]) -> int:
            seen.append(torch.backends.cudnn.benchmark)
            call()
            return 1000

    (row,) = baselines._measure(task, Device(), ("eager",))  # type: ignore[arg-type]
    assert row["baseline"] == "eager" and seen and not any(seen)
    assert torch.backends.cudnn.benchmark, "what the module has set"
