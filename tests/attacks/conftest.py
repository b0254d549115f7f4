"""One CPU device and one GPU for the whole suite: candidates are judged one after another in sandboxed cells, as in
production."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_verdicts import StoredVerdicts

from kevin.core.protocol import TimingProtocol
from kevin.core.types import Dialect, Kernel, Task, Verdict
from kevin.judge.benchmarks.attack_table import attack_protocol
from kevin.judge.benchmarks.attacks import Attack
from kevin.judge.device.judging import Judging
from kevin.judge.evaluate import judge_on, open_device
from kevin.tasks.format import inspect_task

Judge = Callable[..., Verdict]

PROTOCOL = attack_protocol("cpu").model_copy(
    update={
        "call_timeout_s": 3.0,
        "run_timeout_s": 20.0,
        "timing": TimingProtocol(min_rounds=3, max_rounds=3, budget_s=0.05, warmup_s=0.02),
    }
)
"""What an attack is found out by does not take long: a few rounds of timing. On a busy machine a call may stand still
for a second, and eager, in a process of its own, for longer than the limit that attacks are given there."""


@pytest.fixture(scope="session")
def device() -> Judging:
    return open_device(PROTOCOL)


def runner(device: Judging, language: str, cache: Path) -> Judge:
    """``run(task_source, kernel_source, dialect=..., rules=...)`` -> Verdict, which is compared with the stored one.

    Other names are limits of its build.
    """
    stored = StoredVerdicts()

    def run(
        reference: str, source: str, dialect: str = "c_abi", rules: tuple[str, ...] = (), **limits: float
    ) -> Verdict:
        spec = inspect_task(reference, "test")
        task = Task(id="test", level=1, name="test", source=reference, origin="user", spec=spec)
        kernel = Kernel(dialect=dialect, language=language, source=source)
        verdict = judge_on(device, task, kernel, device.protocol.model_copy(update={"rules": rules, **limits}), cache)
        stored.check(reference, kernel, rules, verdict)
        return verdict

    return run


def check_attack(judge: Judge, attack: Attack, dialect: Dialect, **limits: float) -> Verdict:
    """It gets a verdict that it may get. Without rules of its own, the measurement alone has to catch it."""
    verdict = judge(attack.reference, attack.source, dialect=dialect, rules=attack.rules, **limits)
    assert attack.may_get(verdict.outcome, verdict.reason), (verdict.outcome, verdict.reason, verdict.message)
    return verdict


@pytest.fixture(scope="session")
def judge(device: Judging, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return runner(device, "cpp", tmp_path_factory.mktemp("builds"))


@pytest.fixture(scope="session")
def gpu_device() -> Judging:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no NVIDIA GPU here")
    return open_device(attack_protocol("cuda"))


@pytest.fixture(scope="session")
def gpu_judge(gpu_device: Judging, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return runner(gpu_device, "cuda", tmp_path_factory.mktemp("builds"))
