"""What tests of processes share."""

from __future__ import annotations

import time

import psutil


def wait_until_gone(pid: int, timeout_s: float = 10.0) -> None:
    """Until it has ended, also where nobody has taken its status yet. It may do so between any two questions."""
    deadline = time.monotonic() + timeout_s
    try:
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "it is still there"
            time.sleep(0.05)
    except psutil.NoSuchProcess:
        return
