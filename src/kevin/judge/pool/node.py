"""What one Slurm job of the judge runs: a builder on most cores, and a process of its own for each device.

    python -m kevin.judge.pool.node SCHEDULER --name NAME --devices N --device-cores M --kernels-in-flight K [...]

dask-jobqueue calls it in place of dask's own worker and gives it the same options.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from kevin.judge.pool.worker import visible_gpu


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
