"""Paired, interleaved timing: kernel and eager reference take turns on the same leased device.

Every timed call has inputs that were never seen before and its own poisoned outputs; after each round as many calls as
take little time, chosen at random, are compared with what the reference computed for those very inputs in the same
round. So neither a memo keyed on pointers or contents nor a path that goes cheap after the warm-up survives, and of a
kernel that errs now and then many calls are seen. The cell's clock is bounded from outside.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kevin.core.errors import DeviceError
from kevin.core.types import Outcome, Round
from kevin.judge.correctness.checks import Measured, require_idle, settle
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.sandbox.preemption import Calls
from kevin.judge.sandbox.slots import SharedSlots
from kevin.judge.timing.fresh import FreshSlots
from kevin.judge.timing.in_a_row import CallsInARow
from kevin.judge.timing.rounds import (
    MIN_ROUNDS,
    calls_per_round,
    calls_to_look_at,
    enough_rounds,
    is_known,
    known_slow,
    leaked_bytes,
    summarize,
    undisturbed,
)

_LOST = 4.0
"""Times as long as eager is known to take: a whole measurement that does not count."""
_EXTRA_ROUNDS = 4
"""Times as many rounds as are wanted at most, where other work disturbs most of them."""


TimeReference = Callable[
    [ReferenceTask, SharedSlots, list[list[Any]], list[int], list[int]], tuple[Calls, list[list[torch.Tensor]]]
]


class PairedTimer:
    """Times one candidate in ``cell`` against the reference of ``fresh`` slots.

    ``time_reference`` is `Hardware.time_reference`, the counterpart of what the cell does. ``pause`` is called where
    nothing is being timed. ``held_bytes``: memory that the candidate keeps, None where that cannot be told.
    ``allocates``: whether a call of the candidate makes memory of its own; one that does not is warm on a GPU after its
    checks.
    """

    def __init__(
        self,
        cell: Cell,
        fresh: FreshSlots,
        in_a_row: CallsInARow,
        time_reference: TimeReference,
        pause: Callable[[], None],
        *,
        held_bytes: Callable[[], int | None] = lambda: None,
        allocates: bool = True,
    ) -> None:
        self._cell, self._fresh, self._in_a_row = cell, fresh, in_a_row
        self._slots, self._reference, self._protocol = fresh.slots, fresh.reference, fresh.protocol
        self._time_reference, self._pause, self._held_bytes = time_reference, pause, held_bytes
        self._is_long = False
        self._is_warm = self._protocol.device == "cuda" and not allocates
        self._held: list[tuple[int | None, int | None]] = []
        """Before and after the candidate's calls of each round."""
        self._look_us = 0.0
        """What verifying a call took on average, in microseconds; 0 before the first."""
        self._num_calls = self._num_looked_at = 0
        self._checked_us: float | None = None
        """Of one call in the checks, where that is measured as in a round."""

    def prepare(self, kernel_us: float) -> None:
        """Fill the slots and warm up; needs no device to itself.

        Args:
            kernel_us: of one call in the checks.

        Raises:
            CandidateFailed: as `run`.
        """
        t = self._protocol.timing
        timeout_s = self._protocol.run_timeout_s
        if self._is_warm:
            self._checked_us = kernel_us
        else:  # the checks' calls were the first on their memory
            kernel_us = min(kernel_us, self._cell.call([0], [0], timeout_s).us[0])
        self._is_long = kernel_us >= t.round_us
        self._num_calls = num_calls = calls_per_round(self._protocol, kernel_us, self._slots.num_slots)
        self._reference.set_parameters(self._fresh.parameters)
        self._fresh.fill(self._slots.spare(num_calls) + 1)
        settle(self._protocol)  # the cell reads the parameters in a stream of its own
        self._warm_up(num_calls)

    def run(self) -> Measured:
        """Interleaved rounds until the ratio has settled or the budget is spent. After `prepare`.

        Raises:
            CandidateFailed: a wrong output after timing, a changed input, a tampered clock, a crash, a time-out.
            DeviceError: the machine is too busy to measure anything.
        """
        t, num_calls = self._protocol.timing, self._num_calls
        deadline = time.monotonic() + t.budget_s
        calls: list[tuple[Calls, Calls]] = []
        rounds: list[Round] = []
        alone: list[int] = []
        """Rounds in which both sides had their core to themselves in some call."""
        counted: list[int] = []
        hopeless = False
        while len(counted) < t.max_rounds and len(rounds) < _EXTRA_ROUNDS * t.max_rounds:
            self._pause()
            kernel, reference = self._round(num_calls, kernel_first=len(rounds) % 2 == 0)
            if not (kernel.is_disturbed or reference.is_disturbed):
                alone.append(len(rounds))
            calls.append((kernel, reference))
            rounds.append(Round(kernel_us=kernel.typical_us(), reference_us=reference.typical_us()))
            counted = undisturbed(self._protocol, rounds, alone, self._reference.fastest_us)
            ratios = [rounds[i].reference_us / rounds[i].kernel_us for i in counted]
            if hopeless := self._is_hopeless(ratios, rounds[0].reference_us):
                break
            if enough_rounds(self._protocol, len(rounds), sum(sum(k.us) for k, _ in calls)):
                if is_known(t, ratios, time.monotonic() - deadline):
                    break
            elif time.monotonic() > deadline + self._protocol.run_timeout_s:
                raise CandidateFailed(Outcome.TIMEOUT, "run_timeout", "timing did not end within the time limit")
        is_disturbed = len(alone) < min(MIN_ROUNDS, len(rounds))
        counted = self._counted(rounds, range(len(rounds)) if is_disturbed else alone)
        kernel_us_all, reference_us_all = (
            [us for i in counted for us in calls[i][side].counted_us()] for side in (0, 1)
        )
        num_left_out = len(rounds) - len(counted)
        rounds = [rounds[i] for i in counted]
        clock_us: float | None = None
        in_a_row = self._in_a_row
        in_a_row.leaked_bytes = leaked_bytes(self._held, num_calls + 1)
        if not hopeless:  # nobody would be so slow by cheating
            self._pause()
            median_us = statistics.median(kernel_us_all)
            if found_us := in_a_row.check(median_us, num_calls):
                clock_us, kernel_us_all = median_us, [found_us]
                rounds = [Round(kernel_us=found_us, reference_us=r.reference_us) for r in rounds]
            in_a_row.leaked_bytes = in_a_row.leaked_bytes or in_a_row.leak(median_us, self._slots.spare(num_calls))
        self._fresh.require_intact()
        return Measured(
            kernel=summarize(kernel_us_all),
            reference=summarize(reference_us_all),
            rounds=tuple(rounds),
            clock_us=clock_us,
            num_left_out=num_left_out,
            is_disturbed=is_disturbed,
            num_looked_at=self._num_looked_at,
            leaked_bytes=in_a_row.leaked_bytes,
        )

    def _counted(self, rounds: list[Round], among: Sequence[int]) -> list[int]:
        """Those that were not disturbed; where these are too few, those in which eager was fastest.

        Raises:
            DeviceError: eager was so slow throughout that nothing can be said of the candidate.
        """
        best_us = min(rounds[i].reference_us for i in among)
        known_us, self._reference.fastest_us = self._reference.fastest_us, min(self._reference.fastest_us, best_us)
        if self._protocol.device == "cpu" and best_us > _LOST * known_us:
            raise DeviceError(
                f"task {self._reference.task.id}: eager took {best_us:.4g} us a call, and {known_us:.4g} us before: "
                f"too much else runs on this machine"
            )
        found = undisturbed(self._protocol, rounds, among, self._reference.fastest_us)
        if len(found) >= MIN_ROUNDS or len(found) == len(among):
            return found
        return sorted(sorted(among, key=lambda i: rounds[i].reference_us)[:MIN_ROUNDS])

    def _is_hopeless(self, ratios: list[float], reference_us: float) -> bool:
        """On a GPU, whose clock is steady, the checks count as a measurement too."""
        checked = [] if self._checked_us is None else [reference_us / self._checked_us]
        return self._protocol.device == "cuda" and known_slow([*checked, *ratios])

    def _warm_up(self, num_calls: int) -> None:
        """Both sides through the slots, untimed: memory that calls allocate is there, and settled, when it counts.

        On a host that goes on for a while: pages that were just mapped are slower at first, in virtual machines above
        all. Device memory is not.
        """
        end = time.monotonic() + (self._protocol.timing.warmup_s if self._protocol.device == "cpu" else 0.0)
        while True:
            if not self._is_warm:
                warming = list(range(self._slots.spare(num_calls) + 1))
                # without a spare slot no later call gives a module the parameters that eager is timed with
                self._cell.call([], warming, self._protocol.run_timeout_s, load_parameters=True, cold=False)
            self._run_reference(list(range(num_calls)), [])
            if time.monotonic() >= end:
                return

    def _round(self, num_calls: int, *, kernel_first: bool) -> tuple[Calls, Calls]:
        order = list(range(num_calls))
        self._fresh.random.shuffle(order)
        checked = self._fresh.random.sample(order, calls_to_look_at(self._protocol, num_calls, self._look_us))
        self._fresh.renew(order)
        if kernel_first:
            kernel = self._run_watched(order)
            if self._protocol.device == "cuda":
                self._fresh.require_unchanged(checked)  # what is expected is made of them
            self._fresh.restore(order)
        reference, expected = self._run_reference(order, checked)
        if not kernel_first:
            kernel = self._run_watched(order)
        start = time.perf_counter_ns()
        for slot, outputs in zip(checked, expected, strict=True):
            self._fresh.verify(self._slots.outputs[slot], outputs)
        elapsed_us = (time.perf_counter_ns() - start) / 1e3
        again_us = (
            1e6 * self._reference.call_s if self._protocol.device == "cpu" else 0.0
        )  # eager, for what is expected
        look_us = elapsed_us / len(checked) + again_us
        self._look_us = min(look_us, self._look_us or look_us)  # one look that something else held up says nothing
        self._num_looked_at += len(checked)
        return kernel, reference

    def _run_reference(self, order: list[int], checked: list[int]) -> tuple[Calls, list[list[torch.Tensor]]]:
        return self._time_reference(self._reference, self._slots, self._fresh.views, order, checked)

    def _run_watched(self, order: list[int]) -> Calls:
        """With what the candidate holds before and after."""
        before = self._held_bytes()
        calls = self._run_kernel(order)
        self._held.append((before, self._held_bytes()))
        return calls

    def _run_kernel(self, order: list[int]) -> Calls:
        on_gpu = self._protocol.device == "cuda"
        if on_gpu:
            for slot in order:
                self._slots.hold_back(slot)
            torch.cuda.synchronize()
        spare = self._slots.spare(len(order))
        # what is timed must not have been seen before
        warm = [] if (self._is_warm and self._is_long) or spare < len(order) else [spare]
        if on_gpu:
            return self._cell.call(warm, order, self._protocol.run_timeout_s, late=True)
        waited_us, start = self._cell.waited_us(), time.perf_counter_ns()
        calls = self._cell.call(warm, order, self._protocol.run_timeout_s)
        outside_us, now_us = (time.perf_counter_ns() - start) / 1e3, self._cell.waited_us()
        if self._protocol.num_threads > 1:
            require_idle(self._cell, outside_us)
        return calls.borne_out(None if now_us is None or waited_us is None else now_us - waited_us)
