"""Who may use a device: one thread at a time, and brief jobs in the pauses of the one that has it; and its memory.

Starting a sandbox costs this process a fork, which would be in the times of whatever is measured meanwhile. Waiting for
a whole measurement to end would leave the device with nothing to measure next, so it is done between two rounds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
