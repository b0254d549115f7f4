"""Judges built kernels on the CPU or GPU that it is handed.

What differs between these (memory, cells, clocks, leases) is their `Hardware`; the order of things, and with it the
meaning of a verdict, is here and the same for both. Several threads may judge at once, see `Room`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import torch

from kevin.core.abi import LAUNCHER, wanted
from kevin.core.errors import DeviceFullError
from kevin.core.protocol import Rule
from kevin.core.types import Dialect, Kernel, Outcome, Task, Verdict
from kevin.judge.compile.native import Build, build_native
from kevin.judge.correctness.checks import Findings, check_fewer_rows, check_guarded, check_trials, module_trials
from kevin.judge.correctness.other_sizes import other_sizes
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.device.hardware import Hardware
from kevin.judge.device.roofline import count_flops, roofline
from kevin.judge.device.room import Room
from kevin.judge.device.workspace import Workspace, cell_setup
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.timing.fresh import FreshSlots
from kevin.judge.timing.in_a_row import CallsInARow
from kevin.judge.timing.paired import PairedTimer

_LOAD_TIMEOUT_S = {"c_abi": 20.0, "load_inline": 90.0}
_SETTLE_S = 0.1
"""For the driver to take down the contexts of processes that have just ended."""


class _MemoryShortError(Exception):
    """Something found too little memory while others had some of it; what, and how it said so."""


class Judging:
    """The trusted references of its tasks, a workspace for each candidate, and one measured at a time."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware, self.protocol = hardware, hardware.protocol
        self.room = Room(hardware)
        self._flops: dict[str, int] = {}

    @property
    def name(self) -> str:
        """Of the device, as verdicts have it."""
        return self.hardware.name

    def warm_up(self) -> None:
        """Do what the first candidate would wait for; called once while the first builds run."""
        self.hardware.prepare()
        with self.room.hold():
            self.hardware.warm_up()

    def want(self, num_kernels: int, dialect: Dialect, most: int) -> None:
        """So many are about to come, and cells of ``most`` of them may wait for them. Until `Room.rest`."""
        if dialect == "c_abi":
            self.room.spares.want(num_kernels, min(most, self.hardware.most_spares()))

    def expect(self, task: Task, dialect: Dialect, is_wanted: Callable[[], bool]) -> None:
        """As `Room.expect`; what fails in the hardware is raised as in `judge`."""
        with self.hardware.attributed(task):
            self.room.expect(task, dialect, is_wanted)

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
        short = ""
        for is_alone in (False, False, True):  # memory that others had for a moment is often there the second time
            try:
                found = self._attempt(task, kernel, build, enforced, alone=short if is_alone else None)
                break
            except _MemoryShortError as e:
                short = str(e)  # and no more of it: its frames hold memory
        else:
            raise DeviceFullError(short)
        if self.protocol.shapes and found.outcome is Outcome.CORRECT:
            self._try_other_sizes(task, kernel, build, found)
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
            details={"isolation": self.hardware.isolation.value, **build.resources, **found.details},
        )

    def _attempt(
        self, task: Task, kernel: Kernel, build: Build, rules: tuple[Rule, ...], *, alone: str | None = None
    ) -> Findings:
        """``alone``: why there must be nothing beside it.

        Raises:
            _MemoryShortError: the device's memory did not suffice. Others as `judge`.
        """
        found = Findings(rules)
        if alone is not None:
            found.details["judged_alone"] = alone[:200]
        if build.reason is not None:
            found.details["failed_build"] = build.message[:500]
        try:
            with (
                self._open(kernel, build, found) as (cell, build_inside),
                self.room.alone() if alone is not None else self.room.company.together(),
            ):
                self._run(cell, task, kernel, build_inside, found)
        except CandidateFailed as e:
            if e.reason == "out_of_memory" and self.hardware.shares_memory and alone is None:
                raise _MemoryShortError(f"the candidate ran out of memory: {e}") from None
            found.outcome, found.reason, found.message = e.outcome, e.reason, e.message
            if build.reason is not None and "torch_compute" in found.rules:  # whatever came of it, this is why
                found.outcome, found.reason, found.message = Outcome.COMPILE_ERROR, build.reason, build.message
        except DeviceFullError as e:
            raise _MemoryShortError(str(e)) from None
        return found

    @contextmanager
    def candidate(self, task: Task, kernel: Kernel, build: Build) -> Iterator[tuple[Cell, Workspace]]:
        """A loaded candidate with the device to itself, for other measurements than the judge's own.

        Raises:
            CandidateFailed: it does not load, or fails meanwhile. HarnessError, TaskError: as `judge`.
        """
        found = Findings(())
        with (
            self._open(kernel, build, found) as (cell, build_inside),
            self.room.company.together(),
            self.hardware.attributed(task),
            self._loaded(cell, task, kernel, build_inside, found) as workspace,
            self.room.hold_for(cell),
            self.hardware.lease(exclusive=True),
        ):
            yield cell, workspace

    def _try_other_sizes(self, task: Task, kernel: Kernel, build: Build, found: Findings) -> None:
        """Whether a correct candidate is right at other sizes too; what is found stands in ``found``."""
        tasks = other_sizes(task, self.protocol.shapes, longer=kernel.dialect == "load_inline")
        found.details["other_sizes"] = len(tasks)
        for other in tasks:
            try:
                made = build
                if kernel.dialect == "c_abi":
                    assert build.path is not None and other.spec is not None
                    made = build_native(kernel, other.spec, self.protocol, Path(build.path).parent)
                    if made.outcome is not None:
                        raise CandidateFailed(made.outcome, "", made.message)
                with self.candidate(other, kernel, made) as (cell, workspace):
                    self._check(cell, workspace, kernel, Findings(()))
            except CandidateFailed as e:
                found.outcome, found.reason = Outcome.INCORRECT, "wrong_at_other_sizes"
                found.message = f"right at the task's own sizes only: as {other.id}: {e.message}"
                return

    def _check(self, cell: Cell, workspace: Workspace, kernel: Kernel, found: Findings) -> float:
        """All correctness trials of a loaded candidate, for which the device is held. As `check_trials`."""
        reference, slots = workspace.reference, workspace.slots
        trials = reference.trials
        if kernel.dialect == "load_inline":
            trials = module_trials(cell, reference, slots, self.protocol, found)
        return check_trials(cell, reference, trials, slots, self.protocol, found, self.room.lock.pause)

    @contextmanager
    def _open(self, kernel: Kernel, build: Build, found: Findings) -> Iterator[tuple[Cell, Build]]:
        """A candidate's process, and its build as it is in there.

        While it imports torch, which takes seconds, it keeps no memory from others.
        """
        start = time.perf_counter()
        spare = self.room.spares.take() if kernel.dialect == "c_abi" else None
        if spare is not None:
            with closing(spare):
                inside = spare.receive(build)
                found.seconds["start"] = time.perf_counter() - start
                yield spare.cell, inside
            return
        with self.room.lock.brief():
            cell = self.hardware.open_cell(kernel, build)
        with cell:
            cell.wait()
            found.seconds["start"] = time.perf_counter() - start
            yield cell, build

    @contextmanager
    def _loaded(self, cell: Cell, task: Task, kernel: Kernel, build: Build, found: Findings) -> Iterator[Workspace]:
        """The cell has loaded its candidate, which works on what is yielded; others use the device meanwhile."""
        with self.room.workspace_for(task, kernel.dialect, found.seconds) as workspace:
            try:
                self._load(cell, kernel, build, workspace, found)
                yield workspace
            finally:
                cell.kill()  # before its memory goes to the next one

    def _load(self, cell: Cell, kernel: Kernel, build: Build, workspace: Workspace, found: Findings) -> None:
        start = time.perf_counter()
        with self.room.lock.brief():
            self.hardware.prepare_thread()
            setup = cell_setup(self.protocol, kernel, build, workspace)
        with self.room.starts if kernel.dialect == "c_abi" else nullcontext():
            found.details["guards"] = "+".join(cell.prepare(setup, workspace.slots.fd))
        reply = cell.load(_LOAD_TIMEOUT_S[kernel.dialect])
        if "error" in reply:
            reason, text = "load_error", str(reply["error"])[:2000]
            if reply.get("reason") == "out_of_memory":
                reason = "out_of_memory"
            elif kernel.dialect == "c_abi" and f"undefined symbol: {LAUNCHER}" in text:
                text = f"{wanted(workspace.slots.spec, kernel.language)}\n{text}"
            raise CandidateFailed(Outcome.RUNTIME_ERROR, reason, text)
        found.seconds["start"] += time.perf_counter() - start

    @contextmanager
    def _no_starts(self) -> Iterator[None]:
        """No cell makes its context meanwhile, which other cells' calls of the driver would wait for."""
        with ExitStack() as held:
            for _ in range(self.hardware.starts_at_once):
                held.enter_context(self.room.starts)
            time.sleep(_SETTLE_S)
            yield

    def _run(self, cell: Cell, task: Task, kernel: Kernel, build: Build, found: Findings) -> None:
        with self.hardware.attributed(task), self._loaded(cell, task, kernel, build, found) as workspace:
            start = time.perf_counter()
            with self.room.hold_for(cell):
                found.seconds["wait"] = time.perf_counter() - start
                self._measure(cell, workspace, kernel, found)
            # afterwards: a profiler that was once attached slows every call
            self.hardware.prove(cell, kernel, found, self.room.hold_for)
            checks_memory = self.protocol.memcheck and found.outcome is Outcome.CORRECT
            if checks_memory or self.hardware.can_profile(kernel):
                with self.room.hold():
                    setup = cell_setup(self.protocol, kernel, build, workspace)
                if checks_memory:
                    self.hardware.check_memory(kernel, build, setup, workspace.slots.fd, found)
                self.hardware.profile(task, kernel, build, setup, workspace.slots.fd, found)
            if self._keeps_to_its_memory(cell, workspace, kernel, found):
                self._try_fewer_rows(cell, workspace, kernel, found)

    def _measure(self, cell: Cell, workspace: Workspace, kernel: Kernel, found: Findings) -> None:
        reference, slots = workspace.reference, workspace.slots
        held_bytes = partial(self.hardware.held_bytes, cell)
        fresh = FreshSlots(slots, reference, workspace.first, workspace.inputs, self.protocol)
        bytes_per_us = self.hardware.most_bytes_per_us() if self.protocol.device == "cuda" else math.inf
        timer = PairedTimer(
            cell,
            fresh,
            CallsInARow(cell, fresh, held_bytes, bytes_per_us, self._no_starts),
            self.hardware.time_reference,
            self.room.lock.pause,
            held_bytes=held_bytes,
            allocates=kernel.dialect == "load_inline",
        )
        start = time.perf_counter()
        try:
            with self.hardware.lease(exclusive=False):
                timer.prepare(self._check(cell, workspace, kernel, found))
        finally:
            found.seconds["check"] = time.perf_counter() - start
        start = time.perf_counter()
        with self.hardware.lease(exclusive=True):
            found.measured = timer.run()
        found.seconds["time"] = time.perf_counter() - start
        if found.measured.clock_us is not None:
            found.details["clock_us"] = found.measured.clock_us
        if found.measured.num_left_out:
            found.details["rounds_left_out"] = found.measured.num_left_out
        if found.measured.is_disturbed:
            found.details["disturbed"] = "other work kept its core busy: times are without the waiting, and less exact"
        found.outcome = Outcome.CORRECT
        found.details["calls_looked_at"] = self.protocol.num_trials + found.measured.num_looked_at
        self._refuse_leaks(found)
        if found.details.get("kernelbench_check") == "failed":
            found.flags.add("kernelbench_disagrees")
        self._quarantine(reference, found)
        self._place_on_roofline(reference, found)

    def _try_fewer_rows(self, cell: Cell, workspace: Workspace, kernel: Kernel, found: Findings) -> None:
        """Whether a correct module is right for a leading dimension that its task did not name. May end its process.

        Raises:
            CandidateFailed: it is not, and the rule ``fixed_shapes`` is enforced.
        """
        if kernel.dialect == "c_abi" or found.outcome is not Outcome.CORRECT:
            return
        reference = workspace.reference
        fewer = reference.fewer_rows  # made with the cell's set-up, while nobody else used the model
        if fewer is None:
            return
        try:
            with self.room.hold_for(cell), self.hardware.lease(exclusive=False):
                check_fewer_rows(cell, reference, fewer, workspace.slots, self.protocol)
            found.details["fewer_rows"] = "passed"
        except CandidateFailed as e:
            found.details["fewer_rows"] = e.reason
            found.flags.add("fixed_shapes")
            if "fixed_shapes" in found.rules:
                rows = next(len(x) for x in fewer.inputs if isinstance(x, torch.Tensor))
                text = f"right for its task's own sizes only: with {rows} rows, {e.message}"
                raise CandidateFailed(Outcome.REFUSED, "fixed_shapes", text) from None

    def _keeps_to_its_memory(self, cell: Cell, workspace: Workspace, kernel: Kernel, found: Findings) -> bool:
        """Whether a correct candidate's process is there when it was looked at, on a host, what memory it touches.

        Raises:
            CandidateFailed: memory that is not its own.
        """
        reference = workspace.reference
        works_in_place = reference.keeps_inputs is False  # and so may the candidate
        if self.protocol.device != "cpu" or found.outcome is not Outcome.CORRECT or works_in_place:
            return True
        is_module = kernel.dialect == "load_inline"
        with self.room.hold_for(cell), self.hardware.lease(exclusive=False):
            return check_guarded(cell, reference, workspace.slots, self.protocol, has_own_outputs=is_module)

    def _quarantine(self, reference: ReferenceTask, found: Findings) -> None:
        if found.measured is None:
            return
        bound = self.hardware.bound_us(reference)
        found.details["bound_us"] = bound
        clock_us = found.measured.clock_us or found.measured.kernel.median_us
        if clock_us < bound:
            found.outcome, found.reason = Outcome.QUARANTINED, "faster_than_possible"
            found.message = (
                f"{clock_us:.3g} us a call is less than its memory traffic can take on this device ({bound:.3g} us)"
            )

    def _refuse_leaks(self, found: Findings) -> None:
        """Raises CandidateFailed for a candidate that keeps more memory with every call, where that is enforced."""
        leaked = found.measured.leaked_bytes if found.measured else 0
        if not leaked:
            return
        found.details["leaked_bytes"] = leaked
        found.flags.add("memory_leak")
        if "memory_leak" in found.rules:
            text = f"it keeps about {leaked} bytes more with every call: free what a call allocates"
            raise CandidateFailed(Outcome.REFUSED, "memory_leak", text)

    def _place_on_roofline(self, reference: ReferenceTask, found: Findings) -> None:
        if found.measured is None or found.outcome is not Outcome.CORRECT:
            return
        digest = reference.task.digest
        if digest not in self._flops:
            with self.hardware.lease(exclusive=False):
                self._flops[digest] = count_flops(reference)
        found.details |= roofline(
            reference.spec, self._flops[digest], found.measured.kernel.median_us, self.hardware.peaks
        )
