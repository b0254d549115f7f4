"""What runs on a pool's workers: a build on a builder, one candidate on the device that a process holds."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kevin.core.errors import DeviceError, DeviceLostError, TaskError
from kevin.core.heavy import import_torch
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Dialect, Kernel, Task, Verdict
from kevin.judge.compile.native import Build
from kevin.judge.evaluate import build_stage, open_device, start_early
from kevin.judge.sandbox.isolation import detect_isolation

log = logging.getLogger(__name__)

_devices: dict[str, Any] = {}
"""This worker process's device, made on first use: it holds references and shared memory."""

_opening = threading.Lock()

_BUILDER_NICE = 10
"""What measures on a GPU has a core as soon as it wants one: builders keep all of them busy."""

_last_batch = 0
"""Of the pool: the last one that is over."""

_lost: list[str] = []
"""Why this process can use its device no longer."""


def _device(protocol: JudgeProtocol) -> Any:
    import_torch()
    with _opening:
        if protocol.digest not in _devices:
            _devices.clear()
            _devices[protocol.digest] = open_device(protocol)
        return _devices[protocol.digest]


def warm_up_device(protocol: JudgeProtocol) -> None:
    """Open a worker's device while it has nothing to judge. What fails here is told by the first candidate."""
    try:
        start_early(protocol)
        device = _device(protocol)
        with device.hardware.turn():
            device.warm_up()
    except Exception as e:
        log.info("warming up: %s", e)


def expect_on_device(
    tasks: Sequence[Task], num_kernels: int, most_cells: int, protocol: JudgeProtocol, dialect: Dialect, batch: int
) -> None:
    """Make a worker's device ready for candidates of these tasks, one after the other, until ``batch`` is at its end.

    What fails here is told by the first candidate.

    Args:
        num_kernels: that will come.
        most_cells: which may wait for them.
    """
    try:
        device = _device(protocol)
        if batch > _last_batch:
            device.want(num_kernels, dialect, most_cells)
    except Exception as e:
        log.info("expecting kernels: %s", e)
        return
    for task in tasks:
        try:
            device.expect(task, dialect, lambda: batch > _last_batch)
        except Exception as e:
            log.info("expecting kernels for %s: %s", task.id, e)
            if not isinstance(e, TaskError):
                return


def limit_devices(num_kernels: int) -> None:
    """No more than so many kernels are still to come to this worker process."""
    for device in list(_devices.values()):
        device.room.spares.limit(num_kernels)


def rest_devices(batch: int) -> None:
    """Give back the memory that this worker process keeps for further candidates; nothing where it holds no device.

    Args:
        batch: of the pool, that is over: nothing more is made ready for it.
    """
    global _last_batch  # noqa: PLW0603
    _last_batch = batch
    for device in list(_devices.values()):
        device.room.rest()


def run_on_device(
    task: Task, kernel: Kernel, build: Build, protocol: JudgeProtocol, key: str, flags: tuple[str, ...]
) -> Verdict:
    if _lost:  # nothing can be had from this process any more: its nanny starts another, which repeats the task
        os._exit(1)
    device = _device(protocol)
    try:
        with device.hardware.turn():
            verdict: Verdict = device.judge(task, kernel, build, key, flags)
    except DeviceLostError as e:
        _lost.append(str(e))
        raise
    return verdict


def visible_gpu(environment: Mapping[str, str], index: int, chosen: Sequence[int] | None = None) -> dict[str, str]:
    """The one GPU, in turn, of those that an environment shows, for device process ``index``; {} if it shows none.

    Args:
        chosen: numbers of those to take; all when None.

    Raises:
        DeviceError: one of them is not shown.
    """
    given = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if given and chosen:
        if wrong := [number for number in chosen if not 0 <= number < len(given)]:
            raise DeviceError(f"pool.gpus names GPU {wrong[0]}, but the visible ones are 0 to {len(given) - 1}")
        given = [given[number] for number in chosen]
    return {"CUDA_VISIBLE_DEVICES": given[index % len(given)]} if given else {}


def _stay_off(cores: Collection[int]) -> None:
    """Keep the calling thread, and what it starts, away from the device's cores while there are others."""
    others = os.sched_getaffinity(0) - set(cores)
    if others:
        os.sched_setaffinity(0, others)


@contextmanager
def staying_off(cores: Collection[int]) -> Iterator[None]:
    """As long as this lasts, so that nothing that the calling thread does is in the times of another job's kernels."""
    own = os.sched_getaffinity(0)
    _stay_off(cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def build_on_worker(task: Task, kernel: Kernel, protocol: JudgeProtocol, cache: Path, avoid: list[int]) -> Build:
    _stay_off(avoid)
    if protocol.device == "cuda" and os.getpriority(os.PRIO_PROCESS, 0) < _BUILDER_NICE:
        os.setpriority(os.PRIO_PROCESS, 0, _BUILDER_NICE)  # of this thread; compilers inherit it
    if kernel.dialect == "load_inline" and kernel.language == "cuda":
        from kevin.judge.compile.inline import start_precompiling  # imports torch

        start_precompiling(detect_isolation())
    return build_stage(task, kernel, protocol, cache)


def split_cores(cores: Sequence[int], devices: int, device_cores: int) -> list[list[int]]:
    """Cores of the builder, then of each device. Where there are too few, the builder shares those of the devices."""
    leased = [list(cores[max(0, len(cores) - (i + 1) * device_cores) :])[:device_cores] for i in range(devices)]
    taken = {core for group in leased for core in group}
    return [[core for core in cores if core not in taken] or list(cores), *leased]


def start(arguments: argparse.Namespace, passed_on: list[str]) -> list[subprocess.Popen[bytes]]:
    """Builder and devices as dask workers, each under a nanny that restarts it."""
    cores = sorted(os.sched_getaffinity(0))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}
    started = []
    for index, own in enumerate(split_cores(cores, arguments.devices, arguments.device_cores)):
        gpu = {} if index == 0 else visible_gpu(environment, index - 1)
        threads = len(own) if index == 0 else arguments.kernels_in_flight if gpu else 1
        os.sched_setaffinity(0, own)
        command = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            arguments.scheduler,
            "--nanny",
            "--no-dashboard",
        ]
        command += ["--name", f"{arguments.name}-{index}", "--nthreads", str(threads), "--memory-limit", "0"]
        command += ["--resources", f"{'device' if index else 'build'}={threads}", *passed_on]
        started.append(subprocess.Popen(command, env={**environment, **gpu}))
    os.sched_setaffinity(0, cores)
    return started


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("scheduler")
    parser.add_argument("--name", required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--device-cores", type=int, required=True)
    parser.add_argument("--kernels-in-flight", type=int, required=True)
    for unused in ("--nthreads", "--memory-limit"):
        parser.add_argument(unused)
    arguments, passed_on = parser.parse_known_args(argv)
    processes = start(arguments, passed_on)

    def stop(signum: int, frame: object) -> None:
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return max(process.wait() for process in processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
