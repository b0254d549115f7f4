"""A judging device: the trusted references of its tasks, a workspace for each candidate, and one measured at a time.

What differs between CPU and GPU (memory, cells, clocks, leases) lives in `cpu` and `gpu`; the order of things, and with
it the meaning of a verdict, is here and the same for both. Several threads may judge at once: their cells start side by
side, also while another candidate is measured, and everything else takes turns.
"""

from __future__ import annotations

import base64
import gc
import io
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from kevin.core.abi import LAUNCHER
from kevin.core.errors import DeviceFullError
from kevin.core.protocol import JudgeProtocol, Rule
from kevin.core.types import Kernel, Outcome, Task, TaskSpec, Verdict
from kevin.judge.admission import Admission, Need
from kevin.judge.build import Build
from kevin.judge.cell import CandidateFailed, Cell
from kevin.judge.checks import Findings, check_fewer_rows, check_trials, module_trials
from kevin.judge.device_lock import Company, DeviceLock
from kevin.judge.inside.host import last_level_bytes
from kevin.judge.memory import SharedBuffer, SharedSlots, slot_bytes, tensor_bytes
from kevin.judge.preemption import Calls
from kevin.judge.reference import ReferenceCache, ReferenceTask, Trial, does_not_fit, keeps_trials
from kevin.judge.roofline import Peaks, count_flops, measure_peaks, roofline
from kevin.judge.sandbox import detect_isolation
from kevin.judge.timing import PairedTimer
from kevin.judge.workspace import Workspace, Workspaces, new_workspace

_LOAD_TIMEOUT_S = {"c_abi": 20.0, "load_inline": 90.0}
_SETTLE_S = 0.1
"""For the driver to take down the contexts of processes that have just ended."""
_SLOTS_IN_PASSING = 2
"""What drawing a trial's inputs, or computing what is expected of them, takes at most beside its result."""


class _MemoryShortError(Exception):
    """Something found too little memory while others had some of it; what, and how it said so."""


class Started(NamedTuple):
    """A cell that has loaded its candidate, and what it is measured with."""

    cell: Cell
    reference: ReferenceTask
    slots: SharedSlots
    private: list[list[Any]]


class Device(ABC):
    """Judges built kernels. ``slot_budget_bytes`` bounds a workspace's slots, ``max_tasks`` how many tasks are kept.

    ``shares_memory``: whether what one candidate takes is missing to others. One that runs out of memory then is run
    again with nothing beside it.
    ``small_bytes``: what a candidate may need without waiting for others that need more.
    ``starts_at_once``: of cells that do not import torch. A driver makes contexts one after the other, and whoever asks
    it for memory meanwhile, this process too, waits in the same line.
    """

    name: str
    slot_budget_bytes: int
    max_tasks: int
    starts_at_once: int = 4
    shares_memory: bool = False
    small_bytes: float = math.inf

    def __init__(self, protocol: JudgeProtocol) -> None:
        self.protocol = protocol
        self.isolation = detect_isolation()
        self.references = ReferenceCache(protocol, self.max_tasks)
        self._peaks: Peaks | None = None
        self._flops: dict[str, int] = {}
        self._workspaces = Workspaces()
        self._admission = Admission(self.free_bytes, self.small_bytes)
        self._lock = DeviceLock()
        self._company = Company()
        self._starts = threading.Semaphore(self.starts_at_once)

    @abstractmethod
    def prepare_thread(self) -> None:
        """Called before each candidate: the calling thread may be a new one."""

    @abstractmethod
    def allocate(self, num_bytes: int) -> SharedBuffer:
        """Memory of the device that a cell can map."""

    @abstractmethod
    def lease(self, *, exclusive: bool) -> AbstractContextManager[None]:
        """Hold the device: shared by correctness checks, exclusive for timing."""

    @abstractmethod
    def open_cell(self, kernel: Kernel, build: Build) -> Cell:
        """Start the sandboxed process for a candidate. Before it is prepared, it takes nothing of the device."""

    @abstractmethod
    def clock(self, call: Any) -> int:
        """Nanoseconds of one call of the eager reference, by the method that cells use."""

    @abstractmethod
    def bound_us(self, reference: ReferenceTask) -> float:
        """No kernel for this task can be faster: anything below is quarantined."""

    @property
    def peaks(self) -> Peaks:
        """Measured on first use, which no lease may be held for."""
        if self._peaks is None:
            with self.lease(exclusive=True):
                self._peaks = measure_peaks(self.protocol.device, self.protocol.precision, self.clock)
        return self._peaks

    def time_reference(
        self, reference: ReferenceTask, slots: SharedSlots, views: list[list[Any]], order: list[int], keep: int
    ) -> tuple[Calls, list[torch.Tensor]]:
        """One eager call on each slot of ``order``, after an untimed one, and the outputs on ``keep``.

        Args:
            views: the inputs of every slot; eager reads the memory that the candidate reads.
        """
        ns, kept = reference.run_timed(self.clock, views[len(order)], [views[i] for i in order], order.index(keep))
        return Calls([n / 1e3 for n in ns]), kept

    def give_back(self, workspace: Workspace) -> None:
        """The memory of a workspace that is no longer kept; with the last one of a task its reference goes."""
        workspace.slots.close()
        if workspace.digest not in self._workspaces.tasks():
            self.references.discard(workspace.digest)

    def free_bytes(self) -> float:
        """Of the device's memory, now; without a limit where candidates need not share it."""
        return math.inf

    def process_bytes(self, spec: TaskSpec, working_bytes: int) -> int:
        """What a candidate's process takes of it; ``working_bytes`` of the reference, 0 while it is unknown."""
        return 0

    def warm_up(self) -> None:
        """Called once while the first builds run, for what takes time before the first candidate."""
        return

    # --- one candidate ---

    def judge(
        self,
        task: Task,
        kernel: Kernel,
        build: Build,
        key: str,
        flags: tuple[str, ...] = (),
        rules: tuple[Rule, ...] | None = None,
    ) -> Verdict:
        """Run, check and time one successfully built kernel. May be called by several threads at once.

        Args:
            flags: rules that its source breaks.
            rules: enforced on what runs; the protocol's when absent.

        Raises:
            HarnessError: the sandbox or the device failed. TaskError: the reference itself does not run.
        """
        enforced = self.protocol.rules if rules is None else rules
        short: str | None = None
        for is_alone in (False, False, True):  # memory that others had for a moment is often there the second time
            try:
                found = self._attempt(task, kernel, build, enforced, alone=short if is_alone else None)
                break
            except _MemoryShortError as e:
                short = str(e)  # and no more of it: its frames hold memory
        measured = found.measured if found.outcome in (Outcome.CORRECT, Outcome.QUARANTINED) else None
        return Verdict(
            key=key,
            task_digest=task.digest,
            kernel_digest=kernel.digest,
            protocol_digest=self.protocol.digest,
            device_name=self.name,
            outcome=found.outcome,
            reason=found.reason,
            message=found.message,
            flags=tuple(sorted({*flags, *found.flags})),
            trials_passed=found.trials_passed,
            num_trials=self.protocol.num_trials,
            max_abs_error=found.max_abs_error,
            max_rel_error=found.max_rel_error,
            timing=measured.kernel if measured else None,
            reference_timing=measured.reference if measured else None,
            rounds=measured.rounds if measured else (),
            seconds={"build": build.seconds, **found.seconds},
            details={"isolation": self.isolation.value, **build.resources, **found.details},
        )

    def _attempt(
        self, task: Task, kernel: Kernel, build: Build, rules: tuple[Rule, ...], *, alone: str | None = None
    ) -> Findings:
        """``alone``: why there must be nothing beside it.

        Raises:
            _MemoryShortError: the device's memory did not suffice, and others have some of it. Others as `judge`.
        """
        found = Findings(rules)
        if alone is not None:
            found.details["judged_alone"] = alone[:200]
        if build.reason is not None:
            found.details["failed_build"] = build.message[:500]
        try:
            with (
                self._open(kernel, build, found) as cell,
                self._alone() if alone is not None else self._company.together(),
            ):
                self._run(cell, task, kernel, build, found)
        except CandidateFailed as e:
            if e.reason == "out_of_memory" and self.shares_memory and alone is None:
                raise _MemoryShortError(f"the candidate ran out of memory: {e}") from None
            found.outcome, found.reason, found.message = e.outcome, e.reason, e.message
            if build.reason is not None and "torch_compute" in found.rules:  # whatever came of it, this is why
                found.outcome, found.reason, found.message = Outcome.COMPILE_ERROR, build.reason, build.message
        except DeviceFullError as e:
            if alone is not None:
                raise
            raise _MemoryShortError(str(e)) from None
        return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else is there, and no memory is kept for further candidates."""
        with self._company.alone():
            with self._turn():
                while (oldest := self._workspaces.drop_oldest()) is not None:
                    self.give_back(oldest)
                gc.collect()  # tensors in the frames of what failed
            yield

    def reference(self, task: Task) -> ReferenceTask:
        """Waits for no lease where there is nothing to make. Errors as `ReferenceCache.get`."""
        if task in self.references:
            return self.references.get(task)
        with self.lease(exclusive=False):
            return self.references.get(task)

    def _num_slots(self, spec: TaskSpec) -> int:
        affordable = self.slot_budget_bytes // max(slot_bytes(spec), 1)
        wanted = min(self.protocol.timing.max_calls_per_round + 1, affordable)
        return max(2, wanted, self.protocol.num_trials if affordable else 0)

    def _need(self, task: Task) -> Need:
        """Of one more candidate of a task; nothing while no specification says how large it is."""
        if (spec := task.spec) is None:
            return Need(0, 0, 0)
        reference = self.references.get(task) if task in self.references else None
        kept = 0
        if not self._workspaces.has_idle(task.digest):
            kept = self._num_slots(spec) * (slot_bytes(spec) + tensor_bytes(spec.inputs))
            if reference is None:
                num_trials = self.protocol.num_trials
                kept += max(2, num_trials if keeps_trials(spec, num_trials) else 1) * slot_bytes(spec)
        process = self.process_bytes(spec, reference.working_bytes if reference else 0)
        return Need(process, kept, _SLOTS_IN_PASSING * slot_bytes(spec))

    def _admit(self, task: Task) -> tuple[Workspace | None, Need]:
        """Wait until there is memory for one more candidate; give back what was not used for longest.

        Returns:
            An idle workspace of its task, if there is one.
        """
        kept, ticket = self._workspaces, self._admission.stand_in_line()
        try:
            while True:
                need = self._need(task)
                is_alone = not len(self._admission)
                if self._admission.is_next(ticket, need):
                    too_many = len(kept.tasks() | {task.digest}) > self.max_tasks
                    if not too_many and self._admission.fits(need):
                        break
                    helps = too_many or is_alone or self._admission.fits(need, kept.idle_bytes(task.digest))
                    oldest = kept.drop_oldest(task.digest) if helps else None
                    if oldest is not None:
                        self.give_back(oldest)
                        continue
                    if is_alone:
                        break
                self._lock.wait()
        finally:
            self._admission.leave_line(ticket)
        self._admission.enter(need)
        return kept.take(task.digest), need

    def _new_workspace(self, task: Task) -> Workspace:
        try:
            reference = self.reference(task)
            slots = SharedSlots(reference.spec, self._num_slots(reference.spec), self.allocate)
            try:
                workspace = new_workspace(reference, slots)
            except torch.OutOfMemoryError as e:
                slots.close()
                raise does_not_fit(task, e) from None
        except DeviceFullError:
            if task.digest not in self._workspaces.tasks():
                self.references.discard(task.digest)
            raise
        self._workspaces.add(workspace)
        return workspace

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread at a time works on the device and on what belongs to it."""
        with self._lock.held():
            self.prepare_thread()
            yield

    @contextmanager
    def turn_of(self, cell: Cell) -> Iterator[None]:
        """A candidate's turn. One that fails ends with it: what it left running would be in the next one's times."""
        with self._turn():
            try:
                yield
            except CandidateFailed as e:
                if e.outcome is not Outcome.INCORRECT:
                    cell.kill()
                raise

    @contextmanager
    def _open(self, kernel: Kernel, build: Build, found: Findings) -> Iterator[Cell]:
        """A candidate's process. While it imports torch, which takes seconds, it keeps no memory from others."""
        start = time.perf_counter()
        with self._lock.brief():
            cell = self.open_cell(kernel, build)
        with cell:
            cell.wait()
            found.seconds["start"] = time.perf_counter() - start
            yield cell

    @contextmanager
    def _started(self, cell: Cell, task: Task, kernel: Kernel, build: Build, found: Findings) -> Iterator[Started]:
        """The cell has loaded its candidate; other threads have their turn while it does so."""
        with self._workspace_for(task, found) as workspace:
            try:
                self._load(cell, kernel, build, workspace, found)
                yield Started(cell, workspace.reference, workspace.slots, workspace.inputs)
            finally:
                cell.kill()  # before its memory goes to the next one

    def _load(self, cell: Cell, kernel: Kernel, build: Build, workspace: Workspace, found: Findings) -> None:
        start = time.perf_counter()
        with self._lock.brief():
            self.prepare_thread()
            setup = self._setup(kernel, build, workspace.reference, workspace.slots)
        with self._starts if kernel.dialect == "c_abi" else nullcontext():
            found.details["guards"] = "+".join(cell.prepare(setup, workspace.slots.fd))
        reply = cell.load(_LOAD_TIMEOUT_S[kernel.dialect])
        if "error" in reply:
            reason = "out_of_memory" if reply.get("reason") == "out_of_memory" else "load_error"
            raise CandidateFailed(Outcome.RUNTIME_ERROR, reason, str(reply["error"])[:2000])
        found.seconds["start"] += time.perf_counter() - start

    @contextmanager
    def _no_starts(self) -> Iterator[None]:
        """No cell makes its context meanwhile, which other cells' calls of the driver would wait for."""
        with ExitStack() as held:
            for _ in range(self.starts_at_once):
                held.enter_context(self._starts)
            time.sleep(_SETTLE_S)
            yield

    @contextmanager
    def _workspace_for(self, task: Task, found: Findings) -> Iterator[Workspace]:
        """Memory for a candidate, and leave for its process to take what it needs."""
        workspace = None
        with self._lock.brief():
            need = self._need(task)
            if self._workspaces.has_idle(task.digest) and self._admission.fits(need):
                workspace = self._workspaces.take(task.digest)
                self._admission.enter(need)
        if workspace is None:
            with self._turn():
                start = time.perf_counter()
                workspace, need = self._admit(task)
                admitted = time.perf_counter()
                found.seconds["admission"] = admitted - start
                if workspace is None:
                    try:
                        workspace = self._new_workspace(task)
                    except BaseException:
                        self._admission.leave(need)
                        raise
                found.seconds["reference"] = time.perf_counter() - admitted
        try:
            yield workspace
        finally:
            slots = workspace.slots
            with self._lock.brief():
                for i in range(min(self.protocol.num_trials, slots.num_slots)):  # the next one must not find answers
                    slots.poison_outputs(i)
                self._workspaces.put_back(workspace)
                self._admission.leave(need)

    def _setup(self, kernel: Kernel, build: Build, reference: ReferenceTask, slots: SharedSlots) -> dict[str, Any]:
        inputs = reference.trials[0].inputs
        setup: dict[str, Any] = {
            "device": self.protocol.device,
            "precision": self.protocol.precision,
            "tf32": self.protocol.tf32,
            "shared_bytes": slots.total_bytes,
            "memory_bytes": self.protocol.memory_mb << 20,
            "num_threads": self.protocol.num_threads,
            "cache_bytes": last_level_bytes(),
            "slots": [slots.arguments(i, inputs) for i in range(slots.num_slots)],
            "num_outputs": len(reference.spec.outputs),
            "late_pieces": [slots.late_pieces(i) for i in range(slots.num_slots)],
        }
        if kernel.dialect == "c_abi":
            return setup | {"library": build.path, "launcher": LAUNCHER}
        if (fewer := reference.fewer_rows) is not None:  # one more slot, in the memory of the first
            setup["slots"].append(slots.reshaped(0, fewer.inputs, fewer.outputs)[0])
        arguments = io.BytesIO()
        torch.save(reference.init_inputs, arguments)
        return setup | {
            "source": kernel.source,
            "build_folder": build.path,
            "weight_seed": reference.weight_seed,
            "init_inputs": base64.b64encode(arguments.getvalue()).decode(),
            "num_inputs": len(reference.spec.inputs),
            "parameter_names": reference.parameter_names,
        }

    def _run(self, cell: Cell, task: Task, kernel: Kernel, build: Build, found: Findings) -> None:
        with self._started(cell, task, kernel, build, found) as started:
            start = time.perf_counter()
            with self.turn_of(started.cell):
                found.seconds["wait"] = time.perf_counter() - start
                self._measure(started, kernel, found)
            self.prove(started.cell, kernel, found)  # afterwards: a profiler that was once attached slows every call
            self.profile(started, kernel, build, found)
            self._try_fewer_rows(started, kernel, found)

    def _measure(self, started: Started, kernel: Kernel, found: Findings) -> None:
        cell, reference = started.cell, started.reference
        timer = PairedTimer(
            cell,
            reference,
            started.slots,
            started.private,
            self.protocol,
            self.time_reference,
            self._lock.pause,
            allocates=kernel.dialect == "load_inline",
            quiet=self._no_starts,
        )
        start = time.perf_counter()
        try:
            with self.lease(exclusive=False):
                trials: Sequence[Trial] = reference.trials
                if kernel.dialect == "load_inline":
                    trials = module_trials(cell, reference, started.slots, self.protocol, found)
                timer.prepare(check_trials(cell, trials, started.slots, self.protocol, found, self._lock.pause))
        finally:
            found.seconds["check"] = time.perf_counter() - start
        start = time.perf_counter()
        with self.lease(exclusive=True):
            found.measured = timer.run()
        found.seconds["time"] = time.perf_counter() - start
        if found.measured.clock_us is not None:
            found.details["clock_us"] = found.measured.clock_us
        if found.measured.num_left_out:
            found.details["rounds_left_out"] = found.measured.num_left_out
        if found.measured.is_disturbed:
            found.details["disturbed"] = "other work kept its core busy: times are without the waiting, and less exact"
        found.outcome = Outcome.CORRECT
        self._quarantine(reference, found)
        self._place_on_roofline(reference, found)

    def _try_fewer_rows(self, started: Started, kernel: Kernel, found: Findings) -> None:
        """Whether a correct module is right for a leading dimension that its task did not name. May end its process.

        Raises:
            CandidateFailed: it is not, and the rule ``fixed_shapes`` is enforced.
        """
        fewer = started.reference.fewer_rows
        if fewer is None or kernel.dialect == "c_abi" or found.outcome is not Outcome.CORRECT:
            return
        try:
            with self.turn_of(started.cell), self.lease(exclusive=False):
                check_fewer_rows(started.cell, fewer, started.reference.trials[0], started.slots, self.protocol)
            found.details["fewer_rows"] = "passed"
        except CandidateFailed as e:
            found.details["fewer_rows"] = e.reason
            found.flags.add("fixed_shapes")
            if "fixed_shapes" in found.rules:
                rows = next(len(x) for x in fewer.inputs if isinstance(x, torch.Tensor))
                text = f"right for its task's own sizes only: with {rows} rows, {e.message}"
                raise CandidateFailed(Outcome.REFUSED, "fixed_shapes", text) from None

    def prove(self, cell: Cell, kernel: Kernel, found: Findings) -> None:
        """Show that the candidate's own kernels did the work. Nothing to show where no library can be called."""
        return

    def profile(self, started: Started, kernel: Kernel, build: Build, found: Findings) -> None:
        """What the protocol's profiler says of a correct candidate, into its details."""
        return

    def _quarantine(self, reference: ReferenceTask, found: Findings) -> None:
        if found.measured is None:
            return
        bound = self.bound_us(reference)
        found.details["bound_us"] = bound
        clock_us = found.measured.clock_us or found.measured.kernel.median_us
        if clock_us < bound:
            found.outcome, found.reason = Outcome.QUARANTINED, "faster_than_possible"
            found.message = (
                f"{clock_us:.3g} us a call is less than its memory traffic can take on this device ({bound:.3g} us)"
            )

    def _place_on_roofline(self, reference: ReferenceTask, found: Findings) -> None:
        if found.measured is None or found.outcome is not Outcome.CORRECT:
            return
        digest = reference.task.digest
        if digest not in self._flops:
            with self.lease(exclusive=False):
                self._flops[digest] = count_flops(reference)
        found.details |= roofline(reference.spec, self._flops[digest], found.measured.kernel.median_us, self.peaks)


def open_device(protocol: JudgeProtocol) -> Device:
    """The device that a protocol names. Raises DeviceError where it is missing."""
    if protocol.device == "cpu":
        from kevin.judge.cpu import CpuDevice

        return CpuDevice(protocol)
    from kevin.judge.gpu import GpuDevice

    return GpuDevice(protocol)
