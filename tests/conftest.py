"""For all tests."""

import logging
import math
import os
import signal
from collections.abc import Iterator

import pytest

# A shell's background job ignores Ctrl-C, one under nohup a hang-up, and so would every process that a test starts
# there and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def _busy_machine() -> Iterator[None]:
    """Tests run beside each other: that eager was once faster is no reason to give a candidate up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kevin.judge.timing.paired._LOST", math.inf)
        yield


_CORES = os.sched_getaffinity(0)


@pytest.fixture(autouse=True)
def _all_cores() -> Iterator[None]:
    """A judge for CPUs in a test's own process leaves this on the judge's core, and all that it starts later."""
    yield
    os.sched_setaffinity(0, _CORES)


@pytest.fixture(autouse=True)
def _own_log_handlers() -> Iterator[None]:
    """A command that a test runs in this process logs to the test's own streams, which are closed after it."""
    logger = logging.getLogger("kevin")
    before, propagate, level = list(logger.handlers), logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = before, propagate
    logger.setLevel(level)
