"""An NVIDIA GPU as a judging device: contexts are made side by side, kernels checked and timed one at a time.

Tensors live in device memory that this process allocates and exports as a file descriptor, so inputs are made on the
GPU and never copied through the host, and expected values never leave this process. Where several processes judge on
one GPU, timing holds an exclusive file lock of it, correctness checks a shared one.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from kevin.core.errors import DeviceError, DeviceFullError, DeviceLostError, SandboxError, first_line
from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import jobs_side_by_side
from kevin.core.scratch import lock_held
from kevin.core.types import Dialect, Kernel, Outcome, Task, TaskSpec, tensor_bytes
from kevin.judge.compile.compilers import runtime_folders
from kevin.judge.compile.native import Build, check_architecture
from kevin.judge.correctness.checks import Findings
from kevin.judge.correctness.reference import ReferenceTask, does_not_fit
from kevin.judge.device.hardware import Hardware, HoldFor
from kevin.judge.device.tools import (
    OwnKernels,
    find_tool,
    first_violation,
    profiler_command,
    read_profile,
    sanitizer_command,
    tool_paths,
)
from kevin.judge.inside.cuda import CudaError, DeviceBytes, Gpu
from kevin.judge.sandbox.cell import CandidateFailed, Cell, abuse, prepare_forks
from kevin.judge.sandbox.isolation import gpu_minor
from kevin.judge.sandbox.slots import SharedBuffer

log = logging.getLogger(__name__)

_MIN_KERNEL_US = 0.5
_BANDWIDTH_SLACK, _UNKNOWN_SLACK = 1.1, 1.3
"""Over a copy's bandwidth, than which reading alone was seen 18 % faster. Where the memory's own is known, and not."""
_MEMORY_CLOCK_RATE, _MEMORY_BUS_WIDTH = 36, 37
"""Of a device's attributes: in kHz, and in bits."""
_PROFILER_START_S = 30.0
_SANITIZER_S = 120.0
_MOST_FOREIGN = 0.25
"""Of a candidate's time on the device, in library kernels that compute."""
_CONTEXT_BYTES = 1 << 30
"""Of a process, with what it flushes the L2 with."""
_SPARE_BYTES = 1 << 29
"""Of a process with a context and nothing else."""
_SPARE_SHARE, _SPARE_FREE_SHARE = 0.1, 0.25
"""That all spare cells take, of the memory and of what nobody has of it."""
_OUT_OF_MEMORY = 2
_SMALL_SHARE = 0.05
"""Of the memory: what needs less does not wait for what needs more."""
_LEFT_SHARE = 0.05


def _start_cuda() -> None:
    """Raises DeviceError with torch's own reason: no driver, one that is too old, no GPU, or a CPU build of torch."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as e:
        reason = first_line(e)
        raise DeviceError(
            f"torch can use no NVIDIA GPU: {reason}. Check that nvidia-smi lists one, that its driver is recent enough "
            f"for CUDA {torch.version.cuda or '(this torch is a build without CUDA)'}, or use device cpu"
        ) from e


def _unclaimed_bytes() -> float:
    free, total = torch.cuda.mem_get_info()
    return free - _LEFT_SHARE * total


class GpuHardware(Hardware):
    """The first visible GPU."""

    slot_budget_bytes = 1 << 30
    least_slots = 1  # a tensor that is so large leaves nothing of itself in a cache
    max_tasks = 32
    shares_memory = True

    def __init__(self, protocol: JudgeProtocol) -> None:
        _start_cuda()
        properties = torch.cuda.get_device_properties(0)
        self.small_bytes = _SMALL_SHARE * properties.total_memory
        self.starts_at_once = max(1, Hardware.starts_at_once // jobs_side_by_side())  # all of a host's share its driver
        self._most_spare_bytes = _SPARE_SHARE * properties.total_memory
        super().__init__(protocol)
        self.name = properties.name
        check_architecture(protocol, (properties.major, properties.minor))
        if protocol.profiler == "ncu":
            find_tool("ncu")
        if protocol.memcheck:
            find_tool("compute-sanitizer")
        uuid = f"GPU-{properties.uuid}"
        self._uuid = uuid if gpu_minor(uuid) is not None else None
        """Of the GPU, where the driver tells which device file is its own."""
        self._lock_path = Path(tempfile.gettempdir()) / f"kevin-gpu-{properties.uuid}.lock"
        torch.zeros(1, device="cuda")
        try:
            self._gpu = Gpu()
        except (OSError, CudaError) as e:
            raise DeviceError(f"the CUDA driver is not usable: {e}") from e
        self._gpu.stream = ctypes.c_void_p(0)  # torch's default stream

    @contextmanager
    def attributed(self, task: Task) -> Iterator[None]:
        """Raises DeviceLostError when this process can use its GPU no longer, DeviceFullError when memory is short."""
        try:
            yield
        except (torch.OutOfMemoryError, torch.AcceleratorError, CudaError) as e:
            if isinstance(e, torch.OutOfMemoryError) or getattr(e, "code", None) == _OUT_OF_MEMORY:
                raise does_not_fit(task, e) from None
            raise DeviceLostError(
                f"the GPU failed in the judge itself, not in a candidate: {first_line(e)}. Look at nvidia-smi "
                f"and at dmesg for Xid errors; verdicts so far are kept, start again to go on"
            ) from e

    def prepare_thread(self) -> None:
        torch.set_num_threads(1)
        torch.cuda.set_device(0)
        self._gpu.make_current()

    def allocate(self, num_bytes: int) -> SharedBuffer:
        torch.cuda.empty_cache()  # of what the reference took to make, which its candidates' processes need
        try:
            pointer, size, fd, handle = self._gpu.allocate_shared(num_bytes)
        except CudaError as e:
            raise DeviceFullError(f"no GPU memory for {num_bytes >> 20} MiB of shared tensors: {e}") from e
        data = torch.as_tensor(DeviceBytes(pointer, num_bytes), device="cuda")

        def release() -> None:
            torch.cuda.synchronize()
            self._gpu.free_shared(pointer, size, handle)

        return SharedBuffer(data, fd, release)

    def held_bytes(self, cell: Cell) -> int | None:
        """What is taken of the device, by all: other processes start and end meanwhile."""
        free, total = torch.cuda.mem_get_info()
        return total - free

    def rest(self) -> None:
        torch.cuda.empty_cache()

    def free_bytes(self, enough: float = math.inf) -> float:
        """But for some that whoever else works on this GPU may come to need."""
        if (free := _unclaimed_bytes()) < enough:
            torch.cuda.empty_cache()
            free = _unclaimed_bytes()
        return free

    def most_spares(self) -> int:
        return int(min(self._most_spare_bytes, _SPARE_FREE_SHARE * max(0.0, _unclaimed_bytes())) / _SPARE_BYTES)

    def process_bytes(self, spec: TaskSpec, working_bytes: int, dialect: Dialect) -> int:
        """What a call takes if it works as eager does, and the results of one call beside it, of a module two."""
        outputs = tensor_bytes(spec.outputs)
        beside = outputs if dialect == "c_abi" else 2 * outputs + tensor_bytes(spec.parameters)
        return _CONTEXT_BYTES + max(working_bytes, outputs) + beside

    @contextmanager
    def lease(self, *, exclusive: bool) -> Iterator[None]:
        fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with lock_held(fd, exclusive=exclusive):
            yield
            torch.cuda.synchronize()

    def prepare(self) -> None:
        """Have a fork server begin to import."""
        prepare_forks("module.py", self.isolation, self._environment(native=False))

    def warm_up(self) -> None:
        """Also load the libraries that convolutions need."""
        super().warm_up()
        image, weight = torch.zeros(1, 8, 8, 8, device="cuda"), torch.zeros(8, 8, 3, 3, device="cuda")
        torch.nn.functional.conv2d(image, weight)
        torch.cuda.synchronize()

    def _environment(self, *, native: bool) -> dict[str, str]:
        return {
            "CUDA_MODULE_LOADING": "EAGER" if native else "LAZY",
            # a context has a hardware queue for each, and making one is what a kernel that runs for 50 us costs
            **({"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if native else {}),
            **{k: v for k, v in os.environ.items() if k in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")},
            **({"CUDA_VISIBLE_DEVICES": self._uuid} if self._uuid else {}),  # its number may be another inside
        }

    def open_cell(self, kernel: Kernel, build: Build) -> Cell:
        assert build.path is not None
        return self._open(kernel.dialect, [build.path])

    def open_spare(self, folder: Path) -> Cell:
        return self._open("c_abi", [str(folder)])

    def _open_under(self, program: str, command: list[str], folder: str, kernel: Kernel, build: Build) -> Cell:
        """With a tool around it, which writes into a folder."""
        assert build.path is not None
        return self._open(kernel.dialect, [build.path, *tool_paths(program)], [folder], command)

    def _open(
        self, dialect: Dialect, read_only: list[str], writable: Sequence[str] = (), prefix: list[str] | None = None
    ) -> Cell:
        native = dialect == "c_abi"
        return Cell(
            "native_cuda.py" if native else "module.py",
            isolation=self.isolation,
            gpu=self._uuid or True,
            read_only=[*read_only, *(runtime_folders("cuda", self.isolation) if native else [])],
            writable=list(writable),
            prefix=prefix,
            environment=self._environment(native=native),
            max_output_bytes=self.protocol.max_output_kb << 10,
            forked=not native and prefix is None,
        )

    def prove(self, cell: Cell, kernel: Kernel, found: Findings, hold_for: HoldFor) -> None:
        """Profile one call of a ``load_inline`` module: whose kernels ran, with what shares of the time.

        Raises:
            CandidateFailed: none of its own, or too much of others', and the rule ``torch_compute`` is enforced.
        """
        if kernel.dialect != "load_inline":
            return
        start = time.perf_counter()
        cell.raise_for(cell.request({"profile": None}, _PROFILER_START_S))
        with hold_for(cell), self.lease(exclusive=False):
            reply = cell.request({"profile": 0}, self.protocol.run_timeout_s)
        cell.raise_for(reply)
        found.seconds["profile"] = time.perf_counter() - start
        try:
            listed = [(str(name), float(us)) for name, us in reply.get("kernels", []) if isinstance(us, int | float)]
        except (TypeError, ValueError, OverflowError):
            raise abuse() from None
        shares = OwnKernels(kernel.source).shares(listed)
        found.details["own_kernel_share"] = shares.own
        if shares.own > 0 and shares.foreign <= _MOST_FOREIGN:
            return
        found.flags.add("torch_compute")
        if "torch_compute" not in found.rules:
            return
        if shares.own == 0:
            raise CandidateFailed(Outcome.REFUSED, "own_kernels_did_not_run", "none of its own CUDA kernels ran")
        text = f"{shares.foreign:.0%} of its time on the device is a library's: {shares.largest_foreign[:120]}"
        raise CandidateFailed(Outcome.REFUSED, "library_kernels", text)

    def check_memory(
        self, kernel: Kernel, build: Build, setup: dict[str, Any], shared_fd: int, found: Findings
    ) -> None:
        """Under compute-sanitizer, every tensor in an allocation of its own."""
        program = find_tool("compute-sanitizer")
        with tempfile.TemporaryDirectory(prefix="kevin-memcheck-") as folder, self.lease(exclusive=True):
            report = Path(folder) / "report.txt"
            with self._open_under(program, sanitizer_command(program, report), folder, kernel, build) as cell:
                cell.prepare(setup | {"own_allocations": True}, shared_fd, _SANITIZER_S)
                cell.raise_for(cell.load(_SANITIZER_S))
                with suppress(CandidateFailed):  # the report says why
                    cell.call([], [0], _SANITIZER_S, burst=1)
                    cell.finish(_SANITIZER_S)
            text = report.read_text("utf-8") if report.exists() else ""
        if said := first_violation(text):
            raise CandidateFailed(Outcome.RUNTIME_ERROR, "out_of_bounds", said)
        if "ERROR SUMMARY" not in text:
            raise DeviceError(f"judge.memcheck: compute-sanitizer said nothing of a kernel: {text[-300:].strip()}")
        found.details["memcheck"] = "passed"

    def can_profile(self, kernel: Kernel) -> bool:
        return self.protocol.profiler != "none" and bool(OwnKernels(kernel.source).names)

    def profile(
        self, task: Task, kernel: Kernel, build: Build, setup: dict[str, Any], shared_fd: int, found: Findings
    ) -> None:
        """Run it once more, under Nsight Compute; what goes wrong with that is logged and changes nothing."""
        if not self.can_profile(kernel):
            return
        program = find_tool("ncu")
        with tempfile.TemporaryDirectory(prefix="kevin-profile-") as folder, self.lease(exclusive=True):
            table = Path(folder) / "ncu.csv"
            command = profiler_command(program, table, OwnKernels(kernel.source).names)
            try:
                with self._open_under(program, command, folder, kernel, build) as cell:
                    cell.prepare(setup, shared_fd, _PROFILER_START_S)
                    cell.raise_for(cell.load(_PROFILER_START_S))
                    cell.call([], [0], _PROFILER_START_S + self.protocol.run_timeout_s, burst=1)
                    cell.finish(_PROFILER_START_S)
                found.details |= read_profile(table.read_text("utf-8"))
            except (CandidateFailed, SandboxError, OSError) as e:
                log.warning("no profile of a kernel for %s: %s", task.id, e)

    def clock(self, call: Any) -> int:
        return self._gpu.timed(call)

    def bound_us(self, reference: ReferenceTask) -> float:
        """Reading every input once from memory, as the cold cache forces, as fast as the memory's clock allows."""
        inputs = sum(x.nbytes for x in reference.trials[0].inputs if isinstance(x, torch.Tensor))
        peak = self._memory_bytes_per_us()
        measured = self.peaks.bytes_per_us * (_BANDWIDTH_SLACK if peak else _UNKNOWN_SLACK)
        return max(_MIN_KERNEL_US, inputs / max(peak, measured))

    def most_bytes_per_us(self) -> float:
        return max(super().most_bytes_per_us(), self._memory_bytes_per_us())

    def _memory_bytes_per_us(self) -> float:
        """Of the memory by its clock, at both edges of which it sends; 0 where the driver does not tell."""
        try:
            khz, bits = (self._gpu.attribute(number) for number in (_MEMORY_CLOCK_RATE, _MEMORY_BUS_WIDTH))
        except CudaError:
            return 0.0
        return 2 * khz / 1e3 * bits / 8
