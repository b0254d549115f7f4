"""The outer wall around a candidate: own namespaces, no network, a private /tmp, no more of the host than it needs.

Three strengths, the best available one is taken and its name is recorded: ``bubblewrap`` (mount, pid, network, ipc, uts
and user namespaces, a file system of chosen read-only folders), ``namespaces`` (util-linux ``unshare``: the same
namespaces without the private file system, which Landlock then covers), ``none`` (only the limits that a cell puts
on itself, see `inside.guard`). Not covered by any: side channels, kernel bugs, use of the memory bandwidth of the host.
"""

from __future__ import annotations

import functools
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

log = logging.getLogger(__name__)


class Isolation(StrEnum):
    BUBBLEWRAP = "bubblewrap"
    NAMESPACES = "namespaces"
    NONE = "none"


_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives")
_UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--ipc", "--uts", "--mount", "--pid", "--fork",
            "--kill-child", "--mount-proc")  # fmt: skip


def gpu_devices() -> list[str]:
    """Device files that CUDA opens, and what it reads of /sys and /proc."""
    return sorted(str(p) for p in Path("/dev").glob("nvidia*") if not p.is_dir())


def _bwrap(read_only: Iterable[str], writable: Iterable[str], *, gpu: bool = False) -> list[str]:
    args = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]
    args += ["--tmpfs", "/tmp", "--chdir", "/tmp"]
    for path in (*_SYSTEM, *read_only):
        p = Path(path)
        if p.is_symlink() and path in _SYSTEM:
            args += ["--symlink", str(p.readlink()), path]
        elif p.exists():
            args += ["--ro-bind", path, path]
    for path in writable:
        args += ["--bind", path, path]
    if gpu:
        args += ["--ro-bind", "/sys", "/sys"]
        for device in gpu_devices():
            args += ["--dev-bind", device, device]
    return args


def _works(argv: Sequence[str]) -> bool:
    try:
        run = subprocess.run([*argv, "true"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return run.returncode == 0


@functools.cache
def detect_isolation() -> Isolation:
    """The strongest isolation that works here, tried once per process."""
    if shutil.which("bwrap") and _works(_bwrap([], [])):
        return Isolation.BUBBLEWRAP
    if shutil.which("unshare") and _works(_UNSHARE):
        log.warning("bubblewrap is not usable here: candidates run in plain namespaces (apt-get install bubblewrap)")
        return Isolation.NAMESPACES
    log.warning(
        "neither bubblewrap nor unprivileged namespaces work here: candidates run with self-imposed limits only"
    )
    return Isolation.NONE


def python_paths() -> list[str]:
    """Folders that the interpreter itself needs: its installation, and the environment that it was started from."""
    return sorted({sys.base_prefix, sys.prefix})


def readable_paths(extra: Iterable[str], *, gpu: bool = False) -> list[str]:
    """What a candidate may read, for Landlock: the system's libraries, the interpreter, ``extra``."""
    devices = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"]
    system = ["/sys", "/proc"] if gpu else ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"]
    return [*_SYSTEM, *python_paths(), *system, *devices, *extra]


def writable_paths(extra: Iterable[str], *, isolation: Isolation, gpu: bool = False) -> list[str]:
    """What a candidate may write, for Landlock: its scratch, a /tmp of its own, on a GPU the driver's device files."""
    private = ["/tmp"] if isolation is Isolation.BUBBLEWRAP else []
    return [*extra, *private, *(gpu_devices() if gpu else [])]


def wrap(
    argv: Sequence[str],
    *,
    isolation: Isolation,
    read_only: Iterable[str] = (),
    writable: Iterable[str] = (),
    gpu: bool = False,
) -> list[str]:
    """The command line that runs ``argv`` isolated. Paths keep their names inside."""
    if isolation is Isolation.BUBBLEWRAP:
        return [*_bwrap([*python_paths(), *read_only], writable, gpu=gpu), "--", *argv]
    if isolation is Isolation.NAMESPACES:
        return [shutil.which("unshare") or "unshare", *_UNSHARE[1:], "--", *argv]
    return list(argv)
