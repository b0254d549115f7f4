"""How long a reference's own code may take: a loop, a wait or a download would be waited for without end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kevin.core.errors import TaskError

LIMIT_S = 120.0
"""Of importing a reference, of making its inputs, and of making its model, each."""
_AGAIN_S = 1.0


class TaskHangsError(TaskError):
    """A reference did not end; trying again would only take as long again."""


class _Interrupt(BaseException):
    """Not an Exception, which references may catch."""


@contextmanager
def time_limit(what: str) -> Iterator[None]:
    """Interrupt what is inside when it takes longer than `LIMIT_S` of wall time.

    In a process's main thread only, which alone can be interrupted: that is where references are inspected before
    other threads and processes get to see them.

    Raises:
        TaskHangsError: it took too long; the text begins with ``what``.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, _AGAIN_S)  # once more where a bare except has swallowed it
    try:
        yield
    except _Interrupt:
        raise TaskHangsError(
            f"{what} did not end within {LIMIT_S:g} s: look for a loop, a wait or a download there, and take it out"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
