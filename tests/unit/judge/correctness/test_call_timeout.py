"""A call may take a few seconds, or many times as long as the reference's, before it is given up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from core_fixtures import make_module
from device_fixtures import PROTOCOL

from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.judge.correctness.checks import call_timeout_s
from kevin.judge.device.cpu import CpuHardware
from kevin.judge.device.judging import Judging
from kevin.judge.evaluate import judge_on
from kevin.tasks.format import inspect_task

pytestmark = pytest.mark.timing

_SLEEP = 'extern "C" int usleep(unsigned);\nextern "C" void launch(const float* x, float* out) {{ usleep({us}); '
_ADD = "for (int i = 0; i < 100; i++) out[i] = x[i] + 1; }"


def _task(forward: str = "return x + 1") -> Task:
    source = make_module(forward, "torch.randn(100)")
    return Task(id="t", level=1, name="t", source=source, origin="user", spec=inspect_task(source, "t"))


def _judge(task: Task, source: str, folder: Path, **limits: float) -> Verdict:
    protocol = PROTOCOL.model_copy(update=limits)
    kernel = Kernel(dialect="c_abi", language="cpp", source=source)
    return judge_on(Judging(CpuHardware(protocol)), task, kernel, protocol, folder)


def _kernel(sleeps_s: float) -> str:
    return _SLEEP.format(us=int(1e6 * sleeps_s)) + _ADD


@pytest.mark.parametrize(
    ("reference_s", "limit_s"),
    [(0.001, 3.0), (0.02, 6.0), (1.0, 10.0)],
    ids=["few seconds", "many times the reference", "all the trials' time"],
)
def test_the_limit_of_a_call(reference_s: float, limit_s: float) -> None:
    reference = SimpleNamespace(call_s=reference_s)
    assert call_timeout_s(reference, JudgeProtocol()) == pytest.approx(limit_s)  # type: ignore[arg-type]


def test_a_kernel_that_never_ends_keeps_the_device_no_longer_than_a_call_may_take(tmp_path: Path) -> None:
    endless = 'extern "C" void launch(const float* x, float* out) { for (volatile int k = 0;;) k = k + 1; }'
    verdict = _judge(_task(), endless, tmp_path, call_timeout_s=0.5, run_timeout_s=120.0)
    assert (verdict.outcome, verdict.reason) == (Outcome.TIMEOUT, "run_timeout")
    assert "time limit of 0.5 s" in verdict.message


@pytest.mark.slow
def test_a_slow_kernel_of_a_slow_reference_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five times as slow as its reference, and over the time that a call has in any case."""
    slow = _task("import time; time.sleep(0.04); return x + 1")
    assert _judge(slow, _kernel(0.2), tmp_path, call_timeout_s=0.1).outcome is Outcome.CORRECT
    monkeypatch.setattr(JudgeProtocol, "call_slowdown", 2.0)
    assert _judge(slow, _kernel(0.2), tmp_path, call_timeout_s=0.1).outcome is Outcome.TIMEOUT
    monkeypatch.setattr(JudgeProtocol, "call_slowdown", 9.0)
    assert _judge(_task(), _kernel(0.2), tmp_path, call_timeout_s=0.1).outcome is Outcome.TIMEOUT
