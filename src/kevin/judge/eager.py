"""Eager PyTorch timed in a process of its own, one a task, on the host.

A judge's process lives long and holds many tasks' tensors; what its heap gives to a new tensor, whole huge pages or
scattered small ones, is worth a fifth of a call. A candidate's process is young. So the reference is timed in a young
process too: forked from a server that has imported torch and done nothing else, with the memory settings of a cell.
It is trusted code: it runs outside of any sandbox, and on the slots that the candidate reads.

Run as a module this file is the server: it ends with the process that started it, and so do its children.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Frozen, Task
from kevin.judge.inside.host import ColdClock, last_level_bytes
from kevin.judge.memory import SharedSlots, mapped_buffer
from kevin.judge.preemption import Calls
from kevin.judge.reference import ReferenceModel

_START_TIMEOUT_S = 120.0
_LENGTH_BYTES = 8
_SETTLE_S = 0.25


class Job(Frozen):
    """What a child times; its slots and its channel come as descriptors."""

    task: Task
    protocol: JudgeProtocol
    num_slots: int
    scalars: dict[int, Any]
    weight_seed: int
    cores: tuple[int, ...]


class EagerServer:
    """Starts children that have torch already. Use `start`; `close` ends the server, not its children."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kevin.judge.eager", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()

    def start(self, job: Job, shared_fd: int) -> EagerProcess:
        """Raises DeviceError when the server or the child has died."""
        ours, theirs = socket.socketpair()
        content = pickle.dumps(job)
        try:
            with theirs:
                length = len(content).to_bytes(_LENGTH_BYTES, "little")
                socket.send_fds(self._socket, [length], [shared_fd, theirs.fileno()])
                self._socket.sendall(content)
        except OSError as e:
            ours.close()
            raise DeviceError(f"the process that times eager PyTorch is gone: {e}") from e
        return EagerProcess(job.task.id, Connection(ours.detach()))

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


class EagerProcess:
    """The host's handle on one child. Every method raises DeviceError when the child has died or hangs."""

    def __init__(self, task_id: str, channel: Connection) -> None:
        self._task_id, self._channel = task_id, channel
        self._pid: int | None = None
        self._pid = self._receive(_START_TIMEOUT_S)

    def _receive(self, timeout_s: float) -> Any:
        with contextlib.suppress(EOFError, OSError):
            if self._channel.poll(timeout_s):
                return self._channel.recv()
        self.close()
        raise DeviceError(f"the process that times eager PyTorch on {self._task_id} ended or hangs")

    def run_timed(self, warm: int, order: list[int], timeout_s: float) -> Calls:
        """Wall time of one call on each slot of ``order``, caches emptied, after an untimed one on ``warm``."""
        try:
            self._channel.send((warm, order))
        except OSError as e:
            raise DeviceError(f"the process that times eager PyTorch on {self._task_id} is gone: {e}") from e
        ns, waited_ns = self._receive(timeout_s)
        return Calls([n / 1e3 for n in ns], [n / 1e3 for n in waited_ns])

    def close(self) -> None:
        self._channel.close()
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._pid = None


def _time_calls(channel: Connection, shared_fd: int, job: Job) -> None:
    os.sched_setaffinity(0, job.cores)
    torch.set_num_threads(job.protocol.num_threads)
    reference = ReferenceModel(job.task, job.protocol, job.weight_seed)
    slots = SharedSlots(reference.spec, job.num_slots, lambda num_bytes: mapped_buffer(shared_fd, num_bytes))
    views = [[job.scalars[i] if v is None else v for i, v in enumerate(slot)] for slot in slots.inputs]
    clock = ColdClock(last_level_bytes(), job.protocol.num_threads)
    channel.send(os.getpid())
    is_new = True
    while True:
        warm, order = channel.recv()
        reference.set_parameters(slots.parameters[warm])

        def timed(warm: int = warm, order: list[int] = order) -> tuple[list[int], list[int]]:
            waited_ns: list[int] = []

            def noting(call: Callable[[], object]) -> int:
                ns = clock(call)
                waited_ns.append(clock.waited_ns)
                return ns

            return reference.run_timed(noting, views[warm], [views[i] for i in order], 0)[0], waited_ns

        if is_new:
            _settle_memory(timed)
        is_new = False
        channel.send(timed())


def _settle_memory(work: Callable[[], object]) -> None:
    """Repeat it until it maps no new memory, which costs more than most calls compute."""
    end, before, after = time.monotonic() + _SETTLE_S, -1, 0
    while after != before and time.monotonic() < end:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        work()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _read(source: socket.socket, num_bytes: int) -> bytes:
    content = b""
    while len(content) < num_bytes:
        chunk = source.recv(num_bytes - len(content))
        if not chunk:
            raise EOFError
        content += chunk
    return content


def _serve(source: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        length, descriptors, *_ = socket.recv_fds(source, _LENGTH_BYTES, 2)
        if not length:
            return
        content = _read(source, int.from_bytes(length, "little"))
        if os.fork() == 0:
            source.close()
            with contextlib.suppress(EOFError, OSError):
                _time_calls(Connection(descriptors[1]), descriptors[0], pickle.loads(content))
            os._exit(0)
        for fd in descriptors:
            os.close(fd)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
