"""What judging asks of the CPU or GPU that it is handed: memory, cells, clocks, leases."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Dialect, Kernel, Task, TaskSpec
from kevin.judge.compile.native import Build
from kevin.judge.correctness.checks import Findings
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.device.roofline import Peaks, measure_peaks
from kevin.judge.sandbox.cell import Cell
from kevin.judge.sandbox.isolation import detect_isolation
from kevin.judge.sandbox.preemption import Calls
from kevin.judge.sandbox.slots import SharedBuffer, SharedSlots

HoldFor = Callable[[Cell], AbstractContextManager[None]]
"""Holds the device for a candidate, see `Room.hold_for`."""


class Hardware(ABC):
    """A CPU or a GPU. ``slot_budget_bytes`` bounds a workspace's slots, but for ``least_slots`` of them.

    ``max_tasks``: how many tasks are kept.

    ``shares_memory``: whether what one candidate takes is missing to others. One that runs out of memory then is run
    again with nothing beside it.
    ``small_bytes``: what a candidate may need without waiting for others that need more.
    ``starts_at_once``: of cells that do not import torch. A driver makes contexts one after the other, and whoever asks
    it for memory meanwhile, this process too, waits in the same line.
    """

    name: str
    slot_budget_bytes: int
    least_slots: int = 2
    max_tasks: int
    starts_at_once: int = 4
    shares_memory: bool = False
    small_bytes: float = math.inf

    def __init__(self, protocol: JudgeProtocol) -> None:
        self.protocol = protocol
        self.isolation = detect_isolation()
        self._peaks: Peaks | None = None

    @abstractmethod
    def prepare_thread(self) -> None:
        """Called before each candidate: the calling thread may be a new one."""

    @abstractmethod
    def allocate(self, num_bytes: int) -> SharedBuffer:
        """Memory of the device that a cell can map."""

    @abstractmethod
    def lease(self, *, exclusive: bool) -> AbstractContextManager[None]:
        """Hold the device: shared by correctness checks, exclusive for timing."""

    def turn(self) -> AbstractContextManager[None]:
        """Around all that is done for one candidate: on a host no other process of the user's that judges uses the
        device's cores meanwhile. Not re-entrant."""
        return nullcontext()

    @abstractmethod
    def open_cell(self, kernel: Kernel, build: Build) -> Cell:
        """Start the sandboxed process for a candidate. Before it is prepared, it takes nothing of the device."""

    def most_spares(self) -> int:
        """Cells that may wait for a candidate with all that the device must give them; 0 where that saves nothing."""
        return 0

    def open_spare(self, folder: Path) -> Cell:
        """As `open_cell`, for a ``c_abi`` candidate that will be in a folder. Not called where `most_spares` is 0."""
        raise NotImplementedError

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

    def most_bytes_per_us(self) -> float:
        """That its memory reads and writes."""
        return self.peaks.bytes_per_us

    def time_reference(
        self, reference: ReferenceTask, slots: SharedSlots, views: list[list[Any]], order: list[int], keep: list[int]
    ) -> tuple[Calls, list[list[torch.Tensor]]]:
        """One eager call on each slot of ``order``, after an untimed one, and the outputs on those of ``keep``.

        Args:
            views: the inputs of every slot; eager reads the memory that the candidate reads.
            keep: none to warm up, where nobody reads the times.
        """
        warm, timed = views[slots.spare(len(order))], [views[i] for i in order]
        ns, kept = reference.run_timed(self.clock, warm, timed, [order.index(slot) for slot in keep])
        return Calls([n / 1e3 for n in ns]), kept

    def forget(self, slots: SharedSlots) -> None:
        """Called before the memory of slots is given back."""
        return

    def held_bytes(self, cell: Cell) -> int | None:
        """Memory that a candidate keeps, as its growth is seen by; None where that cannot be told."""
        return cell.held_bytes()

    def rest(self) -> None:
        """Give the device what this process's allocator keeps of its memory."""
        return

    def free_bytes(self, enough: float = math.inf) -> float:
        """Of the device's memory, now; without a limit where candidates need not share it.

        Args:
            enough: more is not asked for. Where that much is free without what this process's allocator keeps, it
                keeps that: giving it back, and asking for it again, are calls of a driver that others wait for.
        """
        return math.inf

    def process_bytes(self, spec: TaskSpec, working_bytes: int, dialect: Dialect) -> int:
        """What a candidate's process takes of it; ``working_bytes`` of the reference, 0 while it is unknown."""
        return 0

    def prepare(self) -> None:
        """Called once while the first builds run, for what the first candidate would wait for and needs no lease."""
        return

    def warm_up(self) -> None:
        """Called once after `prepare`, by the thread that holds the device."""
        _ = self.peaks

    def attributed(self, task: Task) -> AbstractContextManager[None]:
        """Around all that is done with a candidate of a task: failures of the hardware are raised as what they are."""
        return nullcontext()

    def prove(self, cell: Cell, kernel: Kernel, found: Findings, hold_for: HoldFor) -> None:
        """Show that the candidate's own kernels did the work. Nothing to show where no library can be called."""
        return

    def check_memory(
        self, kernel: Kernel, build: Build, setup: dict[str, Any], shared_fd: int, found: Findings
    ) -> None:
        """One more call where whatever it touches beside its tensors is seen, with arguments as of `Cell.prepare`.

        Raises:
            CandidateFailed: it does.
        """
        return

    def can_profile(self, kernel: Kernel) -> bool:
        """Whether the protocol's profiler has something to say of it."""
        return False

    def profile(
        self, task: Task, kernel: Kernel, build: Build, setup: dict[str, Any], shared_fd: int, found: Findings
    ) -> None:
        """What the profiler says of a candidate, into its details. Arguments as of `Cell.prepare`."""
        return
