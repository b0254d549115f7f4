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
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Frozen, Task
from kevin.judge.correctness.model import ReferenceModel
from kevin.judge.inside.forks import serve
from kevin.judge.inside.host import ColdClock, last_level_bytes
from kevin.judge.sandbox.forking import ForkingProcess
from kevin.judge.sandbox.preemption import Calls
from kevin.judge.sandbox.slots import SharedSlots, mapped_buffer

_START_TIMEOUT_S = 120.0
_SETTLE_S = 0.25


class Job(Frozen):
    """What a child times; its slots and its channel come as descriptors."""

    task: Task
    protocol: JudgeProtocol
    num_slots: int
    scalars: dict[int, Any]
    weight_seed: int
    cores: tuple[int, ...]


class EagerServer(ForkingProcess):
    """Starts children that have torch already. Use `start`; `eager_server` gives this process's own."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__([sys.executable, "-m", "kevin.judge.timing.eager"], {**os.environ, **environment})

    def start(self, job: Job, shared_fd: int) -> EagerProcess:
        """Raises DeviceError when the server or the child has died."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self.request(pickle.dumps(job), [shared_fd, theirs.fileno()])
        except OSError:
            ours.close()
            said = self.last_words() or "it does not listen"
            raise DeviceError(f"the process that times eager PyTorch is gone: {said}".strip()) from None
        return EagerProcess(job.task.id, Connection(ours.detach()), self.words)


_servers: dict[tuple[tuple[str, str], ...], EagerServer] = {}
_finding = threading.Lock()


def eager_server(environment: dict[str, str]) -> EagerServer:
    """This process's own with these settings, for all its devices: started on first use, and again when it has died."""
    key = tuple(sorted(environment.items()))
    with _finding:
        if key not in _servers or not _servers[key].is_alive:
            _servers[key] = EagerServer(environment)
        return _servers[key]


class EagerProcess:
    """The host's handle on one child. Every method raises DeviceError when the child has died or hangs."""

    def __init__(self, task_id: str, channel: Connection, words: Callable[[], str]) -> None:
        """``words``: what its server and that one's children wrote to stderr."""
        self._task_id, self._channel, self._words = task_id, channel, words
        self._pid: int | None = None
        self._pid = self._receive(_START_TIMEOUT_S)

    def _receive(self, timeout_s: float) -> Any:
        with contextlib.suppress(EOFError, OSError):
            if self._channel.poll(timeout_s):
                return self._channel.recv()
        self.close()
        raise DeviceError(f"the process that times eager PyTorch on {self._task_id} ended or hangs: {self._words()}")

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


def _work(content: bytes, fds: list[int]) -> None:
    shared_fd, channel = fds
    with contextlib.suppress(EOFError, OSError):
        _time_calls(Connection(channel), shared_fd, pickle.loads(content))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), 2, _work)
