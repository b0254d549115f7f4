"""What tests of processes share."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def until(is_so: Callable[[], bool], what: str = "", timeout_s: float = 60.0) -> None:
    """Raises AssertionError where it does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Whether it has ended, also where nobody has taken its status yet. It may do so between any two questions."""
    try:
        process = psutil.Process(pid)
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
