"""The process that times eager PyTorch on the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from process_fixtures import until

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task
from kevin.judge.sandbox.slots import SharedSlots
from kevin.judge.timing.eager import EagerProcess, EagerServer, Job, eager_server
from kevin.tasks.format import inspect_task

pytestmark = pytest.mark.timing

SOURCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(size))
    def forward(self, x, factor):
        return torch.relu(x) * self.scale * factor
def get_inputs():
    return [torch.randn(256, 256), 3.0]
def get_init_inputs():
    return [256]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[EagerServer]:
    server = EagerServer()
    yield server
    server.close()


@pytest.fixture
def slots() -> Iterator[SharedSlots]:
    slots = SharedSlots(inspect_task(SOURCE, "test"), 3)
    for i in range(3):
        slots.fill(i, [torch.randn(256, 256), 3.0], [torch.ones(256)])
    yield slots
    slots.close()


def start(server: EagerServer, slots: SharedSlots, source: str = SOURCE) -> EagerProcess:
    task = Task(id="test", level=1, name="test", source=source, origin="user")
    cores = tuple(os.sched_getaffinity(0))
    job = Job(
        task=task,
        protocol=JudgeProtocol(),
        num_slots=3,
        as_given=False,
        scalars={1: 3.0},
        keeps_inputs=True,
        weight_seed=7,
        cores=cores,
    )
    return server.start(job, slots.fd)


def test_every_call_is_timed_and_no_slot_is_written_to(server: EagerServer, slots: SharedSlots) -> None:
    before = slots._buffer.data.clone()
    process = start(server, slots)
    calls = process.run_timed(2, [1, 0], 10.0)
    assert len(calls.us) == len(calls.waited_us) == 2
    assert all(us > 0 for us in calls.us)
    assert torch.equal(slots._buffer.data, before)
    process.close()


def test_what_is_timed_maps_no_memory() -> None:
    """Eager was charged for it, three times what it computes and more, for as long as most measurements last."""
    source = SOURCE.replace("256", "1448")  # 8 MB, more than once a call
    server, slots = EagerServer(), SharedSlots(inspect_task(source, "test"), 3)
    for i in range(3):
        slots.fill(i, [torch.randn(1448, 1448), 3.0], [torch.ones(1448)])
    process = start(server, slots, source)

    def faults() -> int:
        return int(Path(f"/proc/{process._pid}/stat").read_text().rpartition(")")[2].split()[7])

    found = []
    for _ in range(4):
        process.run_timed(2, [1, 0], 10.0)
        found.append(faults())
    process.close()
    server.close()
    slots.close()
    assert found[-1] - found[0] < 100, "a call that maps its results takes 500 of them, or four huge ones"


def test_a_child_that_is_killed_is_a_harness_failure(server: EagerServer, slots: SharedSlots) -> None:
    process = start(server, slots)
    assert process._pid is not None
    os.kill(process._pid, signal.SIGKILL)
    with pytest.raises(DeviceError, match="times eager PyTorch on test"):
        process.run_timed(2, [0], 10.0)


def test_nothing_is_left_when_the_handles_are_gone(slots: SharedSlots) -> None:
    server = EagerServer()
    process = start(server, slots)
    pids = [process._pid, server._process.pid]
    process._channel.close()
    server.close()
    until(lambda: not any(p is not None and psutil.pid_exists(p) for p in pids), "they have ended", 10)


def test_devices_share_a_server_until_it_dies(slots: SharedSlots) -> None:
    server = eager_server()
    assert eager_server() is server
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait(10)
    other = eager_server()
    assert other is not server
    process = start(other, slots)
    assert len(process.run_timed(2, [0], 10.0).us) == 1
    process.close()


def test_it_begins_to_start_before_torch_is_imported() -> None:
    script = "import sys\nfrom kevin.judge.evaluate import start_early\nfrom kevin.core.protocol import JudgeProtocol\n"
    script += "start_early(JudgeProtocol(device='cpu'))\nfrom kevin.judge.timing import eager\n"
    script += "print(len(eager._servers), 'torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "1 False\n"
