"""Who may work on a device's memory at the same time: each candidate says what it will take before it takes any.

What is kept between candidates is allocated and so is missing in what the driver calls free; what a process takes may
come at any time while it lives, and is counted as still to come. Nothing here is thread-safe: the device's lock is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


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
    """``free_bytes`` asks the device, see `Hardware`; needs below ``small_bytes`` overtake others that wait."""

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
