"""Paired, interleaved timing: kernel and eager reference take turns on the same leased device.

Every timed call has inputs that were never seen before and its own poisoned outputs; after each round as many calls as
take little time, chosen at random, are compared with what the reference computed for those very inputs in the same
round. So neither a memo keyed on pointers or contents nor a path that goes cheap after the warm-up survives, and of a
kernel that errs now and then many calls are seen. The cell's clock is bounded from outside.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Outcome, Round
from kevin.judge.correctness.checks import Measured, require_idle, require_intact, require_unchanged, settle
from kevin.judge.correctness.compare import compare
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.sandbox.preemption import Calls
from kevin.judge.sandbox.slots import SharedSlots
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

_SAMPLED_ELEMENTS = 1 << 16
_ROOM = 2.0
"""More tolerance than in the checks: inputs of which a part was rescaled are less even, and sums of them less exact."""
_BURST_US, _MAX_BURST, _EAGER_CALLS = {"cpu": 8000.0, "cuda": 3000.0}, 400, 4
_BURST_FACTOR, _BURST_CALL_US, _BURST_SLACK_US = 1.5, 100.0, 1000.0
_BURST_LENGTHS, _LEAST_BURST = (1, 10, 10), 4
"""A burst that took too long is repeated, longer, so that what disturbed it weighs less."""
_MOST_PASSES, _COPIES = 4, 3
_LOOKED_AT = 8
"""Of the calls of a pass on a GPU."""
_LEAK_BURSTS = 6
_FORGED, _HOST_US = 20.0, 3000.0
"""Times what its clock says, and at least: what work on the host, such as making memory in every call, explains."""
_LOST = 4.0
"""Times as long as eager is known to take: a whole measurement that does not count."""
_EXTRA_ROUNDS = 4
"""Times as many rounds as are wanted at most, where other work disturbs most of them."""


TimeReference = Callable[
    [ReferenceTask, SharedSlots, list[list[Any]], list[int], list[int]], tuple[Calls, list[list[torch.Tensor]]]
]


def _at(x: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
    return x if places is None else x.view(-1)[places]


class PairedTimer:
    """Times one candidate in ``cell`` against ``reference``; ``inputs[i]`` is the judge's private copy of slot i, which
    was filled with ``first``.

    ``held_bytes``: memory that the candidate keeps, None where that cannot be told.
    ``time_reference`` is `Hardware.time_reference`, the counterpart of what the cell does. ``pause`` is called where
    nothing is being timed. ``allocates``: whether a call of the candidate makes memory of its own; one that does not is
    warm on a GPU after its checks. ``bytes_per_us``: that a GPU's memory reads and writes. ``quiet``: keeps others'
    work out of the driver, for a measurement that failed.
    """

    def __init__(
        self,
        cell: Cell,
        reference: ReferenceTask,
        slots: SharedSlots,
        first: list[Any],
        inputs: list[list[Any]],
        protocol: JudgeProtocol,
        time_reference: TimeReference,
        pause: Callable[[], None],
        *,
        held_bytes: Callable[[], int | None] = lambda: None,
        allocates: bool = True,
        bytes_per_us: float = math.inf,
        quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._time_reference = time_reference
        self._pause = pause
        self._quiet = quiet
        self._bytes_per_us = bytes_per_us
        self._is_long = False
        self._is_warm = protocol.device == "cuda" and not allocates
        self.cell, self.reference, self.slots = cell, reference, slots
        self.first, self.inputs, self.protocol = first, inputs, protocol
        self._held_bytes = held_bytes
        self._held: list[tuple[int | None, int | None]] = []
        """Before and after the candidate's calls of each round."""
        self._look_us = 0.0
        """What verifying a call took on average, in microseconds; 0 before the first."""
        self._views = inputs
        if protocol.device == "cuda":
            # eager reads the very memory that the candidate reads, so that page sizes and placement favour neither; on
            # a host its own process does
            pairs = zip(slots.inputs, inputs, strict=True)
            self._views = [[x if v is None else v for v, x in zip(shared, own, strict=True)] for shared, own in pairs]
        self._random = random.SystemRandom()
        self._parameters = reference.trials[0].parameters
        self._num_calls = self._num_filled = 0
        self._num_looked_at = self._leaked_bytes = 0
        self._checked_us: float | None = None
        """Of one call in the checks, where that is measured as in a round."""

    def prepare(self, kernel_us: float) -> None:
        """Fill the slots and warm up; needs no device to itself.

        Args:
            kernel_us: of one call in the checks.

        Raises:
            CandidateFailed: as `run`.
        """
        t = self.protocol.timing
        timeout_s = self.protocol.run_timeout_s
        if self._is_warm:
            self._checked_us = kernel_us
        else:  # the checks' calls were the first on their memory
            kernel_us = min(kernel_us, self.cell.call([0], [0], timeout_s).us[0])
        self._is_long = kernel_us >= t.round_us
        self._num_calls = num_calls = calls_per_round(self.protocol, kernel_us, self.slots.num_slots)
        self.reference.set_parameters(self._parameters)
        self._num_filled = self.slots.spare(num_calls) + 1
        for slot in range(self._num_filled):
            self.slots.fill(slot, self.inputs[slot], self._parameters)
        settle(self.protocol)  # the cell reads the parameters in a stream of its own
        self._warm_up(num_calls)

    def run(self) -> Measured:
        """Interleaved rounds until the ratio has settled or the budget is spent. After `prepare`.

        Raises:
            CandidateFailed: a wrong output after timing, a changed input, a tampered clock, a crash, a time-out.
            DeviceError: the machine is too busy to measure anything.
        """
        t, num_calls = self.protocol.timing, self._num_calls
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
            counted = undisturbed(self.protocol, rounds, alone, self.reference.fastest_us)
            ratios = [rounds[i].reference_us / rounds[i].kernel_us for i in counted]
            if hopeless := self._is_hopeless(ratios, rounds[0].reference_us):
                break
            if enough_rounds(self.protocol, len(rounds), sum(sum(k.us) for k, _ in calls)):
                if is_known(t, ratios, time.monotonic() - deadline):
                    break
            elif time.monotonic() > deadline + self.protocol.run_timeout_s:
                raise CandidateFailed(Outcome.TIMEOUT, "run_timeout", "timing did not end within the time limit")
        is_disturbed = len(alone) < min(MIN_ROUNDS, len(rounds))
        counted = self._counted(rounds, range(len(rounds)) if is_disturbed else alone)
        kernel_us_all, reference_us_all = (
            [us for i in counted for us in calls[i][side].counted_us()] for side in (0, 1)
        )
        num_left_out = len(rounds) - len(counted)
        rounds = [rounds[i] for i in counted]
        clock_us: float | None = None
        self._leaked_bytes = leaked_bytes(self._held, num_calls + 1)
        if not hopeless:  # nobody would be so slow by cheating
            self._pause()
            median_us = statistics.median(kernel_us_all)
            slot = self.slots.spare(num_calls)
            if slot < num_calls:  # those of the last round are known by now
                self._renew(slot)
            if found_us := self._check_burst(median_us, slot):
                clock_us, kernel_us_all = median_us, [found_us]
                rounds = [Round(kernel_us=found_us, reference_us=r.reference_us) for r in rounds]
            self._leaked_bytes = self._leaked_bytes or self._leak_of_bursts(slot, self._burst_calls(median_us, 1))
        for slot in range(self._num_filled):
            require_intact(self.slots, slot, self.inputs[slot], self._parameters, self.reference)
        return Measured(
            kernel=summarize(kernel_us_all),
            reference=summarize(reference_us_all),
            rounds=tuple(rounds),
            clock_us=clock_us,
            num_left_out=num_left_out,
            is_disturbed=is_disturbed,
            num_looked_at=self._num_looked_at,
            leaked_bytes=self._leaked_bytes,
        )

    def _counted(self, rounds: list[Round], among: Sequence[int]) -> list[int]:
        """Those that were not disturbed; where these are too few, those in which eager was fastest.

        Raises:
            DeviceError: eager was so slow throughout that nothing can be said of the candidate.
        """
        best_us = min(rounds[i].reference_us for i in among)
        known_us, self.reference.fastest_us = self.reference.fastest_us, min(self.reference.fastest_us, best_us)
        if self.protocol.device == "cpu" and best_us > _LOST * known_us:
            raise DeviceError(
                f"task {self.reference.task.id}: eager took {best_us:.4g} us a call, and {known_us:.4g} us before: "
                f"too much else runs on this machine"
            )
        found = undisturbed(self.protocol, rounds, among, self.reference.fastest_us)
        if len(found) >= MIN_ROUNDS or len(found) == len(among):
            return found
        return sorted(sorted(among, key=lambda i: rounds[i].reference_us)[:MIN_ROUNDS])

    def _is_hopeless(self, ratios: list[float], reference_us: float) -> bool:
        """On a GPU, whose clock is steady, the checks count as a measurement too."""
        checked = [] if self._checked_us is None else [reference_us / self._checked_us]
        return self.protocol.device == "cuda" and known_slow([*checked, *ratios])

    def _warm_up(self, num_calls: int) -> None:
        """Both sides through the slots, untimed: memory that calls allocate is there, and settled, when it counts.

        On a host that goes on for a while: pages that were just mapped are slower at first, in virtual machines above
        all. Device memory is not.
        """
        end = time.monotonic() + (self.protocol.timing.warmup_s if self.protocol.device == "cpu" else 0.0)
        while True:
            if not self._is_warm:
                warming = list(range(self.slots.spare(num_calls) + 1))
                # without a spare slot no later call gives a module the parameters that eager is timed with
                self.cell.call([], warming, self.protocol.run_timeout_s, load_parameters=True, cold=False)
            self._run_reference(list(range(num_calls)), [])
            if time.monotonic() >= end:
                return

    def _round(self, num_calls: int, *, kernel_first: bool) -> tuple[Calls, Calls]:
        order = list(range(num_calls))
        self._random.shuffle(order)
        checked = self._random.sample(order, calls_to_look_at(self.protocol, num_calls, self._look_us))
        for slot in order:
            self._renew(slot)
        if kernel_first:
            kernel = self._run_watched(order)
            if self.protocol.device == "cuda":
                for slot in checked:  # what is expected is made of them
                    require_unchanged(self.slots, slot, self.inputs[slot], self._parameters, self.reference)
            self._restore(order)
        reference, expected = self._run_reference(order, checked)
        if not kernel_first:
            kernel = self._run_watched(order)
        start = time.perf_counter_ns()
        for slot, outputs in zip(checked, expected, strict=True):
            self._verify(self.slots.outputs[slot], outputs)
        elapsed_us = (time.perf_counter_ns() - start) / 1e3
        again_us = 1e6 * self.reference.call_s if self.protocol.device == "cpu" else 0.0  # eager, for what is expected
        look_us = elapsed_us / len(checked) + again_us
        self._look_us = min(look_us, self._look_us or look_us)  # one look that something else held up says nothing
        self._num_looked_at += len(checked)
        return kernel, reference

    def _restore(self, order: list[int]) -> None:
        """The inputs as they were, where the candidate may change them as the reference does."""
        if self.reference.keeps_inputs is False:
            for slot in order:
                self.slots.fill(slot, self.inputs[slot], self._parameters)

    def _verify(self, outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
        """Compare one timed call: in full in a random third of the rounds, else at secret positions if it is large."""
        in_full = self._random.random() < 1 / 3
        places = [None if in_full else self._places(ref) for ref in expected]
        self._compare(*([_at(x, at) for x, at in zip(xs, places, strict=True)] for xs in (outputs, expected)))

    def _places(self, out: torch.Tensor) -> torch.Tensor | None:
        """Secret ones of a large output; None where all of it is compared."""
        if out.numel() <= 4 * _SAMPLED_ELEMENTS:
            return None
        return torch.randint(out.numel(), (_SAMPLED_ELEMENTS,), generator=self.reference.generator, device=out.device)

    def _compare(self, found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
        slacks = self.reference.trials[0].slack
        for spec, o, r, slack in zip(self.slots.spec.outputs, found, expected, slacks, strict=True):
            result = compare(spec.name, o, r, atol=self.protocol.atol, rtol=self.protocol.rtol, slack=slack, room=_ROOM)
            if not result.passed:
                text = f"correct when checked, wrong when timed: {result.message}"
                raise CandidateFailed(Outcome.INCORRECT, "wrong_after_timing", text)

    def _renew(self, slot: int) -> None:
        """Change some elements in the judge's copy and write them through to the slot; poison the outputs."""
        self._restore([slot])
        self.reference.change_some(self.inputs[slot], self.slots.inputs[slot], self.first)
        self.slots.poison_outputs(slot)

    def _run_reference(self, order: list[int], checked: list[int]) -> tuple[Calls, list[list[torch.Tensor]]]:
        return self._time_reference(self.reference, self.slots, self._views, order, checked)

    def _run_watched(self, order: list[int]) -> Calls:
        """With what the candidate holds before and after."""
        before = self._held_bytes()
        calls = self._run_kernel(order)
        self._held.append((before, self._held_bytes()))
        return calls

    def _run_kernel(self, order: list[int]) -> Calls:
        on_gpu = self.protocol.device == "cuda"
        if on_gpu:
            for slot in order:
                self.slots.hold_back(slot)
            torch.cuda.synchronize()
        spare = self.slots.spare(len(order))
        # what is timed must not have been seen before
        warm = [] if (self._is_warm and self._is_long) or spare < len(order) else [spare]
        if on_gpu:
            return self.cell.call(warm, order, self.protocol.run_timeout_s, late=True)
        waited_us, start = self.cell.waited_us(), time.perf_counter_ns()
        calls = self.cell.call(warm, order, self.protocol.run_timeout_s)
        outside_us, now_us = (time.perf_counter_ns() - start) / 1e3, self.cell.waited_us()
        if self.protocol.num_threads > 1:
            require_idle(self.cell, outside_us)
        return calls.borne_out(None if now_us is None or waited_us is None else now_us - waited_us)

    def _check_burst(self, kernel_us: float, slot: int) -> float | None:
        """Many calls in a row must take about as long by the judge's clock as the cell's own says of one.

        All of a call's work is done within the burst, whatever its clock said: on streams of its own, before the clock
        began or after it ended, in another call, or with a clock that was tampered with. Each call has new inputs, and
        outputs that are looked at: what answers without computing has answered wrongly. On a host the judge's clock is
        the CPU time of the cell, which other load does not lengthen; on a GPU it is the wall's, and what launches may
        cost is bounded by eager's.

        Returns:
            Microseconds of a call, where a GPU's candidate takes longer than its clock says and its host may be why;
            None where both agree.

        Raises:
            CandidateFailed: they do not, and no host's work explains it.
        """
        per_call_us = kernel_us * self.protocol.num_threads * _BURST_FACTOR + _BURST_CALL_US
        on_gpu = self.protocol.device == "cuda"
        if on_gpu:
            per_call_us += 2 * self._eager_launch_us(slot)
        slots = self._slots_of_burst(kernel_us)
        found_us = math.inf
        for length in _BURST_LENGTHS:
            num_calls = self._burst_calls(kernel_us, length)
            with self._quiet() if length > 1 else nullcontext():
                call_us = self._burst_us(slots, num_calls)
            if call_us <= per_call_us + _BURST_SLACK_US / (len(slots) if on_gpu else num_calls):
                return None
            found_us = min(found_us, call_us)
        if on_gpu and found_us <= max(_FORGED * kernel_us, kernel_us + _HOST_US):
            return found_us
        raise CandidateFailed(
            Outcome.QUARANTINED,
            "clock_disagrees",
            f"calls in a row took {found_us:.4g} us each, timed alone {kernel_us:.4g} us",
        )

    def _slots_of_burst(self, kernel_us: float) -> list[int]:
        """Those of a round; on a GPU, where the cell's answer takes as long as many calls, more of them if calls are
        short.
        """
        num_calls = self._num_calls
        if self.protocol.device == "cuda":
            num_calls = min(self.slots.num_slots, max(num_calls, self._burst_calls(kernel_us, 1)))
        for slot in range(self._num_filled, num_calls):
            self.slots.fill(slot, self.inputs[slot], self._parameters)
        self._num_filled = max(self._num_filled, num_calls)
        return list(range(num_calls))

    def _burst_calls(self, kernel_us: float, length: int) -> int:
        """As many calls as last ``length`` short bursts by the cell's clock, within half of the time limit."""
        room = self._room_bytes // self._leaked_bytes if self._leaked_bytes else _MAX_BURST
        most = min(_MAX_BURST, room, 5e5 * self.protocol.run_timeout_s // kernel_us)
        least = 1 if length == 1 else _LEAST_BURST
        return int(max(1, min(max(least, length * _BURST_US[self.protocol.device] // kernel_us), most)))

    def _burst_us(self, slots: list[int], num_calls: int) -> float:
        """Microseconds of a call, of about so many, fewer where that takes many passes over the slots.

        On a GPU the fastest pass counts: all work is done in each, and what disturbs one is not the candidate's.
        """
        on_gpu = self.protocol.device == "cuda"
        run = self._pass_on_gpu if on_gpu else self._pass_on_host
        seconds = [run(slots) for _ in range(max(1, min(num_calls // len(slots), _MOST_PASSES)))]
        return 1e6 * (min(seconds) if on_gpu else statistics.fmean(seconds)) / len(slots) - self._copy_us()

    def _pass_on_host(self, slots: list[int]) -> float:
        """Seconds of CPU time of a call on each slot, which is read when the outputs have been looked at."""
        for slot in slots:
            self._renew(slot)
        before, start = self.cell.cpu_seconds(), time.perf_counter()
        self.cell.call([], slots, self.protocol.run_timeout_s, burst=1)
        wall_s = time.perf_counter() - start
        for slot in slots:
            self._verify(self.slots.outputs[slot], self._expected(slot))
        after = self.cell.cpu_seconds()
        return wall_s if before is None or after is None else after - before

    def _pass_on_gpu(self, slots: list[int]) -> float:
        """Seconds until each slot had its call, and some outputs, secret ones, were read: later work is too late."""
        for slot in slots:
            self._renew(slot)
        looked_at = {
            slot: [(out, self._places(out)) for out in self.slots.outputs[slot]]
            for slot in self._random.sample(slots, min(len(slots), _LOOKED_AT))
        }
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.cell.call([], slots, self.protocol.run_timeout_s, burst=1)
        seen = {slot: [_at(out, places).clone() for out, places in pairs] for slot, pairs in looked_at.items()}
        torch.cuda.synchronize()
        elapsed_s = time.perf_counter() - start
        for slot, pairs in looked_at.items():
            expected = zip(self._expected(slot), pairs, strict=True)
            self._compare(seen[slot], [_at(ref, places) for ref, (_, places) in expected])
        return elapsed_s

    def _expected(self, slot: int) -> list[torch.Tensor]:
        return self.reference.forward(self.inputs[slot], self._parameters)

    def _copy_us(self) -> float:
        """What a module's cell takes, at most, to copy the results of a call into their slot.

        A GPU is not asked, which the candidate may keep busy meanwhile.
        """
        if not self.cell.copies_results:
            return 0.0
        outputs, results = self.slots.outputs[0], self.reference.trials[0].outputs
        if self.protocol.device == "cuda":
            return _BURST_FACTOR * 2 * sum(out.nbytes for out in outputs) / self._bytes_per_us
        times = []
        for _ in range(_COPIES):
            start = time.perf_counter()
            for view, result in zip(outputs, results, strict=True):
                view.copy_(result)
            times.append(time.perf_counter() - start)
        return 1e6 * _BURST_FACTOR * statistics.median(times)

    def _leak_of_bursts(self, slot: int, num_calls: int) -> int:
        """Bytes that many calls in a row keep, of each; 0 if they keep none. The first burst that keeps none ends it.

        A device hands out its memory by pieces of megabytes, so that few calls may take none of it. Its other users
        take as much in the pauses, which are as long as the bursts.
        """
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
        self.cell.call([], [slot], self.protocol.run_timeout_s, burst=num_calls)
        after = self._held_bytes()
        return (0 if before is None or after is None else max(0, after - before)), before, after

    @property
    def _room_bytes(self) -> int:
        """What a candidate that keeps memory may take of it in one burst."""
        return self.protocol.memory_mb << 18

    def _eager_launch_us(self, slot: int) -> float:
        """What the host takes to enqueue one eager call."""
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        self.reference.run_burst(self._views[slot], _EAGER_CALLS)
        launch_us = (time.perf_counter_ns() - start) / 1e3 / _EAGER_CALLS
        torch.cuda.synchronize()
        return launch_us
