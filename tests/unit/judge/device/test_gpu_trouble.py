"""What is wrong with a GPU, its toolkit or its architecture is said in one sentence and never blamed on a candidate."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from core_fixtures import make_module

from kevin.core.errors import DeviceError, DeviceFullError, DeviceLostError, TaskError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Dialect, Kernel, Outcome, Task, TaskSpec, TensorSpec
from kevin.judge.compile.native import Build, build_native, check_architecture
from kevin.judge.correctness.reference import make_reference
from kevin.judge.device.gpu import GpuHardware
from kevin.judge.device.roofline import Peaks
from kevin.judge.device.room import Room
from kevin.judge.inside.cuda import CudaError
from kevin.judge.pool import worker
from kevin.judge.sandbox.isolation import Isolation

KERNEL = Kernel(dialect="c_abi", language="cuda", source='extern "C" void launch() {}')
GIB = 1 << 30
NOTHING = TaskSpec(inputs=(), outputs=())


def _nvcc(folder: Path, monkeypatch: pytest.MonkeyPatch, says: str, compiles: str = "nothing") -> None:
    """One that fails, but for sources of a name."""
    nvcc = folder / "nvcc"
    nvcc.write_text(f'#!/bin/sh\ncase "$*" in *{compiles}.cu) exit 0;; esac\necho "{says}" >&2\nexit 1\n')
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("flags", "capability", "fits"),
    [
        ((), (9, 0), True),
        (("-arch=sm_90",), (9, 0), True),
        (("-arch=sm_90a",), (9, 0), True),
        (("-arch=sm_80",), (9, 0), True),
        (("-arch=sm_100",), (9, 0), False),
        (("-gencode", "arch=compute_120,code=sm_120"), (10, 0), False),
        (("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"), (8, 0), True),
    ],
)
def test_code_for_a_newer_gpu_is_refused_before_it_runs(
    flags: tuple[str, ...], capability: tuple[int, int], fits: bool
) -> None:
    protocol = JudgeProtocol(device="cuda", cuda_flags=flags)
    if fits:
        check_architecture(protocol, capability)
    else:
        with pytest.raises(DeviceError, match=f"the GPU here is sm_{capability[0]}{capability[1]}: use"):
            check_architecture(protocol, capability)


def test_an_architecture_unknown_to_nvcc_is_not_the_candidates_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = JudgeProtocol(device="cuda", cuda_flags=("-arch=sm_20",))
    _nvcc(tmp_path, monkeypatch, "nvcc fatal   : Unsupported gpu architecture 'compute_20'")
    with pytest.raises(DeviceError, match=r"Unsupported gpu architecture 'compute_20'; correct judge\.cuda_flags"):
        build_native(KERNEL, NOTHING, protocol, tmp_path / "c", Isolation.NONE)
    _nvcc(tmp_path, monkeypatch, "kernel.cu(1): error: something of the candidate's own", compiles="probe")
    build = build_native(KERNEL, NOTHING, protocol, tmp_path / "c", Isolation.NONE)
    assert build.outcome is Outcome.COMPILE_ERROR


def test_a_missing_toolkit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kevin.judge.compile.compilers.shutil.which", lambda name, path=None: None)
    monkeypatch.setattr(
        "kevin.judge.compile.compilers.Path.exists", lambda path: "nvcc" not in str(path) and path.is_dir()
    )
    protocol = JudgeProtocol(device="cuda", cuda_flags=("-arch=sm_90",))
    with pytest.raises(DeviceError, match="nvcc was not found: install the CUDA toolkit"):
        build_native(KERNEL, NOTHING, protocol, tmp_path / "c", Isolation.NONE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_no_gpu_is_said_with_torchs_reason() -> None:
    from kevin.judge.evaluate import open_device

    with pytest.raises(DeviceError, match=r"torch can use no NVIDIA GPU: .*nvidia-smi"):
        open_device(JudgeProtocol(device="cuda"))


@pytest.mark.parametrize(
    ("body", "error"),
    [("raise torch.AcceleratorError('CUDA error: lost')", DeviceLostError), ("raise ValueError('mine')", TaskError)],
)
def test_a_lost_gpu_is_not_the_tasks_fault(body: str, error: type[Exception]) -> None:
    x = TensorSpec(name="x", dtype="float32", shape=(4,))
    spec = TaskSpec(inputs=(x,), outputs=(x,))
    task = Task(id="t", level=1, name="t", source=make_module(body, "torch.randn(4)"), origin="user", spec=spec)
    with pytest.raises(error, match=r"lost|mine"):
        make_reference(task, JudgeProtocol())


def test_a_worker_that_lost_its_gpu_says_so_once_and_then_makes_room_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class ExitedError(Exception):
        pass

    class LostDevice:
        hardware = SimpleNamespace(turn=nullcontext)

        def judge(self, *arguments: Any) -> None:
            raise DeviceLostError("gone")

    def leave(status: int) -> None:
        raise ExitedError

    monkeypatch.setattr(worker, "_devices", {})
    monkeypatch.setattr(worker, "_lost", [])
    monkeypatch.setattr(worker, "open_device", lambda protocol: LostDevice())
    monkeypatch.setattr(worker.os, "_exit", leave)
    task = Task(id="t", level=1, name="t", source="", origin="user")
    arguments = (task, KERNEL, Build(path="x"), JudgeProtocol(), "key", ())
    with pytest.raises(DeviceLostError):
        worker.run_on_device(*arguments)
    with pytest.raises(ExitedError):
        worker.run_on_device(*arguments)


@pytest.mark.parametrize(
    ("rows_gib", "dialect", "working_gib", "gib"),
    [
        # one slot of inputs and outputs with the judge's copy of its inputs, and beside it the reference's first trial
        (2.0, "c_abi", None, (1 + 2 + 2, 1 * (4 + 2) + 4 + 2, 8)),
        (2.0, "load_inline", None, (1 + 2 + 2 * 2, 1 * (4 + 2) + 4 + 2, 8)),
        (2.0, "c_abi", 3.0, (1 + 3 + 2, 1 * (4 + 2), 4 + 3)),  # the reference is there
        (0.25, "c_abi", None, (1 + 0.25 + 0.25, 3 * (0.5 + 0.25) + 3 * 0.5 + 0.25, 1)),  # a slot for every trial
    ],
)
def test_what_a_candidate_needs_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    rows_gib: float,
    dialect: Dialect,
    working_gib: float | None,
    gib: tuple[float, float, float],
) -> None:
    hardware = GpuHardware.__new__(GpuHardware)
    hardware.protocol = JudgeProtocol(device="cuda", num_trials=3)
    room = Room(hardware)
    rows = TensorSpec(name="x", dtype="float32", shape=(int(rows_gib * GIB) // 4,))
    task = Task(id="t", level=1, name="t", source="", origin="user", spec=TaskSpec(inputs=(rows,), outputs=(rows,)))
    if working_gib is not None:
        room.references._tasks[task.digest] = SimpleNamespace(working_bytes=int(working_gib * GIB))  # type: ignore[assignment]
    assert [round(n / GIB, 2) for n in room.need(task, dialect)] == list(gib)


def test_a_gpus_free_memory_leaves_something_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = GpuHardware.__new__(GpuHardware)
    hardware.protocol = JudgeProtocol(device="cuda", num_trials=3)
    unknown = Task(id="t", level=1, name="t", source="", origin="user")
    assert Room(hardware).need(unknown, "c_abi").total == 0, "it is tried, and tried again alone if it does not fit"
    free = [60]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: free.append(70))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free[-1] * GIB, 140 * GIB))
    assert hardware.free_bytes(53 * GIB) == 53 * GIB, "what torch keeps is not needed"
    assert hardware.free_bytes(54 * GIB) == 63 * GIB
    assert hardware.free_bytes() == 63 * GIB and free == [60, 70, 70]


def test_what_a_reference_took_to_make_is_given_back_to_its_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware, done = GpuHardware.__new__(GpuHardware), []

    def allocate_shared(num_bytes: int) -> tuple[int, int, int, int]:
        done.append("allocated")
        if num_bytes > GIB:
            raise CudaError("cuMemCreate", 2, "out of memory")
        return 0, num_bytes, 3, 4

    hardware._gpu = SimpleNamespace(allocate_shared=allocate_shared)  # type: ignore[assignment]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("given back"))
    monkeypatch.setattr(torch, "as_tensor", lambda data, device: torch.zeros(1))
    assert hardware.allocate(GIB).fd == 3 and done == ["given back", "allocated"]
    with pytest.raises(DeviceFullError, match="no GPU memory for 2048 MiB"):
        hardware.allocate(2 * GIB)


@pytest.mark.parametrize(
    ("khz", "possible_us"),
    [(3_201_000, 655.2), (1_000_000, 769.0), (0, 650.7)],  # an H200's, one below what a copy reached, an unknown one
)
def test_reading_is_faster_than_copying(monkeypatch: pytest.MonkeyPatch, khz: int, possible_us: float) -> None:
    hardware = GpuHardware.__new__(GpuHardware)
    hardware._peaks = Peaks(bytes_per_us=3.8077e6, flops_per_us=1.0)
    hardware._gpu = SimpleNamespace(attribute={36: khz, 37: 6144}.__getitem__)  # type: ignore[assignment]
    inputs = [torch.empty(3, 65536, 4096, dtype=torch.float32, device="meta"), 1.0]
    reference: Any = SimpleNamespace(trials=[SimpleNamespace(inputs=inputs)])
    assert hardware.bound_us(reference) == pytest.approx(possible_us, rel=1e-3)
    few: Any = SimpleNamespace(trials=[SimpleNamespace(inputs=[torch.empty(8)])])
    assert hardware.bound_us(few) == 0.5

    def unknown(number: int) -> int:
        raise CudaError("cuDeviceGetAttribute", 1, "invalid argument")

    hardware._gpu = SimpleNamespace(attribute=unknown)  # type: ignore[assignment]
    assert hardware.bound_us(reference) == pytest.approx(650.7, rel=1e-3)


def test_gpus_that_judge_are_chosen_among_the_visible_ones() -> None:
    shown = {"CUDA_VISIBLE_DEVICES": "4,5,7"}
    assert [worker.visible_gpu(shown, i, (2, 1))["CUDA_VISIBLE_DEVICES"] for i in range(3)] == ["7", "5", "7"]
    assert [worker.visible_gpu(shown, i) for i in range(2)] == [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in ("4", "5")]
    assert worker.visible_gpu({}, 0) == {}
    for number in (3, -1):
        with pytest.raises(DeviceError, match=rf"names GPU {number}, but the visible ones are 0 to 2"):
            worker.visible_gpu(shown, 0, (number,))
