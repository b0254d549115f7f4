"""Where `eager` has PyTorch timed: a server that has imported torch, and its children, which time one task each.

Run as a module. It ends with the process that started it, and so do its children.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import torch

from kevin.judge.correctness.model import ReferenceModel
from kevin.judge.inside.fork_server import serve
from kevin.judge.inside.host import ColdClock, last_level_bytes
from kevin.judge.sandbox.slots import SharedSlots, mapped_buffer
from kevin.judge.timing.eager import Job

_SETTLE_S = 0.25


def _time_calls(channel: Connection, shared_fd: int, job: Job) -> None:
    os.sched_setaffinity(0, job.cores)
    torch.set_num_threads(job.protocol.num_threads)
    reference = ReferenceModel(job.task, job.protocol, job.weight_seed)
    reference.keeps_inputs = job.keeps_inputs
    slots = SharedSlots(
        reference.spec, job.num_slots, lambda num_bytes: mapped_buffer(shared_fd, num_bytes), as_given=job.as_given
    )
    views = [[job.scalars[i] if v is None else v for i, v in enumerate(slot)] for slot in slots.inputs]
    clock = ColdClock(last_level_bytes(), job.protocol.num_threads)
    channel.send(os.getpid())

    def timed(warm: int, order: list[int], cold: bool) -> tuple[list[int], list[int]]:
        waited_ns: list[int] = []

        def noting(call: Callable[[], object]) -> int:
            ns = clock(call, cold)
            waited_ns.append(clock.waited_ns)
            return ns

        return reference.run_timed(noting, views[warm], [views[i] for i in order])[0], waited_ns

    is_new = True
    while True:
        warm, order, cold = channel.recv()
        reference.set_parameters(slots.parameters[warm])
        if is_new:
            _settle_memory(partial(timed, warm, order, cold=False))
        is_new = False
        channel.send(timed(warm, order, cold))


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
