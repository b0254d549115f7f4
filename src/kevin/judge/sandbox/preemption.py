"""Calls on a host that had to share their core: found by the scheduler's own counters, and left out.

The kernel counts for every thread how long it was ready to run and had no core. Each clock reads that around a call, on
the side of eager PyTorch and on the candidate's. What a candidate's process says of it is not believed beyond what
the judge reads of the same counters from outside: without other work on its core no call of it can be left out, and
with such work no clock gains by it more than by any other lie, which the burst at the end bounds.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_WAITED = 0.05
"""Share of a call that may be waiting for a core; what is less is lost among a round's other disturbances."""

_SHARED = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) .w.s ", re.MULTILINE)
"""Ends of a mapping that is written and shared, as ``/proc/PID/maps`` lists it."""


class Calls(NamedTuple):
    """Timed calls on one side of a round."""

    us: list[float]
    waited_us: Sequence[float] = ()
    """How long each waited for a core, the longest of its threads; () when none did or nobody counts it."""

    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.us, self.waited_us or [0.0] * len(self.us), strict=True))

    @property
    def is_disturbed(self) -> bool:
        """Whether none of them had its core to itself."""
        return all(waited > _WAITED * us for us, waited in self._pairs())

    def counted_us(self) -> list[float]:
        """Of those that had their core to themselves; of all, without their waiting, where none had."""
        if self.is_disturbed:
            return [max(us - waited, 1e-3) for us, waited in self._pairs()]
        return [us for us, waited in self._pairs() if waited <= _WAITED * us]

    def typical_us(self) -> float:
        """Of two calls the faster: other work on a host makes single calls many times slower, never faster."""
        return statistics.median_low(self.counted_us())

    def borne_out(self, waited_us: float | None) -> Calls:
        """As told by a process whose threads waited so long together, as was read from outside; None: not readable."""
        if waited_us is None or sum(self.waited_us) > waited_us:
            return Calls(self.us)
        return self


def held_bytes(pid: int | None) -> int | None:
    """Memory that a process has asked for, touched or not; None when it cannot be read.

    What it has mapped as shared is not counted where the kernel does not show that.
    """
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[5]
    except (OSError, IndexError):
        return None
    maps = b""
    with contextlib.suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    shared = sum(int(last, 16) - int(first, 16) for first, last in _SHARED.findall(maps))
    return int(pages) * mmap.PAGESIZE + shared


def waited_us(pid: int | None) -> float | None:
    """How long a process's threads have waited for a core so far, together; None when it cannot be read."""
    if pid is None:
        return None
    total_ns = 0
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                total_ns += int((thread / "schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return total_ns / 1e3
