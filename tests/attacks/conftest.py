"""One CPU device for the whole suite: candidates are judged one after another in sandboxed cells, as in production."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.types import Kernel, Task, Verdict
from kevin.judge.cpu import CpuDevice
from kevin.judge.evaluate import judge_on
from kevin.tasks.format import inspect_task

Judge = Callable[..., Verdict]

PROTOCOL = JudgeProtocol(
    rules=(),  # attacks must fall to the measurement alone; the rules are tested on their own
    run_timeout_s=3.0,
    build_timeout_s=10.0,
    memory_mb=1024,
    timing=TimingProtocol(min_rounds=3, max_rounds=6, budget_s=0.3),
)


@pytest.fixture(scope="session")
def device() -> CpuDevice:
    import os

    before = os.sched_getaffinity(0)
    device = CpuDevice(PROTOCOL)
    os.sched_setaffinity(0, before)
    return device


@pytest.fixture(scope="session")
def judge(device: CpuDevice, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """``judge(task_source, kernel_source, dialect=..., rules=...)`` -> Verdict."""
    import os

    cache: Path = tmp_path_factory.mktemp("builds")
    before = os.sched_getaffinity(0)

    def run(reference: str, source: str, dialect: str = "c_abi", rules: tuple[str, ...] = ()) -> Verdict:
        task = Task(id="test", level=1, name="test", source=reference, origin="user")
        task = task.model_copy(update={"spec": inspect_task(reference, "test")})
        kernel = Kernel(dialect=dialect, language="cpp", source=source)
        protocol = PROTOCOL.model_copy(update={"rules": rules})
        return judge_on(device, task, kernel, protocol, cache)

    yield run
    os.sched_setaffinity(0, before)
