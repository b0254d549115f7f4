"""Where a result came from: commit, versions, machine, configuration. Stored in the metadata of every file."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kevin.core.errors import DataError, DeviceError

if TYPE_CHECKING:
    from kevin.core.types import Device

PROVENANCE = "provenance.json"
"""Of a folder of tables: where they come from. What stands under ``tables`` is of one table, all else of each."""
_PACKAGES = ("kevin-study", "torch", "transformers", "trl", "vllm", "deepspeed", "snakemake", "pandas", "numpy")
_PATIENCE_S = 20
"""For an answer of git's, or of the driver's."""


def package_versions() -> dict[str, str]:
    """Installed versions of what can change a result; absent packages are left out."""
    from importlib.metadata import PackageNotFoundError, version  # takes longer than the rest of this module

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_commit() -> str | None:
    """Commit of the working tree, with ``-dirty`` when it differs; None outside a repository."""
    return _said("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").strip() or None


def _said(*command: str) -> str:
    """What a command prints; nothing where it fails, or is not there."""
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=Path(__file__).parent
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout if run.returncode == 0 else ""


def cpu_name() -> str:
    """The processor's model name as the kernel reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").split("\n"):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def nvidia_gpus() -> list[dict[str, str]]:
    """Name and driver of every NVIDIA GPU; empty where there is none."""
    said = _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return [dict(zip(("name", "driver"), line.split(", "), strict=False)) for line in said.split("\n") if line]


NO_GPU = (
    "no NVIDIA GPU was found (nvidia-smi lists none): use a machine with one, or device cpu, which is device='cpu' in "
    "Python and --device cpu on the command line"
)


def may_have_gpu() -> bool:
    """Whether a look into the system's device files, which costs nothing, leaves open that there is one."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    files = ("nvidia[0-9]*", "nvidiactl", "dxg", "nvhost*", "nvmap")
    return not hidden and any(next(Path("/dev").glob(name), None) is not None for name in files)


def device_name(device: Device) -> str:
    """Name of the device that verdicts are timed on. Raises DeviceError when there is none."""
    if device == "cpu":
        return cpu_name()
    gpus = nvidia_gpus()
    if not gpus:
        raise DeviceError(NO_GPU)
    return gpus[0]["name"]


SIDE_BY_SIDE = "KEVIN_SIDE_BY_SIDE"
"""Environment variable of a workflow's jobs: how many of them share this machine and its GPUs."""


def jobs_side_by_side() -> int:
    """How many jobs of a workflow share this machine; 1 outside one."""
    said = os.environ.get(SIDE_BY_SIDE, "")
    return max(1, int(said)) if said.isdecimal() else 1


def provenance(config_digest: str | None = None, **extra: Any) -> dict[str, Any]:
    """A JSON-serialisable record for a file's metadata."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": git_commit(),
        "config_digest": config_digest,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "gpus": nvidia_gpus(),
        "versions": package_versions(),
        **extra,
    }


def read_provenance(folder: Path, table: str = "") -> dict[str, Any]:
    """What is recorded of a folder's tables, and of the one of this file name; empty where nothing is.

    Raises DataError for a record that cannot be read.
    """
    record = _read_record(folder / PROVENANCE)
    of_table: dict[str, Any] = record.pop("tables", {}).get(table, {})
    return record | of_table


def record_tables(folder: Path, tables: Iterable[str], record: Mapping[str, Any]) -> Path:
    """Enter where these tables of a folder come from; what is recorded of others stays. Returns the record's path.

    Raises DataError as `read_provenance`.
    """
    from kevin.core.files import write_text  # imports more than the rest of this module
    from kevin.core.scratch import lock_held
    from kevin.core.texts import strict_json

    path = folder / PROVENANCE
    folder.mkdir(parents=True, exist_ok=True)
    with lock_held(os.open(folder, os.O_RDONLY)):  # two tables of one folder may be finished at once
        found = _read_record(path)
        found["tables"] = found.get("tables", {}) | {table: dict(record) for table in tables}
        write_text(path, strict_json(found, indent=1, sort_keys=True) + "\n")
    return path


def _read_record(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise DataError(f"{path}: cannot be read ({e}); restore it or take it away") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a mapping of keys at the top level; restore it or take it away")
    return found


def machine_names(record: Mapping[str, Any], device: str) -> tuple[str, ...]:
    """Of a record that `provenance` made: GPUs, each name once, or where a processor judged its name; empty where
    nothing is known."""
    gpus = [str(gpu.get("name")) for gpu in record.get("gpus") or ()] if device == "cuda" else []
    return tuple(dict.fromkeys(gpus or [str(name) for name in [record.get("cpu")] if name]))
