"""Cells whose process is up, with what the device must give it, before there is a candidate for them.

A driver makes the contexts of all processes of a host one after the other, a few a second: of a batch of short kernels
most of the time. While a model writes these kernels it is idle.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from kevin.core.errors import DeviceError, SandboxError
from kevin.core.scratch import scratch_folder
from kevin.judge.compile.native import Build
from kevin.judge.sandbox.cell import Cell

log = logging.getLogger(__name__)

_AT_ONCE = 2
"""Made: the driver makes one while the other's process starts, and no candidate waits for more than these."""


class SpareCell:
    """One that waits for its candidate, which it will find in a folder of its own."""

    def __init__(self, open_cell: Callable[[Path], Cell], parent: Path) -> None:
        """Raises SandboxError: as `Cell`."""
        self._folder = Path(tempfile.mkdtemp(dir=parent))
        self.cell = open_cell(self._folder)

    def receive(self, build: Build) -> Build:
        """Copy a candidate to where the cell sees it; as it is there."""
        assert build.path is not None
        return build.model_copy(update={"path": shutil.copy(build.path, self._folder)})

    def close(self) -> None:
        """Safe to call twice."""
        self.cell.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class SpareCells:
    """As many as are wanted for the next batch, made in the background."""

    def __init__(
        self,
        open_cell: Callable[[Path], Cell],
        brief: Callable[[], AbstractContextManager[None]],
        starts: threading.Semaphore,
    ) -> None:
        """
        Args:
            open_cell: starts one that sees a folder.
            brief: around that, see `DeviceLock.brief`.
            starts: held while one gets its context.
        """
        self._open, self._brief, self._starts = open_cell, brief, starts
        self._ready: deque[SpareCell] = deque()
        self._changed = threading.Condition()
        self._left = self._making = self._waiting = self._most = 0
        """Candidates still to come; being made; candidates that wait for one of these; how many there may be."""
        self._batch = 0
        self._makers = ThreadPoolExecutor(_AT_ONCE, "spare-cells")
        self._kept = ExitStack()
        atexit.register(self._kept.close)
        self._folder: Path | None = None

    def __len__(self) -> int:
        with self._changed:
            return len(self._ready)

    def want(self, num: int, most: int) -> None:
        """For a batch of ``num`` kernels, at most ``most`` of them waiting at once; counts those that are left over."""
        with self._changed:
            if self._folder is None and num and most:
                self._folder = self._kept.enter_context(scratch_folder("kevin-spares-"))
            self._most = most
            self._left = num
            self._begin()

    def limit(self, num: int) -> None:
        """No more than ``num`` are still to come after all: what nobody would take is not made."""
        with self._changed:
            self._left = min(self._left, num)

    def take(self) -> SpareCell | None:
        """One that is ready, or will be before a new one could; the caller closes it.

        Returns:
            None: the candidate's cell is started as any other.
        """
        dead = []
        with self._changed:
            taken = None
            while taken is None and (self._ready or self._waiting < self._making):
                if not self._ready:
                    self._waiting += 1
                    self._changed.wait()
                    self._waiting -= 1
                    continue
                taken = self._ready.popleft()
                if not taken.cell.is_silent:
                    dead.append(taken)
                    taken = None
            self._left = max(0, self._left - 1)
            self._begin()
        for spare in dead:
            spare.close()
        return taken

    def drop(self) -> None:
        """Keep none, and make no more; those in the making are waited for."""
        with self._changed:
            self._batch, self._left = self._batch + 1, 0
            dropped = list(self._ready)
            self._ready.clear()
        for spare in dropped:
            spare.close()
        with self._changed:
            self._changed.wait_for(lambda: self._making == 0)

    def _begin(self) -> None:
        for _ in range(min(self._left, self._most) - len(self._ready) - self._making):
            self._making += 1
            self._makers.submit(self._make, self._batch)

    def _make(self, batch: int) -> None:
        with self._changed:
            is_wanted = batch == self._batch and len(self._ready) + self._making <= self._left
        spare = self._started() if is_wanted else None
        with self._changed:
            if is_wanted and batch == self._batch:
                if spare is None:
                    self._left = 0
                else:
                    self._ready.append(spare)
                    spare = None
        if spare is not None:
            spare.close()
        with self._changed:
            self._making -= 1
            self._changed.notify_all()

    def _started(self) -> SpareCell | None:
        """None where it cannot be had; its candidate will say so, if it is more than that memory is short."""
        assert self._folder is not None, "nothing is made before something was wanted"
        spare = None
        try:
            with self._brief():
                spare = SpareCell(self._open, self._folder)
            spare.cell.wait()
            with self._starts:
                spare.cell.start_device()
            return spare
        except (SandboxError, DeviceError) as e:
            log.info("no spare cell: %s", e)
        except Exception:
            log.exception("no spare cell")
        if spare is not None:
            spare.close()
        return None
