"""Several threads judge on one device: cells start side by side, all else takes turns, slots in use stay."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from core_fixtures import make_module
from device_fixtures import PROTOCOL, adding_task

from kevin.core.errors import DeviceFullError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Dialect, Kernel, Outcome, Task, TaskSpec, Verdict
from kevin.judge.compile.native import Build, build_native
from kevin.judge.correctness import checks
from kevin.judge.correctness.checks import Findings, Measured
from kevin.judge.correctness.model import ReferenceModel
from kevin.judge.correctness.reference import does_not_fit
from kevin.judge.device import judging
from kevin.judge.device.cpu import CpuHardware
from kevin.judge.device.judging import Judging
from kevin.judge.device.workspace import Workspace
from kevin.judge.evaluate import build_stage
from kevin.judge.pool.worker import _devices, rest_devices, run_on_device
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.sandbox.slots import Bands, SharedSlots
from kevin.judge.timing import in_a_row, paired
from kevin.tasks.format import inspect_task

pytestmark = pytest.mark.timing

_FORWARD = "def forward(self, x):\n        return self.linear(x)"


def _task(added: int) -> Task:
    return adding_task(added, 1000 + added)


def _linear_task() -> Task:
    """With parameters, as `_task` has none."""
    source = make_module("return self.linear(x)", "torch.randn(32, 64)", "self.linear = torch.nn.Linear(64, 48)")
    return Task(id="m", level=1, name="m", source=source, origin="user", spec=inspect_task(source, "m"))


def _module(task: Task, body: str) -> Kernel:
    source = f"{task.source}\nclass ModelNew(Model):\n    {body}\n"
    return Kernel(dialect="load_inline", language="cpp", source=source)


def _kernel(added: int, of_task: int | None = None) -> Kernel:
    """Right for the task ``added``; as long as the tensors of ``of_task``."""
    size = 1000 + (added if of_task is None else of_task)
    source = f'extern "C" void launch(const float* x, float* out) {{ for (int i = 0; i < {size}; i++) '
    return Kernel(dialect="c_abi", language="cpp", source=source + f"out[i] = x[i] + {added}; }}")


class _Cpu(CpuHardware):
    """Can hold back its cells' start until so many are to start together."""

    max_tasks = 1
    starts_at_once = 4

    def __init__(self, together: int = 1) -> None:
        super().__init__(PROTOCOL)
        self.barrier = threading.Barrier(together)

    def prepare_thread(self) -> None:
        return

    def open_cell(self, kernel: Kernel, build: Build) -> Cell:
        hardware, cell = self, super().open_cell(kernel, build)

        class Late(Cell):
            def __init__(self) -> None:
                self.__dict__ = cell.__dict__

            def load(self, timeout_s: float) -> dict[str, Any]:
                hardware.barrier.wait(timeout=120)
                return super().load(timeout_s)

        return Late()


class _Watched(Judging):
    """Counts candidates that are measured at the same time."""

    def __init__(self, hardware: CpuHardware | None = None) -> None:
        super().__init__(hardware or _Cpu())
        self.measuring = self.most_measuring = 0

    def _measure(self, *args: Any) -> None:
        self.measuring += 1
        self.most_measuring = max(self.most_measuring, self.measuring)
        try:
            super()._measure(*args)
        finally:
            self.measuring -= 1


def _judge(device: Judging, numbers: list[tuple[int, int]], folder: Path) -> list[Verdict]:
    def one(pair: tuple[int, int]) -> Verdict:
        task, kernel = _task(pair[0]), _kernel(pair[1], of_task=pair[0])
        build = build_native(kernel, inspect_task(task.source, task.id), PROTOCOL, folder)
        return device.judge(task, kernel, build, f"{pair}")

    with ThreadPoolExecutor(len(numbers)) as executor:
        return list(executor.map(one, numbers))


@pytest.fixture(autouse=True)
def _steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a machine that does other work at the same time is not what is tested here."""
    monkeypatch.setattr(in_a_row.CallsInARow, "check", lambda *args: None)


def test_cells_start_side_by_side_and_are_measured_in_turn(tmp_path: Path) -> None:
    device = _Watched(_Cpu(together=4))  # all four must have been started before the first one may answer
    verdicts = _judge(device, [(1, 1), (1, 2), (1, 1), (1, 3)], tmp_path)
    found = [(v.outcome, v.reason) for v in verdicts]
    right, wrong = (Outcome.CORRECT, None), (Outcome.INCORRECT, "wrong_values")
    assert found == [right, wrong, right, wrong]
    assert device.most_measuring == 1


def test_memory_of_a_task_stays_while_its_candidates_have_cells(tmp_path: Path) -> None:
    """With room for one task, candidates of three tasks at once wait for each other, and none sees another's memory.

    Seven seconds: six verdicts.
    """
    device = _Watched()
    verdicts = _judge(device, [(i, i) for i in (1, 2, 3, 1, 2, 3)], tmp_path)
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT] * 6
    assert len(device.room.workspaces.tasks()) == 1


def test_candidates_of_one_task_have_memory_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loaded candidate's memory nobody else's is a part; it is used again, without the last one's answers.

    Six seconds: six verdicts.
    """
    device = _Watched(_Cpu(together=3))
    seen: list[list[int]] = []
    setup = judging.cell_setup

    def watched(protocol: JudgeProtocol, kernel: Kernel, build: Build, workspace: Workspace) -> dict[str, Any]:
        outputs = workspace.slots.outputs
        seen.append([out.data_ptr() for outs in outputs for out in outs])
        for i in range(PROTOCOL.num_trials):
            assert all(bool(out.isnan().all()) for out in outputs[i])
        return setup(protocol, kernel, build, workspace)

    monkeypatch.setattr(judging, "cell_setup", watched)
    for _ in range(2):
        verdicts = _judge(device, [(1, 1), (1, 2), (1, 1)], tmp_path)
        expected = [Outcome.CORRECT, Outcome.INCORRECT, Outcome.CORRECT]
        assert [v.outcome for v in verdicts] == expected, [(v.reason, v.message) for v in verdicts]
    first, again = seen[:3], seen[3:]
    assert len({p for pointers in first for p in pointers}) == 3 * len(first[0])
    assert sorted(first) == sorted(again)


class _Small(_Cpu):
    """With memory for so many bytes, of which each candidate's process takes 1000."""

    max_tasks = 8
    small_bytes = 0.0

    def __init__(self, total: float) -> None:
        super().__init__()
        self.total = total
        self.idle_bytes: Callable[[], int] = lambda: 0

    def process_bytes(self, spec: TaskSpec, working_bytes: int, dialect: Dialect) -> int:
        return 1000

    def free_bytes(self, enough: float = math.inf) -> float:
        return self.total - self.idle_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("total", "present"), [(0.0, 1), (1e9, 4)])
def test_where_memory_is_short_candidates_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: float, present: int
) -> None:
    hardware = _Small(total)
    device = _Watched(hardware)
    hardware.idle_bytes = lambda: sum(w.num_bytes for w in device.room.workspaces._idle)
    seen: list[int] = []
    setup = judging.cell_setup

    def watched(*args: Any) -> dict[str, Any]:
        seen.append(len(device.room.admission))
        return setup(*args)

    monkeypatch.setattr(judging, "cell_setup", watched)
    verdicts = _judge(device, [(1, 1), (1, 2), (2, 2), (1, 3)], tmp_path)
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT, Outcome.INCORRECT, Outcome.CORRECT, Outcome.INCORRECT]
    assert max(seen) <= present and not len(device.room.admission) and not device.room.admission._line
    if present == 1:
        assert len(device.room.workspaces.tasks()) == 1, "nothing idle is kept that another one could use"


@pytest.mark.slow
def test_tasks_are_expected_while_they_take_little_of_what_is_free(tmp_path: Path) -> None:
    """Nor more of them than are kept, nor any that are not wanted by then; what was made serves the first candidate."""
    hardware = _Small(1e12)
    hardware.max_tasks = 2
    device = Judging(hardware)

    def expected(number: int, *, is_wanted: bool = True) -> bool:
        device.expect(_task(number), "c_abi", lambda: is_wanted)
        return _task(number).digest in device.room.workspaces.tasks()

    needed = device.room.need(_task(1), "c_abi").total
    for total, share in ((4.0 * needed - 4, False), (4.0 * needed, True)):
        hardware.total = total
        assert expected(1) == share
    hardware.total = 1e12
    assert not expected(2, is_wanted=False) and expected(2) and not expected(3)
    (made,) = (w for w in device.room.workspaces._idle if w.digest == _task(2).digest)
    (verdict,) = _judge(device, [(2, 2)], tmp_path)
    assert verdict.outcome == Outcome.CORRECT and "reference" not in verdict.seconds
    assert made in device.room.workspaces._idle and len(device.room.workspaces) == 2


@pytest.mark.parametrize(
    ("where", "failures"), [("candidate", 2), *(pytest.param("judge", n, marks=pytest.mark.slow) for n in (1, 2))]
)
def test_what_finds_too_little_memory_is_judged_again_and_then_with_nothing_beside_it(
    tmp_path: Path, where: str, failures: int
) -> None:
    device, tried = _Watched(), []
    device.hardware.shares_memory = True
    run = device._run

    def short(cell: Cell, task: Task, kernel: Kernel, build: Any, found: Any) -> None:
        tried.append((kernel, device.room.company._num_present, len(device.room.workspaces)))
        if kernel == _kernel(2) and len([k for k, _, _ in tried if k == kernel]) <= failures:
            if where == "judge":
                raise DeviceFullError("no memory")
            raise CandidateFailed(Outcome.RUNTIME_ERROR, "out_of_memory", "no memory")
        run(cell, task, kernel, build, found)

    device._run = short  # type: ignore[method-assign]
    verdicts = _judge(device, [(1, 1), (2, 2), (1, 3)], tmp_path)
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT, Outcome.CORRECT, Outcome.INCORRECT]
    *before, last = [(present, kept) for kernel, present, kept in tried if kernel == _kernel(2)]
    assert len(before) == failures and all(present >= 1 for present, _ in before)
    assert (last == (0, 0)) == (failures == 2)
    assert ["judged_alone" in v.details for v in verdicts] == [False, failures == 2, False]


@pytest.mark.slow
def test_a_model_that_finds_no_memory_when_it_is_made_is_made_again(tmp_path: Path) -> None:
    device, opened = _Watched(), []
    device.hardware.shares_memory = True
    open_cell = device.hardware.open_cell

    def first_without_memory(*args: Any) -> Cell:
        cell = open_cell(*args)
        opened.append(cell)
        if len(opened) == 1:
            cell.load = lambda timeout_s: {"error": "OutOfMemoryError", "reason": "out_of_memory"}  # type: ignore[method-assign]
        return cell

    device.hardware.open_cell = first_without_memory  # type: ignore[method-assign]
    assert [v.outcome for v in _judge(device, [(1, 1)], tmp_path)] == [Outcome.CORRECT]
    assert len(opened) == 2


def test_what_does_not_fit_alone_either_is_said_once(tmp_path: Path) -> None:
    """A candidate that takes more than there is has failed; a task that does is nobody's failure."""
    device = _Watched()
    device.hardware.shares_memory = True

    def candidate(*args: Any) -> None:
        raise CandidateFailed(Outcome.RUNTIME_ERROR, "out_of_memory", "no memory")

    held: list[weakref.ref[torch.Tensor]] = []

    def judge(*args: Any) -> None:
        tensor = torch.zeros(1)
        held.append(weakref.ref(tensor))
        raise DeviceFullError("task test does not fit on the device")

    device._run = candidate  # type: ignore[method-assign]
    assert [(v.outcome, v.reason) for v in _judge(device, [(1, 1)], tmp_path)] == [
        (Outcome.RUNTIME_ERROR, "out_of_memory")
    ]
    device._run = judge  # type: ignore[method-assign]
    with pytest.raises(DeviceFullError, match="does not fit") as failure:
        _judge(device, [(1, 1)], tmp_path)
    gc.collect()
    assert len(held) == 3 and not any(ref() is not None for ref in held), (
        f"{failure.value} keeps the memory it tells of"
    )
    device.room.company.alone().__enter__()  # nobody is left inside


def test_memory_that_cannot_be_made_ready_again_is_kept_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filling the bands takes some, of which there may be none left: the verdict is tried again, and nothing leaks."""
    device, fill = _Watched(), Bands.fill
    device.hardware.shares_memory = True
    monkeypatch.setattr(device.hardware, "attributed", _as_on_a_gpu)
    fills: list[int] = []

    def once(bands: Bands) -> None:
        fills.append(len(device.room.admission))
        if len(fills) == 2:  # the first is of a new workspace
            raise torch.OutOfMemoryError("no memory")
        fill(bands)

    monkeypatch.setattr(Bands, "fill", once)
    assert [v.outcome for v in _judge(device, [(1, 1)], tmp_path)] == [Outcome.CORRECT]
    assert len(fills) == 4 and not len(device.room.admission)
    device.room.rest()
    assert not device.room.workspaces.tasks() and _task(1) not in device.room.references


@contextmanager
def _as_on_a_gpu(task: Task) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as e:
        raise does_not_fit(task, e) from None


def test_a_device_at_rest_keeps_no_reference_that_nobody_works_with() -> None:
    device = _Watched()
    device.room.reference(_task(1))
    device.room.rest()
    assert _task(1) not in device.room.references


def test_what_an_idle_task_took_is_there_for_the_next_one(tmp_path: Path) -> None:
    """A reference and its trials know each other: without a collection its memory would stay taken."""
    device = _Watched()
    device.hardware.shares_memory = True
    _judge(device, [(1, 1)], tmp_path)
    kept = weakref.ref(device.room.reference(_task(1)))
    gc.disable()
    try:
        _judge(device, [(2, 2)], tmp_path)
        assert kept() is None
    finally:
        gc.enable()


def test_what_was_judged_on_a_worker_is_garbage_once_it_rests(tmp_path: Path) -> None:
    """An import of torch, which each kernel asks for, must not put what lives by then beyond all collections."""
    task, kernel = _task(1), _kernel(1)
    build = build_stage(task, kernel, PROTOCOL, tmp_path)
    assert run_on_device(task, kernel, build, PROTOCOL, "key", ()).outcome == Outcome.CORRECT
    (device,) = _devices.values()
    kept = weakref.ref(device.room.reference(task))
    assert run_on_device(task, kernel, build, PROTOCOL, "key", ()).outcome == Outcome.CORRECT
    rest_devices(0)
    _devices.clear()
    assert kept() is None


@pytest.mark.parametrize("slots", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_task_with_large_tensors_is_judged_in_as_few_slots_as_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    monkeypatch.setattr("kevin.judge.correctness.trials._KEPT_BYTES", 0)
    device = _Watched()
    device.hardware.slot_budget_bytes, device.hardware.least_slots = 0, slots
    assert PROTOCOL.num_trials > 2
    verdicts = _judge(device, [(1, 1), (1, 2), (2, 2)], tmp_path)
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT, Outcome.INCORRECT, Outcome.CORRECT]
    assert verdicts[0].trials_passed == PROTOCOL.num_trials
    assert {w.slots.num_slots for w in device.room.workspaces._idle} == {slots}
    assert verdicts[0].timing is not None and verdicts[0].rounds


@pytest.mark.parametrize("slots", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_module_is_timed_with_the_parameters_that_eager_has(tmp_path: Path, slots: int) -> None:
    """They differ from trial to trial; without a spare slot there is no untimed call that would load them."""
    task = _linear_task()
    device = _Watched()
    device.hardware.slot_budget_bytes, device.hardware.least_slots = 0, slots
    for body, outcome in (("pass", Outcome.CORRECT), (_FORWARD + " * 1.01", Outcome.INCORRECT)):
        kernel = _module(task, body)
        verdict = device.judge(task, kernel, build_stage(task, kernel, PROTOCOL, tmp_path), body)
        assert verdict.outcome == outcome, verdict.message
        assert (verdict.timing is not None) == (outcome == Outcome.CORRECT)


@pytest.mark.parametrize("dialect", [pytest.param("c_abi", marks=pytest.mark.slow), "load_inline"])
def test_a_references_model_is_used_by_who_has_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: Dialect
) -> None:
    """Another thread may be between giving it a trial's parameters and asking it for what they lead to."""
    task, device, used = _linear_task(), Judging(_Cpu()), []
    loops = "for (int i = 0; i < 32; i++) for (int j = 0; j < 48; j++) {"
    dot = "float s = b[j]; for (int k = 0; k < 64; k++) s += x[i * 64 + k] * w[j * 64 + k]; out[i * 48 + j] = s; }"
    source = f'extern "C" void launch(const float* x, const float* w, const float* b, float* out) {{ {loops} {dot} }}'
    native = Kernel(dialect="c_abi", language="cpp", source=source)
    kernel = native if dialect == "c_abi" else _module(task, "pass")
    set_parameters = ReferenceModel.set_parameters

    def watched(model: ReferenceModel, values: list[Any]) -> None:
        used.append(device.room.lock._changed._lock.locked())  # type: ignore[attr-defined]
        set_parameters(model, values)

    monkeypatch.setattr(ReferenceModel, "set_parameters", watched)
    verdict = device.judge(task, kernel, build_stage(task, kernel, PROTOCOL, tmp_path), "key")
    assert verdict.outcome == Outcome.CORRECT, verdict.message
    assert used and all(used)


@pytest.mark.slow
def test_a_cell_reads_parameters_only_when_they_have_arrived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU what the judge copies into a slot, gigabytes, is there once it has waited for it."""
    task = _linear_task()
    on_the_way: list[Callable[[], None]] = []
    fill = SharedSlots.fill

    def settle(protocol: JudgeProtocol) -> None:
        while on_the_way:
            on_the_way.pop(0)()

    monkeypatch.setattr(SharedSlots, "fill", lambda *args: on_the_way.append(lambda: fill(*args)))
    monkeypatch.setattr(checks, "settle", settle)
    monkeypatch.setattr(paired, "settle", settle)
    device = _Watched()
    device.hardware.slot_budget_bytes, device.hardware.least_slots = 0, 1
    kernel = _module(task, "pass")
    verdict = device.judge(task, kernel, build_stage(task, kernel, PROTOCOL, tmp_path), "key")
    assert verdict.outcome == Outcome.CORRECT, verdict.message


def test_a_clock_that_says_what_no_device_can_do_is_quarantined_whatever_calls_in_a_row_take() -> None:
    device, found = _Watched(), Findings(())
    device.hardware.bound_us = lambda reference: 10.0  # type: ignore[method-assign]
    for clock_us, reason in ((None, None), (20.0, None), (0.001, "faster_than_possible")):
        found.measured = Measured(
            kernel=paired.summarize([400.0]), reference=paired.summarize([100.0]), rounds=(), clock_us=clock_us
        )
        device._quarantine(None, found)  # type: ignore[arg-type]
        assert found.reason == reason


def test_what_failed_is_gone_before_the_next_turn(tmp_path: Path) -> None:
    device = _Watched()
    pids: list[int] = []

    def measure(cell: Any, workspace: Any, kernel: Kernel, found: Any) -> None:
        assert not any(psutil.pid_exists(pid) for pid in pids)
        pid = cell._process.pid
        assert pid is not None
        pids.append(pid)
        raise CandidateFailed(Outcome.TIMEOUT, "run_timeout", "it did not finish")

    device._measure = measure  # type: ignore[method-assign]
    verdicts = _judge(device, [(1, 1), (1, 2), (1, 3)], tmp_path)
    assert [v.outcome for v in verdicts] == [Outcome.TIMEOUT] * 3 and len(pids) == 3
