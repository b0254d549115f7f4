"""Verdicts are what they were before the judge was last changed. The attacks' own tests compare all that they judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stored_verdicts import differs, hits_of, kernel_of, read

from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.types import Outcome, Task
from kevin.judge.device.judging import Judging
from kevin.judge.device.open import open_device
from kevin.judge.evaluate import judge_on
from kevin.tasks.format import inspect_task

LINES = list(read().values())
SLOW = (Outcome.TIMEOUT.value,)
PROTOCOL = JudgeProtocol(
    rules=(), memory_mb=1024, timing=TimingProtocol(min_rounds=3, max_rounds=6, budget_s=0.3), run_timeout_s=20
)


def _one_of_each() -> list[Any]:
    """The first ``c_abi`` kernel for every outcome with its reason; modules take seconds each."""
    chosen: dict[tuple[str, str], Any] = {}
    for line in LINES:
        if (line["dialect"], line["language"]) == ("c_abi", "cpp") and len(line["found"]) == 1:
            outcome, reason, *_ = line["found"][0]
            if outcome not in SLOW:
                chosen.setdefault((outcome, str(reason)), line)
    return [pytest.param(line, id=f"{outcome}-{reason}") for (outcome, reason), line in chosen.items()]


@pytest.fixture(scope="module")
def device() -> Judging:
    return open_device(PROTOCOL)


def test_what_the_screen_says_of_every_attack_and_control() -> None:
    assert len(LINES) > 150
    assert [hits_of(kernel_of(line)) for line in LINES] == [line["hits"] for line in LINES]


@pytest.mark.parametrize("line", _one_of_each())
def test_a_kernel_is_judged_as_before(device: Judging, tmp_path: Path, line: dict[str, Any]) -> None:
    spec = inspect_task(line["reference"], "test")
    task = Task(id="test", level=1, name="test", source=line["reference"], origin="user", spec=spec)
    protocol = PROTOCOL.model_copy(update={"rules": tuple(line["rules"])})
    assert not (difference := differs(line, judge_on(device, task, kernel_of(line), protocol, tmp_path))), difference
