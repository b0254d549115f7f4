"""The CPU as a judging device: a set of leased cores, the trusted references, and one cell at a time."""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections import OrderedDict
from typing import Any

import torch

from kevin.core.abi import LAUNCHER
from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import cpu_name
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.judge.build import Build
from kevin.judge.cell import CandidateFailed, Cell
from kevin.judge.compare import Comparison, compare
from kevin.judge.memory import SharedSlots, slot_bytes
from kevin.judge.reference import ReferenceCache, ReferenceTask
from kevin.judge.sandbox import detect_isolation
from kevin.judge.timing import Measured, PairedTimer

_START_TIMEOUT_S = 60.0
_SLOT_BUDGET_BYTES = 96 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
MALLOC_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""Freed memory is kept and reused, as PyTorch's allocator does on a GPU: eager is not charged for page faults. Huge pages
for PyTorch's own tensors, because the luck of physical page placement is worth up to 10 % of a call otherwise."""
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read by torch at its first large allocation


def device_cores(num_threads: int) -> list[int]:
    """The cores that run kernels: the last ``num_threads`` of those this process may use."""
    return sorted(os.sched_getaffinity(0))[-num_threads:]


class CpuDevice:
    """Judges built kernels on this process's leased cores. Owns references, shared slots and their private copies."""

    def __init__(self, protocol: JudgeProtocol) -> None:
        self.protocol = protocol
        self.name = cpu_name()
        self.isolation = detect_isolation()
        self.cores = device_cores(protocol.num_threads)
        os.sched_setaffinity(0, self.cores)
        torch.set_num_threads(protocol.num_threads)
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        self.references = ReferenceCache(protocol)
        self._slots: OrderedDict[str, tuple[SharedSlots, list[list[Any]]]] = OrderedDict()
        self._copy_bytes_per_us = self._measure_bandwidth()

    @staticmethod
    def _measure_bandwidth() -> float:
        """Bytes read and written a microsecond by a copy that fits in the caches: nothing can stream faster."""
        a, b = torch.ones(1 << 15), torch.empty(1 << 15)
        times = []
        for _ in range(200):
            start = time.perf_counter_ns()
            for _ in range(10):
                b.copy_(a)
            times.append((time.perf_counter_ns() - start) / 1e4)
        return 2 * a.nbytes / min(times)

    def _slots_for(self, reference: ReferenceTask) -> tuple[SharedSlots, list[list[Any]]]:
        """Shared slots of a task and the judge's private inputs behind them, reused from candidate to candidate."""
        digest = reference.task.digest
        found = self._slots.pop(digest, None)
        if found is None:
            per_slot = slot_bytes(reference.spec)
            t = self.protocol
            affordable = _SLOT_BUDGET_BYTES // max(per_slot, 1)
            num = max(2, t.num_trials, min(t.timing.max_calls_per_round + 1, affordable))
            private = [
                [x.clone() if isinstance(x, torch.Tensor) else x for x in reference.trials[0].inputs]
                for _ in range(num)
            ]
            found = (SharedSlots(reference.spec, num), private)
        self._slots[digest] = found
        while len(self._slots) > 4:
            _, (old, _) = self._slots.popitem(last=False)
            old.close()
        return found

    def judge(self, task: Task, kernel: Kernel, build: Build, key: str, flags: tuple[str, ...] = ()) -> Verdict:
        """Run, check and time one successfully built kernel.

        Raises:
            HarnessError: the sandbox or the device failed. TaskError: the reference itself does not run.
        """
        os.sched_setaffinity(0, self.cores)  # the calling thread may be a new one
        reference = self.references.get(task)
        found = _Findings()
        try:
            self._run(reference, kernel, build, found)
        except CandidateFailed as e:
            found.outcome, found.reason, found.message = e.outcome, e.reason, e.message
        measured = found.measured if found.outcome in (Outcome.CORRECT, Outcome.QUARANTINED) else None
        return Verdict(
            key=key,
            task_digest=task.digest,
            kernel_digest=kernel.digest,
            protocol_digest=self.protocol.digest,
            device_name=self.name,
            outcome=found.outcome,
            reason=found.reason,
            message=found.message,
            flags=flags,
            trials_passed=found.trials_passed,
            num_trials=self.protocol.num_trials,
            max_abs_error=found.max_abs_error,
            max_rel_error=found.max_rel_error,
            timing=measured.kernel if measured else None,
            reference_timing=measured.reference if measured else None,
            rounds=measured.rounds if measured else (),
            seconds={"build": build.seconds, **found.seconds},
            details={"isolation": self.isolation.value, "guards": "+".join(found.guards), **found.details},
        )

    def _cell(self, kernel: Kernel, build: Build, reference: ReferenceTask, slots: SharedSlots) -> Cell:
        private = [t.inputs for t in reference.trials] + [reference.trials[0].inputs] * slots.num_slots
        setup: dict[str, Any] = {
            "shared_bytes": slots.total_bytes,
            "memory_bytes": self.protocol.memory_mb << 20,
            "num_threads": self.protocol.num_threads,
            "slots": [slots.arguments(i, private[i]) for i in range(slots.num_slots)],
            "num_outputs": len(reference.spec.outputs),
        }
        environment = {
            "OMP_NUM_THREADS": str(self.protocol.num_threads),
            "OMP_WAIT_POLICY": "passive",
            **MALLOC_ENVIRONMENT,
        }
        assert build.path is not None
        if kernel.dialect == "c_abi":
            setup |= {"library": build.path, "launcher": LAUNCHER}
            script, flags = "native.py", ["-I", "-S"]
        else:
            setup |= {
                "source": kernel.source,
                "build_folder": build.path,
                "weight_seed": reference.weight_seed,
                "init_inputs": _jsonable(reference),
                "num_inputs": len(reference.spec.inputs),
                "parameter_names": [n for n, _ in _named_state(reference.model)],
            }
            script, flags = "module.py", ["-I"]
        return Cell(
            script,
            setup,
            isolation=self.isolation,
            shared_fd=slots.fd,
            read_only=[build.path],
            python_flags=tuple(flags),
            environment=environment,
            max_output_bytes=self.protocol.max_output_kb << 10,
        )

    def _run(self, reference: ReferenceTask, kernel: Kernel, build: Build, found: _Findings) -> None:
        slots, private = self._slots_for(reference)
        start = time.perf_counter()
        try:
            with self._cell(kernel, build, reference, slots) as cell:
                reply = cell.request(None, _START_TIMEOUT_S if kernel.dialect == "load_inline" else 20.0)
                if "error" in reply:
                    raise CandidateFailed(Outcome.RUNTIME_ERROR, "load_error", str(reply["error"])[:2000])
                found.guards = [str(g) for g in reply.get("guards", [])]
                kernel_us = self._check(cell, reference, slots, found)
                found.seconds["check"] = time.perf_counter() - start
                start = time.perf_counter()
                timer = PairedTimer(cell, reference, slots, private, self.protocol)
                found.measured = timer.run(kernel_us)
                found.outcome = Outcome.CORRECT
                found.seconds["time"] = time.perf_counter() - start
        finally:
            found.seconds.setdefault("check", time.perf_counter() - start)
        self._bound(reference, found)

    def _check(self, cell: Cell, reference: ReferenceTask, slots: SharedSlots, found: _Findings) -> float:
        """All correctness trials, in slots of their own. Returns the kernel's median time of a call, us."""
        deadline = time.monotonic() + self.protocol.run_timeout_s
        elapsed: list[int] = []
        for i, trial in enumerate(reference.trials):
            slots.fill(i, trial.inputs, trial.parameters)
            slots.poison_outputs(i)
            remaining_s = max(0.01, deadline - time.monotonic())
            elapsed += cell.call([], [i], remaining_s, load_parameters=True)
            if name := slots.changed_argument(i, trial.inputs, trial.parameters):
                raise CandidateFailed(Outcome.INCORRECT, "input_mutated", f"it changes its argument {name}")
            result = self._compare(slots, i, trial.outputs)
            found.add(result)
            if not result.passed:
                raise CandidateFailed(Outcome.INCORRECT, result.reason or "wrong_values", result.message)
            found.trials_passed += 1
        return statistics.median(elapsed) / 1e3

    def _compare(self, slots: SharedSlots, slot: int, expected: list[torch.Tensor]) -> Comparison:
        worst = Comparison(passed=True)
        for spec, out, ref in zip(slots.spec.outputs, slots.outputs[slot], expected, strict=True):
            worst = compare(spec.name, out, ref, atol=self.protocol.atol, rtol=self.protocol.rtol)
            if not worst.passed:
                return worst
        return worst

    def _bound(self, reference: ReferenceTask, found: _Findings) -> None:
        """Quarantine what is faster than touching its own outputs once at the speed of the caches."""
        if found.measured is None:
            return
        written = sum(s.num_elements * reference.trials[0].outputs[i].element_size()
                      for i, s in enumerate(reference.spec.outputs))  # fmt: skip
        bound_us = written / self._copy_bytes_per_us / 2
        found.details["bound_us"] = bound_us
        if found.measured.kernel.median_us < bound_us:
            found.outcome, found.reason = Outcome.QUARANTINED, "faster_than_possible"
            found.message = (
                f"{found.measured.kernel.median_us:.3g} us a call is less than writing the output once can take "
                f"({bound_us:.3g} us)"
            )


class _Findings:
    """What is known so far of one candidate; mutable only while it is being judged."""

    def __init__(self) -> None:
        self.outcome = Outcome.RUNTIME_ERROR
        self.reason: str | None = None
        self.message = ""
        self.trials_passed = 0
        self.max_abs_error: float | None = None
        self.max_rel_error: float | None = None
        self.measured: Measured | None = None
        self.seconds: dict[str, float] = {}
        self.details: dict[str, float | int | str | None] = {}
        self.guards: list[str] = []

    def add(self, result: Comparison) -> None:
        for name in ("max_abs_error", "max_rel_error"):
            new, old = getattr(result, name), getattr(self, name)
            if new is not None and (old is None or new > old):
                setattr(self, name, new)


def _named_state(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if b.dtype.is_floating_point)]


def _jsonable(reference: ReferenceTask) -> Any:
    """Constructor arguments for the cell, as base64 of torch.save where they are not plain JSON."""
    import base64
    import io

    buffer = io.BytesIO()
    torch.save(reference.init_inputs, buffer)
    return base64.b64encode(buffer.getvalue()).decode()
