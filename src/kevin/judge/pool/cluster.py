"""The judge over several nodes: dask workers in Slurm jobs, as many as the work needs, behind TLS.

    python -m kevin.judge.pool.cluster --folder results/judge --partition gpu --gpus 1 --cores 16 --max-jobs 8

runs until it is stopped, wherever it is started: on a login node, or in a small job of its own. Configurations name it
by the file that it writes: ``pool: {scheduler: results/judge/connection.json}``. That file and the credentials beside
it are readable by their owner alone, are new with every start and are gone when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import DeviceError, HarnessError, KevinError, UsageError
from kevin.core.fields import field_docs
from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import device_name
from kevin.core.texts import strict_json
from kevin.core.types import Frozen

log = logging.getLogger(__name__)
CONNECTION = "connection.json"
_STOPPED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SlurmNodes(Frozen):
    """One Slurm job is one builder and, for each device, one process that leases it."""

    partition: str | None = None
    """Of the jobs; the site's default when absent."""
    account: str | None = None
    """Charged for the jobs."""
    gpus: int = Field(default=0, ge=0)
    """GPUs of a job; 0 judges on the CPU, with one device a job."""
    gpu_type: str | None = None
    """For instance ``h100``; any when absent. Verdicts name the GPU, so types are best not mixed."""
    cores: int = Field(default=4, ge=2)
    """Cores of a job: `device_cores` for each device, the others compile."""
    device_cores: int = Field(default=1, ge=1)
    """Cores of one device; ``judge.num_threads`` when it is the CPU."""
    kernels_in_flight: int = Field(default=JudgePoolConfig().kernels_in_flight, ge=1)
    """Kernels whose sandboxes are started or open at once on a GPU; ``pool.kernels_in_flight`` is for a judge on one
    machine."""
    memory_mb: int = Field(default=8000, ge=1000)
    """Memory of a job."""
    minutes: int = Field(default=60, ge=1)
    """Time limit of a job; workers that reach it are replaced."""
    min_jobs: int = Field(default=0, ge=0)
    """Jobs that are kept while there is nothing to do."""
    max_jobs: int = Field(default=4, ge=1)
    """Jobs at the same time, at most."""
    interface: str | None = None
    """Network interface that nodes reach each other by, e.g. ``ib0``."""

    @property
    def devices(self) -> int:
        """Of a job."""
        return max(1, self.gpus)


def credentials(folder: Path) -> dict[str, str]:
    """A fresh self-signed certificate and its key below ``folder``, for the owner's eyes only. Name -> path."""
    from distributed import Security

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    try:
        fresh = Security.temporary()
    except ImportError:
        raise UsageError(
            "judging over nodes needs the package cryptography: pip install 'kevin-study[slurm]'"
        ) from None
    files = {}
    for name, text in (("ca_file", fresh.tls_ca_file), ("cert", fresh.tls_client_cert), ("key", fresh.tls_client_key)):
        path = folder / f"{name}.pem"
        _write_private(path, text)
        files[name] = str(path.resolve())
    return files


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text)


def security(files: dict[str, str]) -> Any:
    """Both ends show the same certificate, and nothing unencrypted is spoken."""
    from distributed import Security

    ends = {f"tls_{end}_{part}": files[part] for end in ("client", "worker", "scheduler") for part in ("cert", "key")}
    return Security(tls_ca_file=files["ca_file"], require_encryption=True, **ends)


def worker_arguments(nodes: SlurmNodes) -> list[str]:
    """What `kevin.judge.pool.worker` is told in each job, beyond what dask-jobqueue tells it."""
    told = {
        "devices": nodes.devices,
        "device-cores": nodes.device_cores,
        "kernels-in-flight": nodes.kernels_in_flight,
    }
    return [word for name, value in told.items() for word in (f"--{name}", str(value))]


@contextlib.contextmanager
def slurm_judge(nodes: SlurmNodes, folder: Path) -> Iterator[Path]:
    """Scheduler in this process, workers in Slurm jobs. Yields the connection file; leaving cancels every job.

    Raises:
        DeviceError: no Slurm here.
        UsageError: an optional package is missing.
    """
    if shutil.which("sbatch") is None:
        raise DeviceError("judging over nodes: there is no Slurm on this machine (no sbatch in PATH); use a login node")
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ImportError:
        raise UsageError("judging over nodes needs dask-jobqueue: pip install 'kevin-study[slurm]'") from None
    import dask

    files = credentials(folder / "tls")
    gpus = f"{nodes.gpu_type}:{nodes.gpus}" if nodes.gpu_type else str(nodes.gpus)
    dask.config.set({"distributed.scheduler.allowed-failures": 3, "distributed.deploy.lost-worker-timeout": "5s"})
    cluster = SLURMCluster(
        queue=nodes.partition,
        account=nodes.account,
        cores=nodes.cores,
        memory=f"{nodes.memory_mb}MB",
        walltime=f"{nodes.minutes // 60:02}:{nodes.minutes % 60:02}:00",
        processes=1 + nodes.devices,
        job_name="kevin-judge",
        worker_command="kevin.judge.pool.worker",
        worker_extra_args=worker_arguments(nodes),
        job_extra_directives=["--no-requeue", *([f"--gpus={gpus}"] if nodes.gpus else [])],
        python=sys.executable,
        log_directory=str((folder / "logs").resolve()),
        local_directory="/tmp",
        death_timeout=60,
        interface=nodes.interface,
        protocol="tls://",
        security=security(files),
        scheduler_options={"dashboard": False, "dashboard_address": ":0"},
        silence_logs=logging.ERROR,
    )
    path = folder / CONNECTION
    try:
        cluster.adapt(minimum_jobs=nodes.min_jobs, maximum_jobs=nodes.max_jobs, interval="2s", wait_count=15)
        text = strict_json({"address": cluster.scheduler_address, "tls": files}, indent=2)
        _write_private(path, text)
        yield path
    finally:
        path.unlink(missing_ok=True)
        cluster.close(timeout=30)
        shutil.rmtree(folder / "tls", ignore_errors=True)


def connect(scheduler: str) -> Any:
    """A dask client of a scheduler's address, or of a connection file. Raises HarnessError when nobody answers."""
    from distributed import Client

    address, keys = scheduler, None
    if "://" not in scheduler:
        try:
            found = json.loads(Path(scheduler).read_text("utf-8"))
            address, keys = found["address"], security(found["tls"])
        except FileNotFoundError:
            raise HarnessError(
                f"pool.scheduler: {scheduler} is not there: start the judge first (python -m kevin.judge.pool.cluster)"
            ) from None
        except (OSError, ValueError, LookupError, TypeError) as e:
            raise HarnessError(f"pool.scheduler: {scheduler} cannot be read ({e}): start the judge again") from None
    try:
        return Client(address, security=keys, set_as_default=False, timeout=60)
    except OSError as e:
        raise HarnessError(f"pool.scheduler: no judge answers at {address} ({e}): start it again") from None


def worker_device_name(client: Any, protocol: JudgeProtocol, timeout_s: float = 600) -> str:
    """What the workers call the device that they judge on. Raises DeviceError for two kinds of them, or none at all."""
    asked = client.submit(device_name, protocol.device, resources={"device": 1}, pure=False)
    try:
        first: str = asked.result(timeout=timeout_s)
    except TimeoutError:
        raise DeviceError(
            f"no judging node started within {timeout_s / 60:.0f} minutes: see squeue --me, and the logs beside the"
            " connection file"
        ) from None
    info = client.scheduler_info(n_workers=-1)["workers"]
    devices = [address for address, worker in info.items() if "device" in worker["resources"]]
    names = {first, *client.run(device_name, protocol.device, workers=devices).values()}
    if len(names) > 1:
        raise DeviceError(f"the judging nodes have different devices ({', '.join(sorted(names))}): set --gpu-type")
    return first


def main(argv: Sequence[str]) -> int:
    """The command of the module's text."""
    parser = argparse.ArgumentParser(prog="python -m kevin.judge.pool.cluster", description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="for the connection file, credentials and logs")
    docs = field_docs(SlurmNodes)
    for name, field in SlurmNodes.model_fields.items():
        kind = int if isinstance(field.default, int) else str
        told = docs[name] if field.default is None else f"{docs[name]} Default: {field.default}."
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=field.default, metavar="X", help=told)
    options = vars(parser.parse_args(argv))
    folder = options.pop("folder")
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPED_BY)  # while nodes start or are cancelled, nothing may break in
    try:
        with slurm_judge(SlurmNodes.model_validate(options), folder) as path:
            print(f"pool: {{scheduler: {path}}}", flush=True)
            signal.sigwait(_STOPPED_BY)
    except ValidationError as e:
        parser.error("; ".join(f"--{str(err['loc'][0]).replace('_', '-')}: {err['msg']}" for err in e.errors()))
    except KevinError as e:
        print(f"kevin: {e}", file=sys.stderr)
        return e.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
