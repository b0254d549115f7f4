"""One kernel through all stages: screen -> build -> run -> verdict. A pool schedules the same functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kevin.core.protocol import JudgeProtocol
from kevin.core.scratch import scratch_folder
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.judge.compile.native import Build, build_native
from kevin.judge.screen import screen
from kevin.judge.store import verdict_key
from kevin.judge.timing.eager import eager_server

if TYPE_CHECKING:
    from kevin.judge.device.hardware import Hardware
    from kevin.judge.device.judging import Judging


def early_verdict(
    task: Task,
    kernel: Kernel,
    protocol: JudgeProtocol,
    device_name: str,
    *,
    outcome: Outcome,
    reason: str | None,
    message: str,
    flags: tuple[str, ...] = (),
    build_seconds: float = 0.0,
) -> Verdict:
    """The verdict of a kernel that never ran."""
    return Verdict(
        key=verdict_key(task, kernel, protocol, device_name),
        task_digest=task.digest,
        kernel_digest=kernel.digest,
        protocol_digest=protocol.digest,
        device_name=device_name,
        outcome=outcome,
        reason=reason,
        message=message,
        flags=flags,
        num_trials=protocol.num_trials,
        seconds={"build": build_seconds},
    )


def screen_stage(
    task: Task, kernel: Kernel, protocol: JudgeProtocol, device_name: str
) -> tuple[tuple[str, ...], Verdict | None]:
    """All flags of a kernel, and its verdict when an enforced rule was hit."""
    hits = screen(kernel)
    flags = tuple(sorted({h.rule for h in hits}))
    enforced = [h for h in hits if h.rule in protocol.rules]
    if not enforced:
        return flags, None
    message = "; ".join(f"{h.rule}: {h.message}" for h in enforced[:3])
    return flags, early_verdict(
        task,
        kernel,
        protocol,
        device_name,
        outcome=Outcome.REFUSED,
        reason=enforced[0].rule,
        message=message,
        flags=flags,
    )


def build_stage(task: Task, kernel: Kernel, protocol: JudgeProtocol, cache: Path) -> Build:
    """Compile; needs no device. Raises TaskError or DeviceError, never for the candidate."""
    if kernel.dialect == "load_inline":
        from kevin.judge.compile.inline import build_inline

        return build_inline(task, kernel, protocol, cache)
    if (spec := task.spec) is None:
        from kevin.tasks.format import inspect_task  # imports torch

        spec = inspect_task(task.source, task.id)
    return build_native(kernel, spec, protocol, cache)


def build_verdict(
    task: Task, kernel: Kernel, protocol: JudgeProtocol, device_name: str, build: Build, flags: tuple[str, ...]
) -> Verdict | None:
    """The verdict of a kernel whose build failed; None when it was built, or is to run without what failed to build.

    What ran instead is seen on a GPU; on a CPU it may be anything, which the rule ``torch_compute`` forbids.
    """
    is_refused = build.reason is not None and protocol.device == "cpu" and "torch_compute" in protocol.rules
    if build.outcome is None and not is_refused:
        return None
    return early_verdict(
        task,
        kernel,
        protocol,
        device_name,
        outcome=build.outcome or Outcome.COMPILE_ERROR,
        reason=build.reason,
        message=build.message,
        flags=flags,
        build_seconds=build.seconds,
    )


def open_hardware(protocol: JudgeProtocol) -> Hardware:
    """The last cores, or the first visible GPU. Raises DeviceError where it is missing."""
    if protocol.device == "cpu":
        from kevin.judge.device.cpu import CpuHardware

        return CpuHardware(protocol)
    from kevin.judge.device.gpu import GpuHardware

    return GpuHardware(protocol)


def open_device(protocol: JudgeProtocol) -> Judging:
    """What judges there. Errors as `open_hardware`."""
    from kevin.judge.device.judging import Judging

    return Judging(open_hardware(protocol))


def judge_on(device: Judging, task: Task, kernel: Kernel, protocol: JudgeProtocol, cache: Path) -> Verdict:
    """All stages on an opened device. ``protocol`` is the device's, its rules apart."""
    flags, refused = screen_stage(task, kernel, protocol, device.name)
    if refused is not None:
        return refused
    device.room.reference(task)  # one that does not run is found before its kernel is built
    build = build_stage(task, kernel, protocol, cache)
    failed = build_verdict(task, kernel, protocol, device.name, build, flags)
    if failed is not None:
        return failed
    return device.judge(task, kernel, build, verdict_key(task, kernel, protocol, device.name), flags, protocol.rules)


def start_early(protocol: JudgeProtocol) -> None:
    """Begin what a device will wait for, beside the imports and the task that come before it. Returns at once."""
    if protocol.device == "cpu":
        eager_server()


def judge_kernel(task: Task, kernel: Kernel, protocol: JudgeProtocol) -> Verdict:
    """Judge one kernel in this process: no pool, no store. Changes this process's CPU affinity to the leased cores.

    Raises:
        HarnessError: no such device, no compiler, no sandbox: no verdict was formed.
        TaskError: the reference itself is not usable.
    """
    device = open_device(protocol)
    with scratch_folder("kevin-build-") as scratch:
        return judge_on(device, task, kernel, protocol, scratch)
