"""What a launcher's cell enqueues on a GPU, in which order; a GPU that writes down what it is told stands for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kevin.judge.inside import native_cuda

BASE, BAND, OUT = 1 << 20, 64, 4096
SETUP: dict[str, Any] = {
    "num_outputs": 1,
    "band_bytes": BAND,
    "late_pieces": [[(100, 0, 8)], [(200, 1000, 8)]],
    "slots": [[{"offset": at, "num_bytes": 8}, {"offset": at + 500, "num_bytes": 16}] for at in (0, 1000)],
}


class FakeGpu:
    """Allocates ``OUT - BAND`` once, for the outputs of all slots."""

    stream = None

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def allocate(self, num_bytes: int) -> int:
        return OUT - BAND

    def fill(self, pointer: int, byte: int, num_bytes: int) -> None:
        self.told.append(("poison", pointer, byte, num_bytes))

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        self.told.append(("copy", target, source, num_bytes))

    def synchronize(self) -> None:
        self.told.append(("wait",))

    def untimed(self, launch: Callable[[], object]) -> None:
        self.told.append(("joined",))
        launch()

    def timed(
        self, launch: Callable[[], object], afterwards: Callable[[], object], before: Callable[[], object] | None
    ) -> int:
        if before is not None:
            before()
        self.told.append(("clock",))
        launch()
        afterwards()
        return 7


def _expected(slot: int, begins: str) -> list[tuple[Any, ...]]:
    """Poison, the last of the inputs, the call, and then its outputs with what is around them."""
    at = BASE + 1000 * slot
    source, target, size = SETUP["late_pieces"][slot][0]
    return [
        ("poison", OUT, 0xFF, 16),
        ("copy", BASE + target, BASE + source, size),
        (begins,),
        ("launch", at, OUT),
        ("copy", at + 500 - BAND, OUT - BAND, 16 + 2 * BAND),
    ]


@pytest.mark.parametrize(("burst", "begins"), [(0, "clock"), (1, "joined"), (2, "joined")])
def test_each_call_has_late_inputs_and_hands_its_outputs_over(burst: int, begins: str) -> None:
    gpu = FakeGpu()
    launcher = native_cuda._Launcher(SETUP, gpu, BASE)
    gpu.told.clear()
    launcher.launch = lambda x, out, stream: gpu.told.append(("launch", x.value, out.value))
    reply = native_cuda._run({"warm": [], "calls": [1, 0], "late": True, "burst": burst}, launcher)
    calls = [told for slot in [1, 0] * max(burst, 1) for told in _expected(slot, begins)]
    assert [told for told in gpu.told if told != ("wait",)] == calls
    assert gpu.told[-1 if burst else 0] == ("wait",)
    assert reply == ([0, 0] if burst else [7, 7])


def test_where_every_tensor_has_an_allocation_of_its_own_nothing_is_handed_over() -> None:
    gpu = FakeGpu()
    launcher = native_cuda._Launcher({**SETUP, "own_allocations": True}, gpu, BASE)
    gpu.told.clear()
    launcher.launch = lambda x, out, stream: gpu.told.append(("launch", out.value))
    native_cuda._run({"warm": [], "calls": [0], "late": False, "burst": 1}, launcher)
    assert gpu.told == [("launch", OUT - BAND), ("wait",)]
