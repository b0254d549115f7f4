"""Candidates that are checked beside each other get the verdicts that they get alone; one is timed at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import device_fixtures
import psutil
import pytest
from device_fixtures import adding_task, until

from kevin.core.types import Kernel, Outcome, Verdict
from kevin.judge.device import judging
from kevin.judge.device.cpu import CpuHardware
from kevin.judge.device.judging import Judging
from kevin.judge.evaluate import build_stage
from kevin.judge.sandbox.cell import Cell
from kevin.judge.timing import paired

PROTOCOL = device_fixtures.PROTOCOL.model_copy(update={"run_timeout_s": 1.5})
TASK = adding_task(1, 1000)
BODIES = {
    "right": "for (int i = 0; i < 1000; i++) out[i] = x[i] + 1;",
    "wrong": "for (int i = 0; i < 1000; i++) out[i] = x[i] + 2;",
    "crash": "*(volatile int*)0 = 1; out[0] = x[0];",
    "endless": "for (volatile int i = 0;;) out[0] = x[0];",
}


class _Cpu(CpuHardware):
    checks_at_once = 3

    def prepare_thread(self) -> None:
        return


class _Watched(Judging):
    """Knows who is checked and who is timed; the first ``together`` checks go on when all of them have begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, together: int = 1) -> None:
        super().__init__(_Cpu(PROTOCOL))
        self.checking = self.most_checking = self.num_checks = self.timing = self.most_timing = 0
        self.checked_while_timing = False
        self._count = threading.Lock()
        with self.room.hold():  # whoever makes one has the device to itself, and would wait for those at the barrier
            for workspace in [self.room._new_workspace(TASK) for _ in range(6)]:
                self.room.workspaces.put_back(workspace)
        self.checked: list[Cell] = []
        barrier, check = threading.Barrier(together), judging.check_trials

        def watched(cell: Cell, *args: Any) -> float:
            self.checked.append(cell)
            with self._count:
                self.checking, self.num_checks = self.checking + 1, self.num_checks + 1
                self.most_checking = max(self.most_checking, self.checking)
                is_first = self.num_checks <= together
            try:
                if is_first:
                    barrier.wait(timeout=60)
                return check(cell, *args)
            finally:
                with self._count:
                    self.checking -= 1

        monkeypatch.setattr(judging, "check_trials", watched)

    def _measure(self, *args: Any) -> None:
        self.timing += 1
        self.most_timing = max(self.most_timing, self.timing)
        self.checked_while_timing |= bool(self.checking)
        try:
            super()._measure(*args)
        finally:
            self.timing -= 1


@pytest.fixture(autouse=True)
def _steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a machine that does other work at the same time is not what is tested here."""
    monkeypatch.setattr(paired.PairedTimer, "_check_burst", lambda *args: None)


def _judged(device: Judging, names: Sequence[str], folder: Path) -> list[Verdict]:
    def one(number: int) -> Verdict:
        source = f'extern "C" void launch(const float* x, float* out) {{ {BODIES[names[number]]} }}'
        kernel = Kernel(dialect="c_abi", language="cpp", source=f"{source} // {number}")
        build = build_stage(TASK, kernel, PROTOCOL, folder / str(number))
        return device.judge(TASK, kernel, build, str(number))

    with ThreadPoolExecutor(len(names)) as executor:
        return list(executor.map(one, range(len(names))))


def test_verdicts_are_those_of_candidates_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Watched(monkeypatch, together=3)
    verdicts = _judged(device, ["right", "wrong", "crash", "right", "right", "crash"], tmp_path)
    assert [v.outcome for v in verdicts] == [
        *(Outcome.CORRECT, Outcome.INCORRECT, Outcome.RUNTIME_ERROR),
        *(Outcome.CORRECT, Outcome.CORRECT, Outcome.RUNTIME_ERROR),
    ]
    assert all(v.timing is not None and v.trials_passed == 3 for v in verdicts if v.outcome is Outcome.CORRECT)
    assert all(v.seconds["check"] > 0 and v.seconds["wait"] >= 0 for v in verdicts)
    assert device.most_checking == 3 and device.most_timing == 1 and not device.checked_while_timing


def test_what_fails_has_ended_before_anything_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Watched(monkeypatch, together=2)
    measure, others = device._measure, []

    def looked(cell: Cell, *args: Any) -> None:
        pids = [c._process.pid for c in device.checked if c is not cell]
        others.append([pid for pid in pids if pid is not None and psutil.pid_exists(pid)])
        measure(cell, *args)

    monkeypatch.setattr(device, "_measure", looked)
    with ThreadPoolExecutor(1) as executor:
        right = executor.submit(_judged, device, ["right"], tmp_path / "right")
        (endless,) = _judged(device, ["endless"], tmp_path / "endless")
    assert endless.outcome is Outcome.TIMEOUT and right.result()[0].outcome is Outcome.CORRECT
    assert others[0] == [], "it was killed before it gave the device to the one that is timed"


def test_who_is_too_slow_beside_others_is_judged_again_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it may have been the others; what is endless by itself is not right for having been beside some."""
    device, tried = _Watched(monkeypatch, together=2), []
    shared = device._check_beside_others

    def slow_once(cell: Cell, *args: Any) -> Any:
        checked = shared(cell, *args)
        tried.append(cell)
        if len(tried) == 1:
            raise judging._SlowedDownError
        return checked

    monkeypatch.setattr(device, "_check_beside_others", slow_once)
    verdicts = _judged(device, ["right", "right"], tmp_path)
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT] * 2 and len(tried) == 2


def test_what_is_endless_ends_in_company_and_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, attempts = _Watched(monkeypatch, together=1), []
    attempt = device._attempt

    def counted(*args: Any, **options: Any) -> Any:
        attempts.append(options["is_shared"])
        return attempt(*args, **options)

    monkeypatch.setattr(device, "_attempt", counted)
    (alone,) = _judged(device, ["endless"], tmp_path / "alone")
    assert alone.outcome is Outcome.TIMEOUT and attempts == [True], "nobody was there whom it could be due to"
    attempts.clear()
    with ThreadPoolExecutor(1) as executor:
        with device.room.share_for(alone):  # type: ignore[arg-type]
            judged = executor.submit(_judged, device, ["endless"], tmp_path / "beside")
            until(lambda: len(attempts) == 2, timeout_s=60)
        (beside,) = judged.result(60)
    assert beside.outcome is Outcome.TIMEOUT and attempts == [True, False]
