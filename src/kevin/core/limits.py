"""What a shell, or a batch system, lets a process have: too little of it would look like a fault of a kernel's."""

from __future__ import annotations

import resource
from typing import NamedTuple

from kevin.core.errors import DeviceError


class _Need(NamedTuple):
    what: int
    option: str
    """Of the shell's ``ulimit``."""
    least: int
    unit: str


_NEEDS = (
    _Need(resource.RLIMIT_NOFILE, "-n", 256, "open files"),
    _Need(resource.RLIMIT_AS, "-v", 4 << 30, "bytes of address space"),
    _Need(resource.RLIMIT_DATA, "-d", 4 << 30, "bytes of data"),
    _Need(resource.RLIMIT_STACK, "-s", 1 << 20, "bytes of stack"),
    _Need(resource.RLIMIT_NPROC, "-u", 256, "processes and threads"),
    _Need(resource.RLIMIT_FSIZE, "-f", 1 << 30, "bytes of a file"),
    _Need(resource.RLIMIT_CPU, "-t", 600, "seconds of CPU time"),
)
"""Of compilers, of PyTorch and of a candidate's sandbox, which sets itself limits that no lower one may stand below."""


def require_limits() -> None:
    """Raise limits as far as the system lets this process. Raises DeviceError naming one that is too low to judge."""
    for need in _NEEDS:
        soft, hard = resource.getrlimit(need.what)
        if hard != resource.RLIM_INFINITY and hard < need.least:
            raise DeviceError(
                f"ulimit {need.option} allows {hard:,} {need.unit} here, and judging needs {need.least:,}: raise it in "
                f"the shell that starts this, or where the machine or the batch system sets it (limits.conf)"
            )
        if soft != resource.RLIM_INFINITY and soft < need.least:
            resource.setrlimit(need.what, (hard if hard == resource.RLIM_INFINITY else max(need.least, soft), hard))
