"""Cells that wait for their candidates: who gets one is judged as any other, and none outlives its batch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
from device_fixtures import PROTOCOL, adding_task

from kevin.core.errors import SandboxError
from kevin.core.types import Kernel, Outcome, Verdict
from kevin.judge.compile.native import Build, build_native
from kevin.judge.device.cpu import CpuHardware
from kevin.judge.device.judging import Judging
from kevin.judge.device.spares import SpareCell, SpareCells
from kevin.judge.sandbox.cell import Cell
from kevin.judge.timing import in_a_row

pytestmark = pytest.mark.timing

TASK = adding_task(1, 1000)
RIGHT, WRONG, CRASH = "out[i] = x[i] + 1;", "out[i] = x[i] + 2;", "out[i] = *(volatile float*)8;"
EXPECTED = [Outcome.CORRECT, Outcome.INCORRECT, Outcome.RUNTIME_ERROR, Outcome.CORRECT]


class _Hardware(CpuHardware):
    """Whose cells may wait, and which says how many were started in which way."""

    def __init__(self) -> None:
        super().__init__(PROTOCOL)
        self.opened: list[str] = []
        self.fails: Callable[[], bool] = lambda: False

    def most_spares(self) -> int:
        return 3

    def open_cell(self, kernel: Kernel, build: Build) -> Cell:
        self.opened.append("own")
        return super().open_cell(kernel, build)

    def open_spare(self, folder: Path) -> Cell:
        if self.fails():
            raise SandboxError("no process")
        self.opened.append("spare")
        return Cell("native.py", isolation=self.isolation, read_only=[str(folder)])


class _Device(Judging):
    hardware: _Hardware


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> _Device:
    monkeypatch.setattr(in_a_row.CallsInARow, "check", lambda *args: None)
    return _Device(_Hardware())


def _judge(device: _Device, bodies: list[str], folder: Path) -> list[Verdict]:
    def one(body: str) -> Verdict:
        source = f'extern "C" void launch(const float* x, float* out) {{ for (int i = 0; i < 1000; i++) {{ {body} }} }}'
        kernel = Kernel(dialect="c_abi", language="cpp", source=source)
        assert TASK.spec is not None
        return device.judge(TASK, kernel, build_native(kernel, TASK.spec, PROTOCOL, folder), body)

    with ThreadPoolExecutor(len(bodies)) as executor:
        return list(executor.map(one, bodies))


def _wait(device: _Device, num: int) -> None:
    spares = device.room.spares
    with spares._changed:
        assert spares._changed.wait_for(lambda: len(spares._ready) == num and not spares._making, timeout=60)


def _children() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


@pytest.mark.slow
def test_a_candidate_that_finds_a_waiting_cell_is_judged_as_any_other(device: _Device, tmp_path: Path) -> None:
    """As many are made as were asked for, and as may wait at once; who finds none has a cell of its own started.

    Seven seconds: twelve verdicts.
    """
    without = _judge(device, [RIGHT, WRONG, CRASH, RIGHT + "/* 2 */"], tmp_path)
    assert [v.outcome for v in without] == EXPECTED and device.hardware.opened == ["own"] * 4
    device.hardware.opened.clear()
    device.want(5, "c_abi", 9)
    _wait(device, 3)
    verdicts = _judge(device, [RIGHT, WRONG, CRASH, RIGHT + "/* 2 */"], tmp_path)
    assert [(v.outcome, v.reason) for v in verdicts] == [(v.outcome, v.reason) for v in without]
    _judge(device, [RIGHT], tmp_path)
    opened = device.hardware.opened
    assert len(opened) == 5 and opened.count("spare") >= 4
    device.room.rest()


def test_none_is_kept_when_a_batch_is_over_and_none_is_made_for_it_any_more(device: _Device, tmp_path: Path) -> None:
    device.hardware.prepare_thread()
    before = _children()
    device.want(3, "c_abi", 9)
    _wait(device, 3)
    assert len(_children() - before) >= 3
    device.room.rest()
    assert not len(device.room.spares) and not (_children() - before)
    assert not list((device.room.spares._folder or tmp_path).iterdir())

    device.want(3, "c_abi", 9)
    device.room.rest()  # in the middle of making them
    assert not len(device.room.spares) and not (_children() - before)
    device.want(2, "load_inline", 9)
    device.want(2, "c_abi", 0)
    assert device.room.spares._making == 0 and not len(device.room.spares)


@pytest.mark.slow
def test_what_is_left_over_counts_for_the_next_batch(device: _Device) -> None:
    device.want(2, "c_abi", 9)
    _wait(device, 2)
    device.want(3, "c_abi", 9)
    _wait(device, 3)
    assert device.hardware.opened == ["spare"] * 3
    device.room.rest()


@pytest.mark.slow
def test_no_more_are_made_than_candidates_come(device: _Device, tmp_path: Path) -> None:
    device.want(9, "c_abi", 9)
    _wait(device, 3)
    device.room.spares.limit(4)
    device.room.spares.limit(6)
    assert {v.outcome for v in _judge(device, [RIGHT, RIGHT + "/* 2 */"], tmp_path)} == {Outcome.CORRECT}
    _wait(device, 2)
    assert device.hardware.opened == ["spare"] * 4
    device.room.spares.limit(0)
    _judge(device, [RIGHT + "/* 3 */"], tmp_path)
    _wait(device, 1)
    assert device.hardware.opened == ["spare"] * 4, "one that nobody will take is not replaced"
    device.room.rest()


@pytest.mark.slow
def test_those_that_are_to_be_made_are_not_when_fewer_candidates_come(
    device: _Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, limited, started = threading.Barrier(3), threading.Event(), device.room.spares._started

    def late() -> SpareCell | None:
        if not limited.is_set():
            both.wait(60)
            limited.wait(60)
        return started()

    monkeypatch.setattr(device.room.spares, "_started", late)
    device.want(3, "c_abi", 9)
    both.wait(60)
    device.room.spares.limit(1)
    limited.set()
    _wait(device, 2)
    assert device.hardware.opened == ["spare"] * 2
    device.room.rest()


def test_a_waiting_cell_that_has_died_costs_its_candidate_nothing(device: _Device, tmp_path: Path) -> None:
    device.want(1, "c_abi", 9)
    _wait(device, 1)
    (spare,) = device.room.spares._ready
    pid = spare.cell._process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    spare.cell._process.wait(10)
    assert [v.outcome for v in _judge(device, [RIGHT], tmp_path)] == [Outcome.CORRECT]
    assert device.hardware.opened == ["spare", "own"]


@pytest.mark.slow
def test_where_none_can_be_made_candidates_have_cells_of_their_own(device: _Device, tmp_path: Path) -> None:
    device.hardware.fails = lambda: True
    device.want(3, "c_abi", 9)
    with device.room.spares._changed:
        assert device.room.spares._changed.wait_for(lambda: not device.room.spares._making, timeout=60)
    assert device.room.spares._left == 0
    assert [v.outcome for v in _judge(device, [RIGHT], tmp_path)] == [Outcome.CORRECT]
    assert device.hardware.opened == ["own"]


def test_one_that_cannot_use_its_device_is_ended_and_leaves_nothing(tmp_path: Path) -> None:
    hardware = _Hardware()

    class Failing(Cell):
        def start_device(self, timeout_s: float = 1.0) -> None:
            raise SandboxError("no context")

    def opened(folder: Path) -> Cell:
        return Failing("native.py", isolation=hardware.isolation, read_only=[str(folder)])

    before = _children()
    spares = SpareCells(opened, nullcontext, threading.Semaphore(4))
    spares.want(2, 2)
    with spares._changed:
        assert spares._changed.wait_for(lambda: not spares._making, timeout=60)
    assert not len(spares) and spares.take() is None and not (_children() - before)
    assert spares._folder is not None and not list(spares._folder.iterdir())
