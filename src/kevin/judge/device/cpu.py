"""The CPU as a judging device: a set of leased cores that kernel and reference share in turns."""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import cpu_name
from kevin.core.scratch import lock_held
from kevin.core.types import Kernel
from kevin.judge.compile.compilers import runtime_folders
from kevin.judge.compile.native import Build
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.device.hardware import Hardware
from kevin.judge.inside.host import ColdClock, last_level_bytes
from kevin.judge.sandbox.cell import Cell
from kevin.judge.sandbox.preemption import Calls
from kevin.judge.sandbox.slots import SharedBuffer, SharedSlots, anonymous_buffer
from kevin.judge.timing.eager import HEAP, EagerProcess, Job, eager_server

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def device_cores(num_threads: int) -> list[int]:
    """The cores that run kernels: the last ``num_threads`` of those this process may use."""
    return sorted(os.sched_getaffinity(0))[-num_threads:]


class CpuHardware(Hardware):
    """Pins the calling thread to the leased cores; cells inherit them and cannot leave."""

    slot_budget_bytes = 96 << 20
    max_tasks = 4

    def __init__(self, protocol: JudgeProtocol) -> None:
        super().__init__(protocol)
        self.name = cpu_name()
        self.cores = device_cores(protocol.num_threads)
        name = f"kevin-cores-{os.getuid()}-{'-'.join(map(str, self.cores))}.lock"
        self._lock_path = Path(tempfile.gettempdir()) / name
        self.prepare_thread()
        torch.set_num_threads(protocol.num_threads)
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        self._copy_bytes_per_us = _cache_bandwidth()
        self._eager: dict[SharedSlots, EagerProcess] = {}

    @cached_property
    def _clock(self) -> ColdClock:
        return ColdClock(last_level_bytes(), self.protocol.num_threads)

    def prepare(self) -> None:
        self.prepare_thread()

    def prepare_thread(self) -> None:
        os.sched_setaffinity(0, self.cores)

    def allocate(self, num_bytes: int) -> SharedBuffer:
        return anonymous_buffer(num_bytes)

    @contextmanager
    def lease(self, *, exclusive: bool) -> Iterator[None]:
        """One candidate at a time runs on these cores: whose `turn` it is."""
        yield

    @contextmanager
    def turn(self) -> Iterator[None]:
        with lock_held(os.open(self._lock_path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)):
            yield

    def open_cell(self, kernel: Kernel, build: Build) -> Cell:
        assert build.path is not None
        self.prepare_thread()
        native = kernel.dialect == "c_abi"
        return Cell(
            "native.py" if native else "module.py",
            isolation=self.isolation,
            read_only=[build.path, *(runtime_folders(kernel.language, self.isolation) if native else [])],
            environment={
                "OMP_NUM_THREADS": str(self.protocol.num_threads),
                "OMP_WAIT_POLICY": "passive",
                **HEAP,
            },
            max_output_bytes=self.protocol.max_output_kb << 10,
            forked=not native,
        )

    def clock(self, call: Any) -> int:
        return self._clock(call)

    def time_reference(
        self, reference: ReferenceTask, slots: SharedSlots, views: list[list[Any]], order: list[int], keep: list[int]
    ) -> tuple[Calls, list[list[torch.Tensor]]]:
        """In a young process of its own, see `eager`; the expected outputs are made here, out of its reach."""
        if slots not in self._eager:
            job = Job(
                task=reference.task.model_copy(update={"spec": reference.spec}),  # not worked out again in there
                protocol=self.protocol,
                num_slots=slots.num_slots,
                as_given=slots.as_given,
                scalars=reference.scalars,
                keeps_inputs=reference.keeps_inputs is not False,
                weight_seed=reference.weight_seed,
                cores=tuple(self.cores),
            )
            self._eager[slots] = eager_server().start(job, slots.fd)
        warm, timeout_s = slots.spare(len(order)), self.protocol.run_timeout_s
        calls = self._eager[slots].run_timed(warm, order, timeout_s, cold=bool(keep))
        parameters = reference.trials[0].parameters
        return calls, [reference.forward(views[slot], parameters) for slot in keep]

    def forget(self, slots: SharedSlots) -> None:
        if (process := self._eager.pop(slots, None)) is not None:
            process.close()

    def bound_us(self, reference: ReferenceTask) -> float:
        """Writing the outputs once at the speed of the caches."""
        return sum(o.nbytes for o in reference.trials[0].outputs) / self._copy_bytes_per_us / 2


def _cache_bandwidth() -> float:
    """Bytes read and written a microsecond by a copy that fits in the caches: nothing can stream faster."""
    a, b = torch.ones(1 << 15), torch.empty(1 << 15)
    times = []
    for _ in range(200):
        start = time.perf_counter_ns()
        for _ in range(10):
            b.copy_(a)
        times.append((time.perf_counter_ns() - start) / 1e4)
    return 2 * a.nbytes / min(times)
