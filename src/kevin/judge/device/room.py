"""Who is on a device, whose it is at the moment, and what each candidate works on there.

Several threads judge at once: their cells start side by side, also while another candidate is measured, and everything
else is done by one thread at a time.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from kevin.core.errors import DeviceFullError
from kevin.core.types import Dialect, Outcome, Task, TaskSpec, tensor_bytes
from kevin.judge.correctness.reference import ReferenceCache, ReferenceTask, does_not_fit
from kevin.judge.correctness.trials import keeps_trials
from kevin.judge.device.hardware import Hardware
from kevin.judge.device.lock import Admission, Company, DeviceLock, Need
from kevin.judge.device.spares import SpareCells
from kevin.judge.device.workspace import Workspace, Workspaces, new_workspace
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.sandbox.slots import SharedSlots, slot_bytes

_EXPECTED_SHARE = 0.25
"""Of the free memory, for a task whose first candidate is still to come."""


def _as_given(task: Task, dialect: Dialect) -> bool:
    """Whether a candidate's inputs lie otherwise than a launcher's, which are contiguous."""
    return dialect == "load_inline" and task.spec is not None and any(s.stride for s in task.spec.inputs)


class Room:
    """The references, workspaces, lock and memory of one device."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware, self._protocol = hardware, hardware.protocol
        self.references = ReferenceCache(hardware.protocol, hardware.max_tasks)
        self.workspaces = Workspaces()
        self.admission = Admission(hardware.free_bytes, hardware.small_bytes)
        self.lock = DeviceLock()
        self.company = Company()
        self.starts = threading.Semaphore(hardware.starts_at_once)
        """Held while a cell without torch makes its context."""
        self.spares = SpareCells(hardware.open_spare, self.lock.brief, self.starts)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """One thread at a time works on the device and on what belongs to it."""
        with self.lock.held():
            self._hardware.prepare_thread()
            yield

    @contextmanager
    def hold_for(self, cell: Cell) -> Iterator[None]:
        """Hold it for a candidate. One that fails ends: what it left running would be in the next one's times."""
        with self.hold():
            try:
                yield
            except CandidateFailed as e:
                if e.outcome is not Outcome.INCORRECT:
                    cell.kill()
                raise

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else is there, and no memory is kept for further candidates."""
        with self.company.alone():
            self.rest()
            yield

    def rest(self) -> None:
        """Keep no memory for further candidates: whoever else works on this device may need it."""
        self.spares.drop()
        with self.hold():
            while self._give_back_oldest():
                pass
            self.references.keep(self.workspaces.tasks())
            gc.collect()  # a reference knows its trials and these know it; tensors in the frames of what failed
            self._hardware.rest()

    def reference(self, task: Task) -> ReferenceTask:
        """Waits for no lease where there is nothing to make. Errors as `ReferenceCache.get`."""
        if task in self.references:
            return self.references.get(task)
        with self._hardware.lease(exclusive=False):
            return self.references.get(task)

    def expect(self, task: Task, dialect: Dialect, is_wanted: Callable[[], bool]) -> None:
        """Make ready for candidates of a task before there are any, if it is known to take little of what is free.

        Args:
            is_wanted: asked when it is this task's turn.

        Raises:
            KevinError: as `ReferenceCache.get`.
        """
        with self.company.together(), self.hold():
            present = self.workspaces.tasks()
            if task.digest in present or len(present) >= self._hardware.max_tasks or not is_wanted():
                return
            if task.spec is not None and self.admission.fits(self.need(task, dialect), share=_EXPECTED_SHARE):
                self.workspaces.put_back(self._new_workspace(task, dialect))

    def _give_back(self, workspace: Workspace) -> None:
        """The memory of a workspace that is no longer kept; with the last one of a task its reference goes."""
        self._hardware.forget(workspace.slots)
        workspace.slots.close()
        if workspace.digest not in self.workspaces.tasks():
            self.references.discard(workspace.digest)

    def _give_back_oldest(self, but: str | None = None, *, spares_tasks: bool = False) -> bool:
        """Of the idle ones, as `Workspaces.drop_oldest`. False: there is none."""
        workspace = self.workspaces.drop_oldest(but, spares_tasks=spares_tasks)
        if workspace is None:
            return False
        self._give_back(workspace)
        return True

    def _num_slots(self, spec: TaskSpec) -> int:
        affordable = self._hardware.slot_budget_bytes // max(slot_bytes(spec), 1)
        wanted = min(self._protocol.timing.max_calls_per_round + 1, affordable)
        return max(self._hardware.least_slots, wanted, self._protocol.num_trials if affordable else 0)

    def need(self, task: Task, dialect: Dialect) -> Need:
        """Of one more candidate of a task; nothing while no specification says how large it is."""
        if (spec := task.spec) is None:
            return Need(0, 0, 0)
        reference = self.references.get(task) if task in self.references else None
        kept, slot, working = 0, slot_bytes(spec), reference.working_bytes if reference else 0
        if not self.workspaces.has_idle(task.digest, as_given=_as_given(task, dialect)):
            kept = self._num_slots(spec) * (slot + tensor_bytes(spec.inputs))
            if reference is None:
                num_trials = self._protocol.num_trials
                kept += (num_trials if keeps_trials(spec, num_trials) else 1) * slot + tensor_bytes(spec.outputs)
        # a trial in the making, and with it a call of the model or another layout of its inputs
        passing = slot + (max(working, tensor_bytes(spec.inputs)) if working else slot)
        return Need(self._hardware.process_bytes(spec, working, dialect), kept, passing)

    def _admit(self, task: Task, dialect: Dialect) -> tuple[Workspace | None, Need]:
        """Wait until there is memory for one more candidate; give back what was not used for longest.

        Returns:
            An idle workspace of its task, if there is one.
        """
        kept, ticket = self.workspaces, self.admission.stand_in_line()
        try:
            while True:
                need = self.need(task, dialect)
                is_alone = not len(self.admission)
                if self.admission.is_next(ticket, need):
                    too_many = len(kept.tasks() | {task.digest}) > self._hardware.max_tasks
                    if not too_many and self.admission.fits(need):
                        break
                    helps = too_many or is_alone or self.admission.fits(need, kept.idle_bytes(task.digest))
                    if helps and self._give_back_oldest(task.digest, spares_tasks=not too_many):
                        if self._hardware.shares_memory:
                            gc.collect()  # as in `rest`: it is wanted now
                        self.lock.tell()
                        continue
                    if is_alone:
                        break
                self.lock.wait()
        finally:
            self.admission.leave_line(ticket)
        self.admission.enter(need)
        return kept.take(task.digest, as_given=_as_given(task, dialect)), need

    def _new_workspace(self, task: Task, dialect: Dialect) -> Workspace:
        try:
            reference = self.reference(task)
            spec = reference.spec
            as_given = _as_given(task.model_copy(update={"spec": spec}), dialect)
            slots = SharedSlots(spec, self._num_slots(spec), self._hardware.allocate, as_given=as_given)
            try:
                workspace = new_workspace(reference, slots)
            except torch.OutOfMemoryError as e:
                slots.close()
                raise does_not_fit(task, e) from None
        except DeviceFullError:
            if task.digest not in self.workspaces.tasks():
                self.references.discard(task.digest)
            raise
        self.workspaces.add(workspace)
        return workspace

    @contextmanager
    def workspace_for(self, task: Task, dialect: Dialect, seconds: dict[str, float]) -> Iterator[Workspace]:
        """Memory for a candidate, and leave for its process to take what it needs.

        Args:
            seconds: gets what was waited for admission, and what making the reference took.
        """
        workspace = None
        with self.lock.brief():
            need = self.need(task, dialect)
            as_given = _as_given(task, dialect)
            if self.workspaces.has_idle(task.digest, as_given=as_given) and self.admission.fits(need):
                workspace = self.workspaces.take(task.digest, as_given=as_given)
                self.admission.enter(need)
        if workspace is None:
            with self.hold():
                start = time.perf_counter()
                workspace, need = self._admit(task, dialect)
                admitted = time.perf_counter()
                seconds["admission"] = admitted - start
                if workspace is None:
                    try:
                        workspace = self._new_workspace(task, dialect)
                    except BaseException:
                        self.admission.leave(need)
                        raise
                seconds["reference"] = time.perf_counter() - admitted
        try:
            yield workspace
        finally:
            with self.lock.brief():
                try:
                    for i in range(min(self._protocol.num_trials, workspace.slots.num_slots)):
                        workspace.slots.poison_outputs(i)  # the next one must not find answers
                    workspace.slots.bands.fill()
                    self.workspaces.put_back(workspace)
                except BaseException:  # e.g. too little memory for that: it is kept for nobody
                    self.workspaces.lose(workspace)
                    self._give_back(workspace)
                    raise
                finally:
                    self.admission.leave(need)
