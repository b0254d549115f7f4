"""Entry point: the one place where errors become a sentence on stderr and an exit code."""

from __future__ import annotations

import errno
import functools
import io
import os
import sys
from contextlib import suppress
from typing import NoReturn

from kevin.cli.supervisor import leave, note, quiet_trackers, supervise

EXIT_CRASH, EXIT_HARNESS = 1, 3
_HERE = ("localhost", "127.0.0.1", "::1")
_PATH_ERRORS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOENT),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EINVAL, errno.ETXTBSY, errno.ENOTEMPTY),
)
"""What the system says of a path that a person gave."""
_FILE_LIMITS = (errno.EMFILE, errno.ENFILE)


def main() -> NoReturn:
    """Run the command line in a supervised process.

    Exit codes: 0 done, 2 bad usage, 3 the harness failed, 4 `kevin write` found nothing right, 1 a bug of ours, 130
    interrupted, 143 terminated.
    """
    _refuse_import()
    os.environ.setdefault("DO_NOT_TRACK", "1")  # TRL and vLLM report what they are used for where they reach a network
    pass_by_proxies()
    supervise()
    quiet_trackers()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a terminal that cannot show a sign of a kernel's is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    try:
        _run()
    except SystemExit as e:
        leave(e.code)
        raise


def pass_by_proxies() -> None:
    """Whatever asks a server of this machine's, by whatever library, asks it without the proxy of the environment."""
    others = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if others.strip() != "*":
        named = [name.strip() for name in others.split(",") if name.strip()]
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys([*named, *_HERE]))


def _run() -> NoReturn:
    from kevin.cli.app import app
    from kevin.core import scratch
    from kevin.core.errors import KevinError

    scratch.on_made = functools.partial(note, "remove")

    try:
        app()
    except KevinError as e:
        _fail(str(e), e.exit_code)
    except OSError as e:
        _fail_os(e)
    except ModuleNotFoundError as e:
        from kevin.cli.options import missing_extra

        missing = missing_extra(e)
        _fail(missing or _bug(e), 2 if missing else EXIT_CRASH)
    except Exception as e:
        _fail(_bug(e), EXIT_CRASH)
    sys.exit(0)


def _refuse_import() -> None:
    """A script's own processes import it: one that calls `main` there too would start every command in each of them."""
    processes = sys.modules.get("multiprocessing")
    if processes is not None and processes.current_process().name != "MainProcess":
        _fail(f'{sys.argv[0]} calls main() when it is imported, too: put that under if __name__ == "__main__":', 2)


def _bug(e: Exception) -> str:
    return f"internal error, {type(e).__name__}: {e}\nThis is a bug in kevin; kevin --debug shows the traceback."


def _fail_os(e: OSError) -> NoReturn:
    from kevin.core.files import disk_full

    if full := disk_full(e):
        _fail(str(full), full.exit_code)
    where = f"{e.filename}: " if e.filename else ""
    if e.errno == errno.EFBIG:
        _fail(f"{where}larger than files may be here (see ulimit -f); what is finished is kept", EXIT_HARNESS)
    if e.errno in _FILE_LIMITS:
        _fail(f"{where}too many open files (see ulimit -n); what is finished is kept", EXIT_HARNESS)
    is_about_folders = "temporary directory" in (e.strerror or "")  # of which none can be written
    if e.errno in _PATH_ERRORS and (e.filename or is_about_folders):
        _fail(f"{where}{e.strerror}", 2)
    _fail(_bug(e), EXIT_CRASH)


def _fail(message: str, exit_code: int) -> NoReturn:
    """Say what went wrong, in the log file too, and leave. The traceback only for --debug."""
    import logging
    import traceback

    log = logging.getLogger("kevin")
    if log.isEnabledFor(logging.DEBUG):
        traceback.print_exc()
    for handler in log.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(log.makeRecord("kevin", logging.ERROR, "", 0, message, (), sys.exc_info()))
    with suppress(OSError):  # stderr may go to the full disk, too
        print(f"kevin: {message}", file=sys.stderr)
    sys.exit(exit_code)
