"""How processes beside the judge come to be. A cell's is executed in its sandbox, or forked into it from one that has
imported torch; a trusted child is forked from such a one without any.

Importing torch takes two to four seconds of a core, and each ``load_inline`` candidate needs it twice, to be built and
to be run. A fork server imports it once for all cells of one kind; its children join a sandbox that bubblewrap has made
for them alone. Other kinds of isolation, and kernels on which that cannot be done, have their cells executed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from kevin.core.errors import SandboxError
from kevin.judge.inside.fork_server import framed
from kevin.judge.sandbox.isolation import Isolation, wrap

log = logging.getLogger(__name__)

INSIDE = Path(__file__).parents[1] / "inside"
_END_TIMEOUT_S = 10.0
_PROBE_TIMEOUT_S = 20.0
_REAP_S = 1.0
_DEATH_S = 0.5
"""Between a process's last sign and its exit status."""
_LAST_WORDS = 600


def python_flags(script: str) -> tuple[str, ...]:
    """Of the interpreter that runs a cell's script: torch is among the site's packages, which the others do without."""
    return ("-I",) if script == "module.py" else ("-I", "-S")


def _descent(pid: int) -> Iterator[int]:
    """A process, its youngest child, that one's youngest child, and so on."""
    try:
        yield pid
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[-1])
            yield pid
    except (FileNotFoundError, ProcessLookupError):  # it has ended, or the kernel does not list children
        with contextlib.suppress(psutil.Error):
            yield from (p.pid for p in psutil.Process(pid).children(recursive=True))


def _innermost(pid: int) -> int | None:
    """The youngest descendant, which is the cell below those that make its sandbox; None when it is gone."""
    *_, innermost = _descent(pid)
    return innermost if Path(f"/proc/{innermost}").exists() else None


def _first_inside(pid: int) -> int | None:
    """The first process of the sandbox's pid namespace, with which all others there are killed; None without one."""
    for descendant in _descent(pid):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{descendant}/status").read_text()
            if re.search(r"^NSpid:.*\s\d+\s+1$", status, re.MULTILINE):
                return descendant
    return None


def _open(pid: int | None) -> int:
    """A descriptor that can be read once a process has ended; -1 when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        return -1 if pid is None else os.pidfd_open(pid)
    return -1


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a sandbox's program and its youngest descendant, and wait for both.

    Where there is a pid namespace, its first process is killed first: each parent then waits for its child, so that all
    are reaped when this returns, and none is left to the first process of the host, which takes its time. In a sandbox
    that is only being made neither may wait for the other: bubblewrap's child, for one, ends with its parent only once
    it has asked for that.
    """
    first, innermost = _open(_first_inside(process.pid)), _open(_innermost(process.pid))
    try:
        if first >= 0:
            _send_kill(first)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_REAP_S)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if innermost >= 0:
            _send_kill(innermost)
            select.select([innermost], [], [], _END_TIMEOUT_S)
    finally:
        for descriptor in (first, innermost):
            if descriptor >= 0:
                os.close(descriptor)


def _send_kill(descriptor: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)


class ExecutedProcess:
    """A program executed in a sandbox by the command line ``argv``."""

    def __init__(self, argv: Sequence[str], environment: dict[str, str], channel: int, stderr: IO[bytes]) -> None:
        """Raises OSError when it cannot be started."""
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=[channel],
            start_new_session=True,
            env=environment,
        )

    @property
    def pid(self) -> int | None:
        """Of the cell itself, as this process numbers it; None when it cannot be told."""
        return _innermost(self._process.pid)

    def wait(self, timeout_s: float) -> int:
        """Exit status; negative, or above 128, for a signal. Raises `subprocess.TimeoutExpired`."""
        return self._process.wait(timeout_s)

    def end(self) -> None:
        """Kill it with everything that it started, and reap it; safe to call twice."""
        if self._process.returncode is None:
            _kill(self._process)


class ForkingProcess:
    """The host's handle on a process that has imported what its children need, which takes seconds, and forks them.

    Ends with this process, or by `close`; its children do not end with it.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], folder: str | None = None) -> None:
        """``argv`` is given the number of its end of the channel as a last argument, ``folder`` is where it works."""
        self._socket, theirs = socket.socketpair()
        self._sending = threading.Lock()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        with theirs:
            self._process = subprocess.Popen(
                [*argv, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=environment,
                cwd=folder,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def request(self, content: bytes, fds: Sequence[int]) -> None:
        """Have a child work on this, with these descriptors. Raises OSError where nobody listens."""
        with self._sending:
            message = framed(content)
            sent = socket.send_fds(self._socket, [message], list(fds))
            self._socket.sendall(message[sent:])

    def words(self) -> str:
        """The last that it and its children wrote to stderr."""
        at = max(0, os.fstat(self._said.fileno()).st_size - _LAST_WORDS)
        return os.pread(self._said.fileno(), _LAST_WORDS, at).decode(errors="replace").strip()

    def last_words(self) -> str | None:
        """What it said when it died; None while it lives."""
        try:
            self._process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            return None
        return self.words()

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()
        self._said.close()


class ForkServer(ForkingProcess):
    """One that has imported a cell's script."""

    def __init__(self, script: str, environment: dict[str, str]) -> None:
        argv = [sys.executable, *python_flags(script), str(INSIDE / "fork_server.py"), script]
        super().__init__(argv, environment, "/")
        self._environment = environment

    def fork(self, fds: Sequence[int]) -> None:
        """Have a child continue with these: its channel, stderr, where its status goes, what bubblewrap tells.

        Raises:
            SandboxError: the server has died.
        """
        request = {"environment": self._environment, "cores": sorted(os.sched_getaffinity(0))}
        try:
            self.request(json.dumps(request).encode(), fds)
        except OSError:
            self.check()
            raise SandboxError("the process that starts those of sandboxes does not listen") from None

    def check(self) -> None:
        """Raises SandboxError with its last words when it has died."""
        if (said := self.last_words()) is not None:
            raise SandboxError(f"the process that starts those of sandboxes has died: {said}".strip())


class ForkedProcess:
    """A child of a fork server in a sandbox of bubblewrap's, which another process in there keeps. Used as
    `ExecutedProcess`."""

    def __init__(self, server: ForkServer, sandbox: Sequence[str], channel: int, stderr: IO[bytes]) -> None:
        """``sandbox``: the command line that makes it and runs ``cat`` in it.

        Raises:
            OSError, SandboxError: it cannot be made.
        """
        info, info_end = os.pipe()
        ready, ready_end = os.pipe()
        self._status, status_end = os.pipe()
        self._read = b""
        self._server = server
        try:
            bwrap, *options = sandbox
            self._holder = subprocess.Popen(
                [bwrap, "--info-fd", str(info_end), *options],
                stdin=subprocess.PIPE,
                stdout=ready_end,
                stderr=stderr,
                pass_fds=[info_end],
                start_new_session=True,
            )
            try:
                server.fork([channel, stderr.fileno(), status_end, info, ready])
                assert self._holder.stdin is not None
                self._holder.stdin.write(b"\n")  # comes back when all is mounted
                self._holder.stdin.flush()
            except BaseException:
                self._kill_holder()
                raise
        except BaseException:
            os.close(self._status)
            raise
        finally:
            for fd in (info, info_end, ready, ready_end, status_end):
                os.close(fd)

    def _line(self, number: int, timeout_s: float) -> int | None:
        """What its parent wrote there; None where that has died before.

        Raises:
            subprocess.TimeoutExpired: there is nothing yet.
        """
        deadline = time.monotonic() + timeout_s
        while self._read.count(b"\n") <= number and self._status >= 0:
            if not select.select([self._status], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise subprocess.TimeoutExpired("cell", timeout_s)
            chunk = os.read(self._status, 64)
            if not chunk:
                os.close(self._status)
                self._status = -1
            self._read += chunk
        lines = self._read.split(b"\n")[:-1]
        return int(lines[number]) if number < len(lines) else None

    @property
    def pid(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._line(0, 0.0)
        return None

    def wait(self, timeout_s: float) -> int:
        """Raises SandboxError where there never was a process, since the server has died."""
        status = self._line(1, timeout_s)
        if status is None and self.pid is None:
            self._server.check()
        return -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)

    def _kill_holder(self) -> None:
        """With the first process of a pid namespace all others there are killed."""
        if self._holder.returncode is None:
            _kill(self._holder)

    def end(self) -> None:
        self._kill_holder()
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._line(1, _END_TIMEOUT_S)
        if self._status >= 0:
            os.close(self._status)
            self._status = -1


_servers: dict[tuple[str, ...], ForkServer] = {}
_finding, _trying = threading.Lock(), threading.Lock()


def fork_server(script: str, environment: dict[str, str]) -> ForkServer:
    """This process's own for such cells: started on first use, and again when it has died."""
    key = (script, *(f"{k}={v}" for k, v in sorted(environment.items())))
    with _finding:
        if key not in _servers or not _servers[key].is_alive:
            _servers[key] = ForkServer(script, environment)
        return _servers[key]


def can_fork(isolation: Isolation) -> bool:
    """Whether a process can be forked into a sandbox here; tried once per process, without torch."""
    with _trying:  # the builds of a pool begin at the same time
        return isolation is Isolation.BUBBLEWRAP and _try_to_fork(isolation)


@functools.cache
def _try_to_fork(isolation: Isolation) -> bool:
    host, inside = socket.socketpair()
    server = ForkServer("native.py", {"PATH": "/usr/bin:/bin"})
    process = None
    try:
        with inside, tempfile.TemporaryFile() as stderr:
            sandbox = wrap(["cat"], isolation=isolation, read_only=[str(INSIDE)])
            process = ForkedProcess(server, sandbox, inside.fileno(), stderr)
            host.settimeout(_PROBE_TIMEOUT_S)
            inside.close()
            if host.recv(16):
                return True
            stderr.seek(0)
            log.info("cells are executed, not forked, here: %s", stderr.read()[-400:].decode(errors="replace"))
    except (OSError, SandboxError) as e:
        log.info("cells are executed, not forked, here: %s", e)
    finally:
        if process is not None:
            process.end()
        server.close()
        host.close()
    return False
