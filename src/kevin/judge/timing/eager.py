"""Eager PyTorch timed in a process of its own, one a task, on the host.

A judge's process lives long and holds many tasks' tensors; what its heap gives to a new tensor, whole huge pages or
scattered small ones, is worth a fifth of a call. A candidate's process is young. So the reference is timed in a young
process too: forked from a server that has imported torch and done nothing else, with the memory settings of a cell.
It is trusted code: it runs outside of any sandbox, and on the slots that the candidate reads.

This is the judge's side, which needs no torch: the server, `eager_child`, can import it while a judge does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Frozen, Task
from kevin.judge.sandbox.preemption import Calls
from kevin.judge.sandbox.process import ForkingProcess

_START_TIMEOUT_S = 120.0

HEAP = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Memory settings of whatever is timed on a host.

Freed memory is kept and reused, as PyTorch's allocator does on a GPU: eager is not charged for page faults. Huge pages
for the whole heap, because the luck of physical page placement is worth up to 10 % of a call otherwise. Not PyTorch's
own huge pages (THP_MEM_ALLOC_ENABLE): as these are aligned, its first results all come from new memory.
"""


class Job(Frozen):
    """What a child times; its slots and its channel come as descriptors."""

    task: Task
    protocol: JudgeProtocol
    num_slots: int
    as_given: bool
    """As of `SharedSlots`."""
    scalars: dict[int, Any]
    keeps_inputs: bool
    weight_seed: int
    cores: tuple[int, ...]


class EagerServer(ForkingProcess):
    """Starts children that have torch already. Use `start`; `eager_server` gives this process's own."""

    def __init__(self) -> None:
        super().__init__([sys.executable, "-m", "kevin.judge.timing.eager_child"], {**os.environ, **HEAP})

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


_servers: list[EagerServer] = []
_finding = threading.Lock()


def eager_server() -> EagerServer:
    """This process's own, for all its devices: started on first use, and again when it has died. Returns at once."""
    with _finding:
        if not _servers or not _servers[-1].is_alive:
            _servers[:] = [EagerServer()]
        return _servers[-1]


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

    def run_timed(self, warm: int, order: list[int], timeout_s: float, *, cold: bool = True) -> Calls:
        """Wall time of one call on each slot of ``order``, after an untimed one on ``warm``; caches emptied if cold."""
        try:
            self._channel.send((warm, order, cold))
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
