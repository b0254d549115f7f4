"""For all tests; and which of them run.

Without options, the fast suite: all that is not slow. ``--group 3`` adds one of nine groups of the slow ones,
``--group all`` every one. Each group takes a few minutes: continuous integration runs one of them with each change,
chosen by the number of commits.
"""

import functools
import gc
import logging
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

if "PYTEST_XDIST_WORKER" in os.environ:  # a core each: threads that take turns on it double what all of them take
    os.environ.setdefault("OMP_NUM_THREADS", "1")

hypothesis.settings.register_profile("kevin", deadline=None, derandomize=True)  # the machine may be busy
hypothesis.settings.load_profile("kevin")

TESTS = Path(__file__).parent
SLOW = ("slow", "slurm", "apptainer")
GROUPS = {
    "workflow/test_micro": 1,
    "slurm": 2,
    "workflow/test_rehearsal": 3,
    "workflow": 4,
    "unit/cli": 4,
    "unit/judge": 5,
    "unit/train": 6,
    "unit/train/test_logprobs": 9,
    "unit/train/test_lora": 9,
    "unit/train/test_unpadded": 9,
    "unit/api": 7,
    "unit/serve": 7,
    "attacks": 7,
    "unit": 7,
    "apptainer": 8,
    "unit/writer": 8,
    "unit/report": 8,
}
"""File or folder, the nearest one counts -> group of the slow tests in it."""
NUM_GROUPS = 9
LONG = ("workflow", "attacks", "unit/judge", "unit/train")
"""Where the longest files are: they start first, or one of them ends alone."""


def pytest_addoption(parser: pytest.Parser) -> None:
    choices = ["none", "all", *map(str, range(1, NUM_GROUPS + 1))]
    parser.addoption("--group", choices=choices, default="none", help="slow tests to run beside the fast ones")


def group_of(path: Path) -> int:
    """Of the slow tests of a file."""
    own = path.relative_to(TESTS).with_suffix("")
    return next(GROUPS[str(place)] for place in (own, *own.parents) if str(place) in GROUPS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("group")
    groups = {number for number in range(1, NUM_GROUPS + 1) if wanted in ("all", str(number))}
    left_out = {i for i in items if any(map(i.get_closest_marker, SLOW)) and group_of(i.path) not in groups}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [i for i in items if i not in left_out]
    starts = [TESTS / folder for folder in LONG]
    items.sort(key=lambda i: next((n for n, folder in enumerate(starts) if folder in i.path.parents), len(starts)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported and collected stays: to look through it again and again takes the collector a tenth of all."""
    gc.collect()
    gc.freeze()


class _Together(LoadScopeScheduling):
    """A worker gets a file at a time; one of them all that is timed, or shares a cluster or an image."""

    def _split_scope(self, nodeid: str) -> str:
        return _worker_of(nodeid.partition("::")[0])


@functools.cache
def _worker_of(file: str) -> str:
    path = TESTS.parent / file
    if (folder := path.relative_to(TESTS).parts[0]) in ("slurm", "apptainer"):
        return folder
    return "timing" if "pytest.mark.timing" in path.read_text() else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return _Together(config, log)


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
