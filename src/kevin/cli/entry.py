"""Entry point: the one place where errors become a sentence on stderr and an exit code."""

from __future__ import annotations

import errno
import logging
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

from kevin.cli.app import app
from kevin.cli.follow import follow
from kevin.core.errors import KevinError

log = logging.getLogger("kevin")

EXIT_CRASH, EXIT_HARNESS, EXIT_INTERRUPTED = 1, 3, 130
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_PATH_ERRORS = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)
WORKFLOW_PID = "KEVIN_WORKFLOW_PID"
"""Environment variable with the process id of the workflow engine that a step belongs to."""


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 done, 2 bad usage, 3 the harness failed, 1 a bug of ours, 130 interrupted."""
    signal.signal(signal.SIGTERM, _interrupt)
    follow(WORKFLOW_PID, signal.SIGTERM)
    try:
        app()
    except SystemExit as e:
        if e.code == EXIT_INTERRUPTED:
            _fail("interrupted; what is finished is kept", EXIT_INTERRUPTED)
        raise
    except KevinError as e:
        _fail(str(e), e.exit_code)
    except OSError as e:
        _fail_os(e)
    except Exception as e:
        _fail(_bug(e), EXIT_CRASH)
    sys.exit(0)


def _bug(e: Exception) -> str:
    return f"internal error, {type(e).__name__}: {e}\nThis is a bug in kevin; kevin --debug shows the traceback."


def _fail_os(e: OSError) -> NoReturn:
    where = f"{e.filename}: " if e.filename else ""
    if e.errno in _DISK_FULL:
        _fail(f"{where}no space left on the device; free some and start again, what is finished is kept", EXIT_HARNESS)
    if isinstance(e, _PATH_ERRORS) and e.filename:
        _fail(f"{where}{e.strerror}", 2)
    _fail(_bug(e), EXIT_CRASH)


def _fail(message: str, exit_code: int) -> NoReturn:
    """Say what went wrong, in the log file too, and leave. The traceback only for --debug."""
    if log.isEnabledFor(logging.DEBUG):
        traceback.print_exc()
    for handler in log.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(log.makeRecord("kevin", logging.ERROR, "", 0, message, (), sys.exc_info()))
    print(f"kevin: {message}", file=sys.stderr)
    sys.exit(exit_code)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """SIGTERM ends like Ctrl-C: pools are closed, no process stays behind."""
    raise KeyboardInterrupt
