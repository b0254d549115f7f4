"""When a timing is known well enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.judge.correctness.compare import NO_SLACK
from kevin.judge.sandbox.cell import CandidateFailed
from kevin.judge.sandbox.preemption import Calls
from kevin.judge.timing import paired
from kevin.judge.timing.fresh import FreshSlots
from kevin.judge.timing.in_a_row import CallsInARow
from kevin.judge.timing.paired import PairedTimer
from kevin.judge.timing.rounds import calls_per_round, calls_to_look_at, enough_rounds, leaked_bytes, settled

CPU = JudgeProtocol(timing=TimingProtocol(min_rounds=6, round_us=4000.0))
GPU = CPU.model_copy(update={"device": "cuda"})

LOST = paired._LOST
"""Before `_busy_machine` in tests/conftest.py takes it away."""


def _reference(fastest_us: float = math.inf) -> Any:
    return SimpleNamespace(fastest_us=fastest_us, task=SimpleNamespace(id="test"), keeps_inputs=True)


def test_a_round_is_filled_with_calls_and_what_goes_before_them() -> None:
    assert calls_per_round(CPU, kernel_us=1000.0, num_slots=17) == 4
    assert calls_per_round(GPU, kernel_us=1000.0, num_slots=17) == 4  # 3.1 of 1.3 ms
    assert calls_per_round(CPU, kernel_us=10.0, num_slots=17) == 6
    assert calls_per_round(GPU, kernel_us=100.0, num_slots=17) == 6
    assert calls_per_round(GPU, kernel_us=100.0, num_slots=4) == 3
    assert calls_per_round(CPU, kernel_us=1e6, num_slots=2) == 1


def test_as_many_calls_are_looked_at_as_take_half_a_round_or_make_thirty_six_within_two() -> None:
    assert calls_to_look_at(CPU, num_calls=16, look_us=0.0) == 1, "what it takes is unknown"
    assert calls_to_look_at(CPU, num_calls=50, look_us=100.0) == 20
    assert calls_to_look_at(CPU, num_calls=50, look_us=250.0) == 8
    assert calls_to_look_at(CPU, num_calls=50, look_us=1000.0) == 6
    assert calls_to_look_at(CPU, num_calls=50, look_us=4000.0) == 2, "no longer than two rounds"
    assert calls_to_look_at(CPU, num_calls=50, look_us=1e6) == 1
    assert calls_to_look_at(CPU, num_calls=3, look_us=1.0) == 3


def _held(within: list[int], between: int | list[int] = 0) -> list[tuple[int | None, int | None]]:
    """Before and after each round's calls, which take ``within``; ``between`` two rounds others take more."""
    found: list[tuple[int | None, int | None]] = []
    taken, gaps = 0, between if isinstance(between, list) else [between] * len(within)
    for step, gap in zip(within, gaps, strict=True):
        found.append((taken, taken + step))
        taken += step + gap
    return found


def test_memory_that_grows_with_every_round_is_a_leak_and_what_others_take_is_not() -> None:
    assert leaked_bytes(_held([500, 40, 40, 40, 40, 40]), 4) == 10
    assert leaked_bytes(_held([500, 40, 40, 0, 40, 40, 40], [0, 0, 900, 0, 0, -900, 0]), 4) == 10, "one other process"
    assert leaked_bytes(_held([1000, 0, 0, 0, 0, 0]), 4) == 0, "the first round makes what all later ones use"
    assert leaked_bytes(_held([0, 40, -40, 40, -40, 40]), 4) == 0
    assert leaked_bytes(_held([500, 40, 40, 40, 40, 40], 30), 4) == 0, "it grows without the candidate's calls too"
    assert leaked_bytes(_held([500, 40, 40, 40]), 4) == 0, "too few rounds to tell"
    assert leaked_bytes([(None, None)] * 8, 4) == 0


@pytest.mark.parametrize(
    ("protocol", "num_rounds", "timed_us", "enough"),
    [
        (CPU, 5, 1e9, False),
        (CPU, 6, 1.0, True),
        (GPU, 2, 1e9, False),
        (GPU, 3, 23_999.0, False),
        (GPU, 3, 24_000.0, True),
        (GPU, 6, 1.0, True),
    ],
)
def test_long_calls_need_fewer_rounds_on_a_gpu_only(
    protocol: JudgeProtocol, num_rounds: int, timed_us: float, enough: bool
) -> None:
    assert enough_rounds(protocol, num_rounds, timed_us) is enough


class _Bursts(CallsInARow):
    """Calls in a row that agree with every clock, and keep nothing."""

    def __init__(self) -> None:
        self.checked_us: list[float] = []
        self.leaked_bytes = 0

    def check(self, kernel_us: float, num_calls: int) -> float | None:
        self.checked_us.append(kernel_us)
        return None

    def leak(self, kernel_us: float, slot: int) -> int:
        return 0


class _Played(PairedTimer):
    """Plays rounds; the last one goes on."""

    def __init__(
        self,
        rounds: list[tuple[Calls, Calls]],
        fastest_us: float = math.inf,
        protocol: JudgeProtocol = CPU,
        in_a_row: CallsInARow | None = None,
    ) -> None:
        self.bursts = _Bursts()
        fresh = SimpleNamespace(
            slots=SimpleNamespace(spare=lambda num_timed: num_timed),
            reference=_reference(fastest_us),
            protocol=protocol,
            require_intact=lambda: None,
        )
        super().__init__(None, fresh, in_a_row or self.bursts, None, lambda: None)  # type: ignore[arg-type]
        self.left, self.num_rounds = list(rounds), 0

    def _round(self, num_calls: int, *, kernel_first: bool) -> tuple[Calls, Calls]:
        self.num_rounds += 1
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.mark.parametrize(
    ("protocol", "allocates", "rounds_us", "num_rounds"),
    [
        (GPU, False, [100.0] * 40, 1),  # the checks said 100 us as well, eager takes 1 us
        (GPU, False, [90.0, 92.0] * 20, 2),
        (GPU, True, [100.0] * 40, 2),  # its checks were not warm
        (GPU, False, [5.0] * 40, 6),  # a fifth of eager's speed is worth knowing
        (CPU, False, [100.0] * 40, 6),
    ],
)
def test_a_hopelessly_slow_kernel_is_measured_until_two_agree(
    protocol: JudgeProtocol, allocates: bool, rounds_us: list[float], num_rounds: int
) -> None:
    timer = _Played([(Calls([us]), Calls([1.0])) for us in rounds_us], protocol=protocol)
    timer._checked_us = None if allocates or protocol.device == "cpu" else 100.0
    assert len(timer.run().rounds) == num_rounds
    assert len(timer.bursts.checked_us) == (num_rounds == 6)  # the clock of what gains nothing needs no check


@pytest.mark.parametrize(("calls_in_a_row_us", "kernel_us"), [(120.0, 100.0), (3000.0, 3000.0), (4000.0, None)])
def test_calls_in_a_row_count_where_the_clock_says_less(calls_in_a_row_us: float, kernel_us: float | None) -> None:
    """Work on the host is not seen by a GPU's clock; more than that explains is a clock that was tampered with."""
    quiet: list[bool] = []

    class Bursts(CallsInARow):
        def _eager_launch_us(self) -> float:
            return 10.0

        def _slots(self, kernel_us: float, num_calls: int) -> list[int]:
            return list(range(100))

        def _burst_us(self, slots: list[int], num_calls: int) -> float:
            return calls_in_a_row_us

    fresh: Any = SimpleNamespace(protocol=GPU)
    in_a_row = Bursts(None, fresh, quiet=lambda: nullcontext(quiet.append(True)))  # type: ignore[arg-type]
    in_a_row.leak = lambda kernel_us, slot: 0  # type: ignore[method-assign]
    timer = _Played([(Calls([100.0]), Calls([200.0]))], protocol=GPU, in_a_row=in_a_row)
    if kernel_us is None:
        with pytest.raises(CandidateFailed, match="4000 us each, timed alone 100 us"):
            timer.run()
        return
    measured = timer.run()
    assert len(quiet) == (0 if kernel_us == 100.0 else 2)
    assert measured.kernel.median_us == kernel_us
    assert {r.reference_us / r.kernel_us for r in measured.rounds} == {200.0 / kernel_us}
    assert measured.clock_us == (None if kernel_us == 100.0 else 100.0)


class _Rounds(_Played):
    """Plays rounds of two calls."""

    def __init__(self, rounds: list[tuple[float, float]], fastest_us: float = math.inf) -> None:
        super().__init__([(Calls([k, k]), Calls([r, 3 * r])) for k, r in rounds], fastest_us)


def test_rounds_in_which_eager_was_disturbed_do_not_count() -> None:
    """Times of a real measurement: a process whose memory was being mapped made a kernel 26 times as fast as eager."""
    slow = [(1356.0, 38780.0), (1436.0, 40176.0), (1501.0, 38084.0), (1369.0, 37791.0)]
    timer = _Rounds([*slow, (1523.0, 2132.0), (1388.0, 1573.0), (1400.0, 1580.0)])
    measured = timer.run()
    ratios = [r.reference_us / r.kernel_us for r in measured.rounds]
    assert len(ratios) >= 3 and max(ratios) < 1.5 and measured.kernel.num_samples == 2 * len(ratios)
    assert timer._reference.fastest_us == 1573.0
    slower_kernel = _Rounds([(100.0, 1000.0), *[(300.0, 1000.0)] * 9]).run()
    assert len(slower_kernel.rounds) >= 6, "what slows down the candidate counts"


def _waited(us: float, waited_us: float) -> Calls:
    return Calls([us, us], [waited_us, waited_us])


def test_calls_that_had_to_share_their_core_do_not_count() -> None:
    """On either side; of a round in which one call of several was alone that one does."""
    calm = (Calls([300.0, 900.0], [0.0, 600.0]), Calls([100.0, 100.0], [4.0, 0.0]))
    hogged = [(_waited(600.0, 300.0), Calls([100.0])), (Calls([300.0]), _waited(400.0, 290.0))]
    measured = _Played([*hogged * 4, calm]).run()
    assert {(r.kernel_us, r.reference_us) for r in measured.rounds} == {(300.0, 100.0)}
    assert measured.num_left_out == 8 and not measured.is_disturbed
    assert measured.kernel.num_samples == len(measured.rounds)
    assert measured.reference.num_samples == 2 * len(measured.rounds)


def test_where_no_call_has_its_core_to_itself_the_times_are_without_the_waiting_and_it_is_said() -> None:
    """A kernel three times as slow as eager looked six times as slow: long calls lose their core, short ones do not."""
    timer = _Played([(_waited(6200.0, 3200.0), Calls([1000.0]))])
    measured = timer.run()
    assert measured.is_disturbed
    assert {r.reference_us / r.kernel_us for r in measured.rounds} == {1 / 3}
    assert measured.kernel.median_us == 3000.0
    assert timer.num_rounds == 4 * CPU.timing.max_rounds, "it measures on, up to a limit"


def test_a_process_cannot_claim_more_waiting_than_is_seen_from_outside() -> None:
    claims = Calls([100.0, 500.0], [0.0, 490.0])
    assert claims.counted_us() == [100.0]
    assert claims.borne_out(600.0).counted_us() == [100.0]
    for seen_us in (480.0, 0.0, None):
        assert claims.borne_out(seen_us).counted_us() == [100.0, 500.0]
    forged = Calls([500.0], [800.0])
    assert forged.is_disturbed and forged.typical_us() > 0, "and no call takes less than nothing"


def test_eager_that_is_far_slower_than_before_says_nothing_of_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired, "_LOST", LOST)
    rounds = [(1400.0, 38000.0)]
    assert _Rounds(rounds).run().reference.median_us == pytest.approx(2 * 38000.0)
    assert _Rounds(rounds, fastest_us=30000.0).run()
    with pytest.raises(DeviceError, match=r"3.8e\+04 us a call, and 1500 us before"):
        _Rounds(rounds, fastest_us=1500.0).run()
    some = _Rounds([*[(1000.0, 5000.0)] * 5, (1000.0, 3000.0)], fastest_us=1500.0)  # never as fast as before
    assert {r.reference_us for r in some.run().rounds} == {3000.0}


@pytest.mark.parametrize(
    ("kept", "others", "leaked", "bursts"),
    [
        (4 << 20, 0.0, 4 << 20, 7),
        (0, 0.0, 0, 1),
        (0, 2e9, 0, 7),  # bytes a second that others take of the device all the time
        (4 << 20, 2e9, 0, 7),  # nobody can tell who does
    ],
)
def test_a_leak_that_few_calls_do_not_show_is_seen_in_bursts(
    kept: int, others: float, leaked: int, bursts: int
) -> None:
    """A device hands out memory by pieces of 32 MB: seven calls that keep 4 MB each may take none of it."""
    piece, started = 32 << 20, time.monotonic()

    class Cell:
        used, num_bursts = 0, 0

        def call(self, warm: list[int], order: list[int], timeout_s: float, burst: int) -> None:
            time.sleep(0.02)
            self.used += burst * kept
            self.num_bursts += 1

    cell = Cell()

    def held_bytes() -> int:
        taken = int(others * (time.monotonic() - started)) >> 21 << 21
        return -(-cell.used // piece) * piece + taken

    in_a_row = CallsInARow(cell, SimpleNamespace(protocol=GPU), held_bytes)  # type: ignore[arg-type]
    assert in_a_row.leak(25.0, 0) == leaked
    assert cell.num_bursts == bursts


class _Slots:
    """Three slots of 300,000 numbers; the reference doubles them."""

    def __init__(self) -> None:
        self.spec = SimpleNamespace(outputs=[SimpleNamespace(name="out")])
        self.num_slots = 3
        self.known: dict[int, torch.Tensor] = {}
        self.inputs = [[torch.full((300_000,), math.nan)] for _ in range(3)]
        self.outputs = [[torch.empty(300_000)] for _ in range(3)]

    def fill(self, slot: int, inputs: list[torch.Tensor], parameters: list[torch.Tensor]) -> None:
        self.inputs[slot][0].copy_(inputs[0])

    def hold_back(self, slot: int) -> None:
        """Nothing is late here."""

    def poison_outputs(self, slot: int) -> None:
        self.outputs[slot][0].fill_(math.nan)


class _OnGpu(CallsInARow):
    """On what stands for a GPU: ``compute`` is the candidate's call on a slot, ``wait_s`` what the n-th pass takes."""

    def __init__(self, compute: Callable[[_Slots, int], None], wait_s: Callable[[int], float]) -> None:
        self.num_passes, self.slots = 0, _Slots()
        own = [[torch.ones(300_000)] for _ in range(3)]
        reference: Any = SimpleNamespace(
            generator=torch.Generator(),
            keeps_inputs=True,
            trials=[SimpleNamespace(slack=[NO_SLACK], parameters=[])],
            forward=lambda inputs, parameters: [2 * inputs[0]],
            change_some=lambda inputs, views, first: views[0].copy_(inputs[0].uniform_()),
        )

        def call(warm: list[int], order: list[int], timeout_s: float, late: bool, burst: int) -> None:
            assert late
            self.num_passes += 1
            time.sleep(wait_s(self.num_passes))
            for slot in order:
                compute(self.slots, slot)

        fresh = FreshSlots(self.slots, reference, own[0], own, GPU)  # type: ignore[arg-type]
        fresh.fill(2)
        super().__init__(SimpleNamespace(call=call, is_module=False), fresh)  # type: ignore[arg-type]

    def _eager_launch_us(self) -> float:
        return 10.0


def _double(slots: _Slots, slot: int) -> None:
    torch.mul(slots.inputs[slot][0], 2, out=slots.outputs[slot][0])


def _double_once(slots: _Slots, slot: int) -> None:
    """A memo of the address."""
    if slot not in slots.known:
        _double(slots, slot)
        slots.known[slot] = slots.outputs[slot][0].clone()
    slots.outputs[slot][0].copy_(slots.known[slot])


def test_what_disturbs_one_pass_is_not_charged_to_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    in_a_row = _OnGpu(_double, lambda n: 0.1 if n < 4 else 0.0)
    assert in_a_row.check(20000.0, 1) is None
    assert in_a_row.num_passes == 1 + 4
    found_us = _OnGpu(_double, lambda n: 0.1).check(20000.0, 1)
    assert found_us is not None and 1e5 <= found_us < 4e5, "the host's work is told as the time of a call"
    assert [in_a_row._burst_calls(us, 10) for us in (0.001, 10.0, 1e5, 1e7)] == [400, 400, 4, 1]


def test_calls_in_a_row_on_a_gpu_have_new_inputs_and_outputs_that_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    in_a_row = _OnGpu(_double, lambda n: 0.0)
    assert in_a_row._slots(20000.0, 1) == [0] and in_a_row._slots(10.0, 1) == [0, 1, 2]
    assert not in_a_row.slots.inputs[2][0].isnan().any(), "a slot that no round used has been filled"
    in_a_row._burst_us([0, 1, 2], 6)
    assert in_a_row.num_passes == 2
    with pytest.raises(CandidateFailed, match="wrong when timed"):
        _OnGpu(_double_once, lambda n: 0.0)._burst_us([0, 1, 2], 6)


def test_outliers_neither_settle_a_ratio_nor_unsettle_it() -> None:
    steady = [1.0, 1.01, 0.99, 1.0, 1.005, 0.995]
    assert settled(steady, 0.02)
    assert settled([*steady, 30.0], 0.02)
    assert not settled([1.0, 20.0, 1.1, 28.0, 1.05, 17.0], 0.02)
    assert not settled([1.0, 1.0], 0.02)


@pytest.mark.parametrize(("is_module", "passes_over"), [(True, 2), (False, 3)])
def test_what_a_cell_copies_on_a_gpu_is_not_charged_to_the_candidate(is_module: bool, passes_over: int) -> None:
    in_a_row = _OnGpu(_double, lambda n: 0.0)
    in_a_row._cell = SimpleNamespace(is_module=is_module)  # type: ignore[assignment]
    in_a_row._bytes_per_us = 4e6
    assert in_a_row._copy_us() == pytest.approx(passes_over * 4 * 300_000 / 4e6)
