"""A host's caches are empty before each call that is timed, on both sides, and a warm-up does not wait for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.judge.inside import native
from kevin.judge.inside.host import ColdClock
from kevin.judge.sandbox.preemption import Calls
from kevin.judge.timing.paired import PairedTimer

PROTOCOL = JudgeProtocol(timing=TimingProtocol(warmup_s=0.0))


@pytest.mark.parametrize("cold", [True, False])
def test_a_cell_s_clock(cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    clock = ColdClock(1 << 16, 1)
    monkeypatch.setattr(clock, "_flush", lambda: happened.append("emptied"))
    command = {"warm": [1], "calls": [0, 0], "burst": 0, "cold": cold}
    reply = native._run(command, clock, [("timed",), ("untimed",)], happened.append)
    assert happened == ["untimed", *(["emptied", "timed"] if cold else ["timed"]) * 2]
    assert len(reply["ns"]) == 2


def test_a_measurement() -> None:
    asked: list[tuple[str, int, bool]] = []

    class Cell:
        def call(self, warm: list[int], calls: list[int], timeout_s: float, *, cold: bool = True, **_: Any) -> Calls:
            asked.append(("kernel", len(calls), cold))
            return Calls([1.0] * len(calls))

        def waited_us(self) -> None:
            return None

    def time_reference(_: Any, slots: Any, views: Any, order: list[int], keep: list[int]) -> tuple[Calls, list[Any]]:
        asked.append(("eager", len(order), bool(keep)))
        return Calls([1.0] * len(order)), []

    slots = SimpleNamespace(spare=lambda num_calls: num_calls)
    fresh: Any = SimpleNamespace(slots=slots, reference=None, protocol=PROTOCOL, views=[])
    timer = PairedTimer(Cell(), fresh, None, time_reference, lambda: None)  # type: ignore[arg-type]
    timer._warm_up(2)
    assert asked == [("kernel", 3, False), ("eager", 2, False)]
    asked.clear()
    timer._run_kernel([0, 1])
    timer._run_reference([0, 1], [1])
    assert asked == [("kernel", 2, True), ("eager", 2, True)]
