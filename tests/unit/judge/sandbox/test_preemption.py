"""The scheduler's counters of a process that must share its core."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kevin.judge.inside.host import ColdClock
from kevin.judge.sandbox.cell import Cell
from kevin.judge.sandbox.isolation import detect_isolation
from kevin.judge.sandbox.preemption import held_bytes, waited_us
from kevin.judge.sandbox.slots import anonymous_buffer

pytestmark = pytest.mark.timing


@pytest.fixture
def core() -> Iterator[int]:
    """This thread's only one for a while."""
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    yield core
    os.sched_setaffinity(0, before)


@pytest.fixture
def hog(core: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])  # on the same core, as a child
    yield
    process.kill()
    process.wait()


def _spin(seconds: float = 0.05) -> None:
    start = os.times()
    while sum(os.times()[:2]) - sum(start[:2]) < seconds:
        pass


@pytest.mark.usefixtures("hog")
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_clock_sees_the_waiting_for_a_core(num_threads: int) -> None:
    clock = ColdClock(1 << 20, num_threads)
    assert clock(_spin) > clock.waited_ns > 0.05 * 50e6
    clock(lambda: None)
    assert clock.waited_ns < 1e6


@pytest.mark.usefixtures("hog")
def test_the_waiting_of_a_cell_is_seen_from_outside() -> None:
    """And what the cell itself says of it is borne out by that."""
    memory = anonymous_buffer(4096)
    setup = {"shared_bytes": 4096, "cache_bytes": 64 << 20, "memory_bytes": 1 << 30, "num_threads": 1, "slots": [[]]}
    setup |= {"guarded": [[]], "num_outputs": 0}
    with Cell("native.py", isolation=detect_isolation()) as cell:
        cell.prepare(setup | {"library": "libc.so.6", "launcher": "getpid"}, memory.fd)
        cell.load(10.0)
        before = cell.waited_us()
        calls = cell.call([], [0] * 30, 60.0)
        after = cell.waited_us()
    memory.close()
    assert before is not None and after is not None
    assert after - before > 1000.0, "emptying the caches takes it longer than it may keep a core"
    assert calls.borne_out(after - before) == calls and len(calls.waited_us) == 30


def test_a_process_that_is_gone_says_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert waited_us(process.pid) is None and waited_us(None) is None


@pytest.mark.parametrize("kind", [mmap.MAP_PRIVATE, mmap.MAP_SHARED])
def test_memory_is_held_whether_it_is_shared_or_not(kind: int) -> None:
    """And whether it is touched or not, so that a kernel which reads other rows of a table each time holds no more."""
    num_bytes = 64 << 20
    before = held_bytes(os.getpid())
    memory = mmap.mmap(-1, num_bytes, flags=kind | mmap.MAP_ANONYMOUS)
    after = held_bytes(os.getpid())
    memory[0 : num_bytes : mmap.PAGESIZE] = bytes(num_bytes // mmap.PAGESIZE)
    touched = held_bytes(os.getpid())
    memory.close()
    assert before is not None and after is not None and touched is not None
    assert abs(after - before - num_bytes) < 8 << 20
    assert abs(touched - after) < 8 << 20
    assert held_bytes(None) is None
