"""What a cluster can do, as Slurm says it, and what a job asks for that it cannot."""

from __future__ import annotations

import atexit
import logging
import re
import shutil
import subprocess
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from kevin.core.errors import UsageError

log = logging.getLogger(__name__)

_NAMES = ("slurm_account", "slurm_partition", "gpu_model", "qos", "constraint", "reservation", "clusters")
"""Resources that are no amounts."""
PATIENCE_S = 30.0
"""For an answer of Slurm's."""
_QUOTES = "one that looks like a number or a word of YAML's, such as 007, 1e3 or yes, is written \"'007'\""
_FIX = "start it on a login node of the cluster, or run here by leaving out --profile slurm"


class Partition(NamedTuple):
    is_default: bool
    minutes: float | None
    """Longest time of a job; None without a limit."""
    has_gpus: bool


def partitions() -> dict[str, Partition]:
    """By name. Raises UsageError without a Slurm that answers."""
    if shutil.which("sinfo") is None or shutil.which("sbatch") is None:
        raise UsageError(f"--profile slurm: there is no Slurm on this machine (no sbatch in PATH); {_FIX}")
    try:
        found = _asked("sinfo", "--all", "--noheader", "--format", "%P|%l|%G")  # hidden ones may be asked for, too
    except OSError as e:
        raise UsageError(f"--profile slurm: sinfo cannot be started ({e.strerror}); {_FIX}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--profile slurm: sinfo did not answer in {PATIENCE_S:g} s, so that nothing was submitted: the cluster's "
            f"controller is busy or down. Try again later, or {_FIX}"
        ) from None
    if found.returncode != 0:
        raise UsageError(f"--profile slurm: Slurm does not answer ({found.stderr.strip()}); {_FIX}")
    known = read_partitions(found.stdout)
    if not known:
        raise UsageError(f"--profile slurm: sinfo names no partition, but says {found.stdout.strip()[:200]!r}; {_FIX}")
    return known


def _asked(*command: str) -> subprocess.CompletedProcess[str]:
    """Raises OSError or `subprocess.TimeoutExpired`."""
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE_S, check=False
    )


def read_partitions(said: str) -> dict[str, Partition]:
    """From the lines of ``sinfo --format %P|%l|%G``: one for each kind of node. Others, of a greeting, are no such."""
    known: dict[str, Partition] = {}
    for line in said.split("\n"):
        name, *rest = line.strip().split("|", 2)
        if len(rest) != 2 or not name.rstrip("*"):
            continue
        gpus = "gpu" in rest[1]
        before = known.get(name.rstrip("*"))
        known[name.rstrip("*")] = Partition(
            name.endswith("*"), _minutes(rest[0]), gpus or (before is not None and before.has_gpus)
        )
    return known


def _minutes(limit: str) -> float | None:
    """Of a time limit as sinfo prints it ([days-][[hours:]minutes:]seconds); None where it is no time, as infinite."""
    match = re.fullmatch(r"(?:(\d+)-)?((?:\d+:){0,2}\d+)", limit.strip())
    if match is None:
        return None
    parts = [int(part) for part in match[2].split(":")]
    hours, minutes, seconds = [*parts, 0, 0][:3] if match[1] else [0, 0, 0, *parts][-3:]
    return int(match[1] or 0) * 1440 + hours * 60 + minutes + seconds / 60


def keep_names(*settings: MutableMapping[str, Any]) -> None:
    """Make text of names that Snakemake took for numbers, of which a group of jobs would ask for the sum.

    Args:
        settings: Snakemake's own resources, by name.
    """
    for resources in settings:
        for name in _NAMES:
            given = resources.get(name)
            if given is not None and not given.is_evaluable() and type(given.value) is int:
                resources[name] = type(given)(name, str(given.value))


def check_job(rule: str, resources: Mapping[str, Any], known: Mapping[str, Partition]) -> None:
    """Refuse what Slurm would leave in its queue for ever. Raises UsageError with the setting to change.

    Args:
        resources: of the job. A partition may be a number: YAML takes 2024 for one.
        known: of this cluster; a job for another one is left to Slurm.
    """
    if resources.get("clusters"):
        return
    default = next((name for name, partition in known.items() if partition.is_default), None)
    given = resources.get("slurm_partition")
    where = f"--profile slurm, rule {rule}"
    if isinstance(given, bool):
        raise UsageError(f"{where}: slurm_partition is {given}, which is no name; {_QUOTES}")
    asked = default if given in (None, "") else str(given)
    if asked is None:
        raise UsageError(
            f"{where}: this cluster has no default partition; set default-resources: slurm_partition in a profile of "
            f"your own to one of {', '.join(known)} (docs/slurm.md)"
        )
    names = [name.strip() for name in asked.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        hint = f"; {_QUOTES}" if unknown[0].isdecimal() else ""
        raise UsageError(
            f"{where}: slurm_partition {unknown[0]} does not exist; this cluster has {', '.join(known)}{hint}"
        )
    chosen = [known[name] for name in names]
    limits = [partition.minutes for partition in chosen if partition.minutes is not None]
    minutes = resources.get("runtime")
    if len(limits) == len(chosen) and isinstance(minutes, int | float) and minutes > max(limits):
        raise UsageError(
            f"{where}: runtime {minutes} minutes is more than partition {asked} allows ({max(limits):.0f}); set "
            f"set-resources: {rule}: runtime, or another slurm_partition"
        )
    if (gpus := resources.get("gpu")) and not any(partition.has_gpus for partition in chosen):
        having = ", ".join(name for name, partition in known.items() if partition.has_gpus)
        raise UsageError(
            f"{where}: it needs {gpus} GPUs and partition {asked} has none; set set-resources: {rule}: "
            f"slurm_partition to one of {having or '(none here has GPUs)'}"
        )


def own_jobs(run: str, note: Path) -> None:
    """End the jobs of a run that was killed, before this one writes the same files; and those of this run when it ends.

    Snakemake cancels what it knows at that moment, which leaves out jobs that are just being submitted or asked about.

    Args:
        run: the name of this run's jobs.
        note: file with that of the one before.
    """
    if note.exists():
        cancel_jobs(note.read_text())
    note.write_text(run)
    atexit.register(cancel_jobs, run)


def cancel_jobs(run: str) -> None:
    """End every Slurm job of the run with this name, running or waiting. Where Slurm does not do it, say so."""
    try:
        done = _asked("scancel", "--name", run)
    except subprocess.TimeoutExpired:
        why = f"did not answer in {PATIENCE_S:g} s"
    except OSError as e:
        why = f"cannot be started ({e.strerror})"
    else:
        if done.returncode == 0:
            return
        why = f"failed ({done.stderr.strip()[:200] or f'exit code {done.returncode}'})"
    log.warning("scancel %s: jobs of an earlier run may still be in the queue, and write what this one does; end them "
                "with: scancel --name %s", why, run)  # fmt: skip
