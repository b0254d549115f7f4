"""Many calls in a row by the judge's own clock: what they take, and what memory they keep."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from kevin.core.types import Outcome
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.timing.fresh import FreshSlots, at
from kevin.judge.timing.rounds import leaked_bytes

_BURST_US, _MAX_BURST, _EAGER_CALLS = {"cpu": 8000.0, "cuda": 3000.0}, 400, 4
_FACTOR, _CALL_US = 1.5, 100.0
_SLACK_US = {"cpu": 1000.0, "cuda": 400.0}
"""Of a burst, on a GPU of each pass, which is one question to the cell."""
_LENGTHS, _LEAST_BURST = (1, 10, 10), 4
"""One that took too long is repeated, so that what disturbed it weighs less: on a host a longer one, on a GPU more."""
_MOST_PASSES, _COPIES = 4, 3
_LOOKED_AT = 8
"""Of the calls of a pass on a GPU."""
_LEAK_BURSTS = 6
_FORGED, _HOST_US = 20.0, 3000.0
"""Times what its clock says, and at least: what work on the host, such as making memory in every call, explains."""


class CallsInARow:
    """Of the candidate in ``cell``, on ``fresh`` slots.

    ``held_bytes``: memory that the candidate keeps, None where that cannot be told. ``bytes_per_us``: that a GPU's
    memory reads and writes at most. ``quiet``: keeps others' work out of the driver, for what is measured once more.
    """

    def __init__(
        self,
        cell: Cell,
        fresh: FreshSlots,
        held_bytes: Callable[[], int | None] = lambda: None,
        bytes_per_us: float = math.inf,
        quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._cell, self._fresh, self._protocol = cell, fresh, fresh.protocol
        self._held_bytes, self._bytes_per_us, self._quiet = held_bytes, bytes_per_us, quiet
        self.leaked_bytes = 0
        """That each call keeps, as far as is known."""

    def check(self, kernel_us: float, num_calls: int) -> float | None:
        """Many calls in a row must take about as long by the judge's clock as the cell's own says of one.

        All of a call's work is done within the burst, whatever its clock said: on streams of its own, before the clock
        began or after it ended, in another call, or with a clock that was tampered with. Each call has new inputs, and
        outputs that are looked at: what answers without computing has answered wrongly. On a host the judge's clock is
        the CPU time of the cell, which other load does not lengthen; on a GPU it is the wall's, and what launches may
        cost is bounded by eager's.

        Args:
            kernel_us: of a call, by the cell's clock.
            num_calls: of a round.

        Returns:
            Microseconds of a call, where a GPU's candidate takes longer than its clock says and its host may be why;
            None where both agree.

        Raises:
            CandidateFailed: they do not, and no host's work explains it; an output is wrong.
        """
        per_call_us = kernel_us * self._protocol.num_threads * _FACTOR + _CALL_US
        on_gpu = self._protocol.device == "cuda"
        if on_gpu:
            per_call_us += 2 * self._eager_launch_us()
        slots = self._slots(kernel_us, num_calls)
        found_us = math.inf
        for length in _LENGTHS:
            burst = len(slots) if on_gpu and length == 1 else self._burst_calls(kernel_us, length)
            with self._quiet() if length > 1 else nullcontext():
                call_us = self._burst_us(slots, burst)
            if call_us <= per_call_us + _SLACK_US[self._protocol.device] / (len(slots) if on_gpu else burst):
                return None
            found_us = min(found_us, call_us)
        if on_gpu and found_us <= max(_FORGED * kernel_us, kernel_us + _HOST_US):
            return found_us
        raise CandidateFailed(
            Outcome.QUARANTINED,
            "clock_disagrees",
            f"calls in a row took {found_us:.4g} us each, timed alone {kernel_us:.4g} us",
        )

    def _slots(self, kernel_us: float, num_calls: int) -> list[int]:
        """Those of a round; on a GPU, where an answer of the cell takes as long as many short calls, more of them."""
        if self._protocol.device == "cuda":
            num_calls = min(self._fresh.slots.num_slots, max(num_calls, self._burst_calls(kernel_us, 1)))
        self._fresh.fill(num_calls)
        return list(range(num_calls))

    def _burst_calls(self, kernel_us: float, length: int) -> int:
        """As many calls as last ``length`` short bursts by the cell's clock, within half of the time limit."""
        room = self._room_bytes // self.leaked_bytes if self.leaked_bytes else _MAX_BURST
        most = min(_MAX_BURST, room, 5e5 * self._protocol.run_timeout_s // kernel_us)
        least = 1 if length == 1 else _LEAST_BURST
        return int(max(1, min(max(least, length * _BURST_US[self._protocol.device] // kernel_us), most)))

    def _burst_us(self, slots: list[int], num_calls: int) -> float:
        """Microseconds of a call, of about so many, fewer where that takes many passes over the slots.

        On a GPU the fastest pass counts: all work is done in each, and what disturbs one is not the candidate's.
        """
        on_gpu = self._protocol.device == "cuda"
        run = self._pass_on_gpu if on_gpu else self._pass_on_host
        seconds = [run(slots) for _ in range(max(1, min(num_calls // len(slots), _MOST_PASSES)))]
        return 1e6 * (min(seconds) if on_gpu else statistics.fmean(seconds)) / len(slots) - self._copy_us()

    def _pass_on_host(self, slots: list[int]) -> float:
        """Seconds of CPU time of a call on each slot, from before inputs are there until outputs have been looked at.

        Several threads wait actively for a while when they are done: theirs is read when the inputs are there.
        """
        fresh, cell = self._fresh, self._cell
        before = cell.cpu_seconds()
        fresh.renew(slots)
        if self._protocol.num_threads > 1:
            before = cell.cpu_seconds()
        start = time.perf_counter()
        cell.call([], slots, self._protocol.run_timeout_s, burst=1)
        wall_s = time.perf_counter() - start
        for slot in slots:
            fresh.verify(fresh.slots.outputs[slot], fresh.expected(slot))
        after = cell.cpu_seconds()
        return wall_s if before is None or after is None else after - before

    def _pass_on_gpu(self, slots: list[int]) -> float:
        """Seconds until each slot had its call, and outputs of some, secret ones, were read: later work is too late.

        The last of the inputs come when a call begins: earlier work is too early.
        """
        fresh = self._fresh
        fresh.renew(slots)
        for slot in slots:
            fresh.slots.hold_back(slot)
        looked_at = [
            (slot, fresh.slots.outputs[slot], fresh.places(fresh.slots.outputs[slot]))
            for slot in fresh.random.sample(slots, min(len(slots), _LOOKED_AT))
        ]
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._cell.call([], slots, self._protocol.run_timeout_s, late=True, burst=1)
        seen = [[x.clone() for x in at(outputs, places)] for _, outputs, places in looked_at]
        torch.cuda.synchronize()
        elapsed_s = time.perf_counter() - start
        for found, (slot, _, places) in zip(seen, looked_at, strict=True):
            fresh.compare(found, at(fresh.expected(slot), places))
        return elapsed_s

    def _copy_us(self) -> float:
        """What a cell takes, at most, to copy the results of a call into their slot; on a GPU at least.

        There it is worked out, as a candidate could keep the device busy; a launcher's outputs are poisoned too.
        """
        outputs = self._fresh.slots.outputs[0]
        if self._protocol.device == "cuda":
            poisoned, copied = (0 if self._cell.is_module else 1), 2
            return (poisoned + copied) * sum(out.nbytes for out in outputs) / self._bytes_per_us
        if not self._cell.is_module:  # a launcher writes there by itself
            return 0.0
        results, times = self._fresh.reference.trials[0].outputs, []
        for _ in range(_COPIES):
            start = time.perf_counter()
            for view, result in zip(outputs, results, strict=True):
                view.copy_(result)
            times.append(time.perf_counter() - start)
        return 1e6 * _FACTOR * statistics.median(times)

    def leak(self, kernel_us: float, slot: int) -> int:
        """Bytes that many calls on a slot keep, of each; 0 if they keep none. The first burst that keeps none ends it.

        A device hands out its memory by pieces of megabytes, so that few calls may take none of it. Its other users
        take as much in the pauses, which are as long as the bursts.
        """
        num_calls = self._burst_calls(kernel_us, 1)
        if not self._grown(slot, num_calls)[0]:
            return 0
        held = []
        with self._quiet():
            for _ in range(_LEAK_BURSTS):
                start = time.perf_counter()
                grown, before, after = self._grown(slot, num_calls)
                if not grown:
                    return 0
                held.append((before, after))
                time.sleep(time.perf_counter() - start)
                num_calls = max(1, min(num_calls, self._room_bytes // -(-grown // num_calls)))
        return leaked_bytes(held, num_calls)

    def _grown(self, slot: int, num_calls: int) -> tuple[int, int | None, int | None]:
        """What is held more after so many calls in a row, 0 if no more or unknown; what was held before, and after."""
        before = self._held_bytes()
        self._cell.call([], [slot], self._protocol.run_timeout_s, burst=num_calls)
        after = self._held_bytes()
        return (0 if before is None or after is None else max(0, after - before)), before, after

    @property
    def _room_bytes(self) -> int:
        """What a candidate that keeps memory may take of it in one burst."""
        return self._protocol.memory_mb << 18

    def _eager_launch_us(self) -> float:
        """What the host takes to enqueue one eager call."""
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        self._fresh.reference.run_burst(self._fresh.views[0], _EAGER_CALLS)
        launch_us = (time.perf_counter_ns() - start) / 1e3 / _EAGER_CALLS
        torch.cuda.synchronize()
        return launch_us
