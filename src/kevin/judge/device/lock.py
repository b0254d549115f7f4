"""Who may use a device: one thread at a time, and brief jobs in the pauses of the one that has it. Who may take memory
of it: each candidate says what it will take before it takes any.

Starting a sandbox costs this process a fork, which would be in the times of whatever is measured meanwhile. Waiting for
a whole measurement to end would leave the device with nothing to measure next, so it is done between two rounds.

Memory that is kept between candidates is allocated, and so is missing in what the driver calls free; what a process
takes may come at any time while it lives, and is counted as still to come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

_POLL_S = 0.05


class DeviceLock:
    """Not re-entrant. What it protects may be read and changed in `held` and in `brief`."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._is_held = False
        self._num_changes = 0
        self._num_brief = 0
        """Threads that wait to do something brief."""
        self._count = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """The device is the calling thread's, but for `brief` jobs of others while it is in `pause` or `wait`."""
        with self._changed:
            self._acquire()
            try:
                yield
            finally:
                self._is_held = False
                self.tell()

    @contextmanager
    def brief(self) -> Iterator[None]:
        """For a millisecond's work, in a pause; what it enqueues on a GPU is waited for before anything is timed."""
        with self._count:
            self._num_brief += 1
        with self._changed:
            with self._count:
                self._num_brief -= 1
            try:
                yield
            finally:
                self.tell()

    def pause(self) -> None:
        """Called where nothing is being timed by the thread that holds the device: brief jobs are done now."""
        self._changed.wait_for(lambda: self._num_brief == 0)

    def wait(self) -> None:
        """Called by the thread that holds the device: give it to others until one of them had it, or a moment has gone.

        Who only waits has changed nothing, and wakes nobody who does. What has changed may be untold: memory of a
        process that was ended comes free a little later.
        """
        self._is_held = False
        self._changed.notify_all()
        seen = self._num_changes
        self._changed.wait_for(lambda: self._num_changes != seen, timeout=_POLL_S)
        self._acquire()

    def tell(self) -> None:
        """Called in `held` or `brief`, where others that `wait` are to look again at once."""
        self._num_changes += 1
        self._changed.notify_all()

    def _acquire(self) -> None:
        self._changed.wait_for(lambda: not self._is_held)
        self._is_held = True


class Company:
    """Who is on a device at the same time: any number together, or one alone. Whoever wants to be alone comes next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_present = 0
        self._wants_alone = False

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._wants_alone)
            self._num_present += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_present -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._wants_alone)
            self._wants_alone = True
            self._changed.wait_for(lambda: self._num_present == 0)
        try:
            yield
        finally:
            with self._changed:
                self._wants_alone = False
                self._changed.notify_all()


class Need(NamedTuple):
    """Bytes that one candidate asks for."""

    process: int
    """Of its own process, as long as that lives."""
    kept: int
    """For tensors that are made for it and kept after it; 0 where they are there."""
    passing: int
    """Of the judge, for a moment, whenever it is this candidate's turn."""

    @property
    def total(self) -> int:
        return self.process + self.kept + self.passing


class Admission:
    """``free_bytes`` asks the device, see `Hardware`; needs below ``small_bytes`` overtake others that wait.

    Not thread-safe: the device's lock is.
    """

    def __init__(self, free_bytes: Callable[[float], float], small_bytes: float) -> None:
        self._free_bytes, self._small_bytes = free_bytes, small_bytes
        self._present: list[Need] = []
        self._line: list[object] = []

    def __len__(self) -> int:
        """How many candidates are present."""
        return len(self._present)

    def stand_in_line(self) -> object:
        """A ticket, which must be handed to `leave_line`."""
        ticket = object()
        self._line.append(ticket)
        return ticket

    def leave_line(self, ticket: object) -> None:
        self._line.remove(ticket)

    def is_next(self, ticket: object, need: Need) -> bool:
        return need.total < self._small_bytes or self._line[0] is ticket

    def fits(self, need: Need, given_back: int = 0, share: float = 1.0) -> bool:
        """Whether there is memory for it, beside all that those present may still take.

        Args:
            given_back: bytes that could be freed for it.
            share: of the free memory, which all of this together may take.
        """
        if not need.kept and need.total < self._small_bytes:
            return True  # asking the driver takes its time
        to_come = sum(n.process for n in self._present) + max(n.passing for n in (*self._present, need))
        wanted = (need.process + need.kept + to_come - given_back) / share
        return wanted <= self._free_bytes(wanted)

    def enter(self, need: Need) -> None:
        self._present.append(need)

    def leave(self, need: Need) -> None:
        self._present.remove(need)
