"""compute-sanitizer on a correct CUDA kernel: reads and writes outside of every allocation.

An option (``judge.memcheck``, ``kevin judge --memcheck``): each kernel takes a cell of its own and some seconds. The
tool runs inside the sandbox, around the cell, whose tensors then are allocations of their own.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from kevin.core.errors import DeviceError
from kevin.core.texts import split_lines

_VIOLATION = re.compile(r"=+ (Invalid \S+ \w+ of size \d+ bytes?|Program hit .*)")
_LINES = 4


def _sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")


def has_sanitizer() -> bool:
    """Whether compute-sanitizer is installed."""
    return _sanitizer() is not None


def find_sanitizer() -> str:
    """Path of compute-sanitizer. Raises DeviceError where it is not installed."""
    found = _sanitizer()
    if found is None:
        raise DeviceError(
            "judge.memcheck is on, and compute-sanitizer was not found: install it (it comes with the CUDA toolkit), "
            "put it into PATH, or judge without --memcheck"
        )
    return found


def sanitizer_command(program: str, report: Path) -> list[str]:
    """What stands before the command line of the process that is checked; ``report`` gets its words.

    PyTorch then allocates each tensor by itself, and not a part of a larger block.
    """
    own = ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"]
    return [
        *own,
        program,
        "--tool",
        "memcheck",
        "--log-file",
        str(report),
        "--print-limit",
        "1",
        "--show-backtrace",
        "no",
    ]


def first_violation(report: str) -> str | None:
    """The first access that was out of bounds, with where it was; None where there was none."""
    lines = split_lines(report)
    for number, line in enumerate(lines):
        if found := _VIOLATION.match(line):
            around = [re.sub(r"^=+\s*", "", each).strip() for each in lines[number + 1 : number + _LINES]]
            return "\n".join([found.group(1), *(text for text in around if text)])
    return None
