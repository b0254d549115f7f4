"""Ends this process when the one that it works for is gone, even when that was killed and could not say so."""

from __future__ import annotations

import os
import signal
import time

POLL_S = 0.5


def follow(variable: str, stop: signal.Signals) -> None:
    """Send ``stop`` to this process once the process whose id stands in the environment variable has ended.

    The variable is taken out of the environment: children follow only whom they are told to.
    """
    import threading

    pid = taken_pid(variable)
    if pid is None:
        return

    def watch() -> None:
        while is_alive(pid):
            time.sleep(POLL_S)
        os.kill(os.getpid(), stop)

    threading.Thread(target=watch, name=f"follow-{pid}", daemon=True).start()


def taken_pid(variable: str) -> int | None:
    """The process id in an environment variable, which is taken out; None without one."""
    pid = os.environ.pop(variable, "")
    return int(pid) if pid.isdigit() else None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
