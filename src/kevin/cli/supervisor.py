"""Stopping at any moment: the command runs in a child process, and this one ends it with everything below it.

Nothing is raised into the work. An exception out of a signal handler arrives wherever the program happens to be, inside
a lock of the standard library as well, and leaves that half done. Results are written in one piece each, so none is
lost when the work is simply killed, the processes that supervise others first: a judge must not live to see its
candidates die. Only the standard library is imported here, for this has to be ready before a signal can come.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

SAID = {
    signal.SIGINT: "interrupted; what is finished is kept",
    signal.SIGTERM: "terminated; what is finished is kept",
    signal.SIGHUP: "terminated with its terminal; what is finished is kept",
}
WORKFLOW_PID = "KEVIN_WORKFLOW_PID"
"""Environment variable with the process id of the workflow engine that a step belongs to."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TRACKER = "multiprocessing.resource_tracker"
_TRACKER_S, _END_S = 2.0, 10.0
"""Semaphores are removed by a process that ends by itself after all others; what the kernel does not let go at once
(a device that is busy) is not waited for longer."""
_FIRST_WAIT_S = 0.002
_POLL_S = 0.5

_notes: int | None = None


def note(kind: str, path: str | os.PathLike[str]) -> None:
    """Tell the supervisor of a ``log`` file, or of a folder of this command's own, to ``remove`` when it is killed."""
    if _notes is not None:
        os.write(_notes, f"{kind} {os.path.abspath(path)}\n".encode())  # noqa: PTH100


def end_gracefully(within_s: float) -> None:
    """Have a signal reach this command first, as SIGTERM, and end it only when it has not ended itself in time.

    A second signal ends it at once.
    """
    if _notes is not None:
        os.write(_notes, f"grace {within_s}\n".encode())


def leave(code: object) -> None:
    """End this command as the interpreter would, but take apart nothing that it imported: half a second with torch.

    Returns where there is no supervisor, or where the last words cannot be written: then the interpreter does it.
    """
    if _notes is None or not isinstance(code, int | None):
        return
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None where a shell has closed it
            stream.flush()
        os._exit(code or 0)


def supervise() -> None:
    """Returns in a child process; the calling one ends with the child's exit code, or with 128 + a signal's number.

    SIGTERM, SIGHUP and Ctrl-C end the child and all that it started; so does the end of the workflow engine that
    KEVIN_WORKFLOW_PID names, and whatever ends this process takes the child along. Call it before threads are started.
    """
    global _notes
    signals, written = os.pipe()
    os.set_blocking(signals, False)
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    watched = [s for s in SAID if signal.getsignal(s) is not signal.SIG_IGN]
    for number in (*watched, signal.SIGCHLD):
        signal.signal(number, _awake)
    workflow = _taken_pid(WORKFLOW_PID)
    import ctypes  # not before signals are handled: it takes as long as all else up to here

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what loses its parent becomes a child of this process
    notes, _notes = os.pipe()
    supervisor, child = os.getpid(), os.fork()
    if child:
        os.close(_notes)
        _Supervisor(child, signals, notes, workflow).run()
    signal.set_wakeup_fd(-1)
    for number in (*watched, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and is the supervisor's to answer
    for fd in (signals, written, notes):
        os.close(fd)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(128 + signal.SIGKILL)


def follow(variable: str, stop: signal.Signals) -> None:
    """Send ``stop`` to this process once the process whose id stands in the environment variable has ended, even when
    that was killed and could not say so.
    """
    pid = _taken_pid(variable)
    if pid is None:
        return

    def watch() -> None:
        while _is_alive(pid):
            time.sleep(_POLL_S)
        os.kill(os.getpid(), stop)

    threading.Thread(target=watch, name=f"follow-{pid}", daemon=True).start()


def _taken_pid(variable: str) -> int | None:
    """Taken out of the environment, as children follow only whom they are told to; None without one."""
    pid = os.environ.pop(variable, "")
    return int(pid) if pid.isdigit() else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _awake(signum: int, frame: FrameType | None) -> None:
    """Python writes the signal's number into the pipe, which is all that is wanted."""


class _Supervisor:
    def __init__(self, child: int, signals: int, notes: int, workflow: int | None) -> None:
        self._child, self._signals, self._notes, self._workflow = child, signals, notes, workflow
        self._said = b""
        self._status: int | None = None

    def run(self) -> None:
        """Until the child has ended, or has to. Does not return."""
        waited = [self._signals, self._notes]
        while self._status is None:
            for fd in select.select(waited, [], [], None if self._workflow is None else _POLL_S)[0]:
                if not (chunk := os.read(fd, 4096)):
                    waited.remove(fd)
                elif fd == self._notes:
                    self._said += chunk
                else:
                    for number in chunk:
                        if number in SAID:
                            self._stop(signal.Signals(number))
            self._reap()
            if self._workflow is not None and not _is_alive(self._workflow):
                self._stop(signal.SIGTERM)
        if self._status < 0:
            self._stop(signal.Signals(-self._status))
        self._end_all()
        os._exit(self._status)

    def _grace_s(self) -> float:
        """How long the child may take to end by itself."""
        self._hear()
        asked = [line.split()[1] for line in self._said.decode().split("\n") if line.startswith("grace ")]
        return float(asked[-1]) if asked else 0.0

    def _wait_for_grace(self) -> None:
        """Let the child end by itself, unless a second signal comes. Leaves with its exit code if it does."""
        deadline = time.monotonic() + self._grace_s()
        if time.monotonic() >= deadline or self._status is not None:
            return
        os.kill(self._child, signal.SIGTERM)
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._signals], [], [], left)[0]:
                numbers = os.read(self._signals, 4096)
                self._reap()
                if self._status is not None and self._status >= 0:
                    self._end_all()
                    os._exit(self._status)
                if self._status is not None or any(number in SAID for number in numbers):
                    return

    def _stop(self, number: signal.Signals) -> None:
        """End everything, say one sentence, leave."""
        if number in SAID:
            self._wait_for_grace()
        self._end_all()
        text = SAID.get(number) or f"its process was killed by {number.name}; what is finished is kept, start it again"
        if number is signal.SIGKILL:
            text += " (if it was not you: memory may have run out, which the system's log tells)"
        self._tidy(text)
        newline = "\n" if os.isatty(2) else ""  # a bar stands there
        with suppress(OSError):  # nobody may listen any more
            os.write(2, f"{newline}kevin: {text}\n".encode())
        os._exit(128 + number)

    def _tidy(self, text: str) -> None:
        """Remove the folders that the child told of, and end its log."""
        import shutil

        self._hear()
        for line in self._said.decode().split("\n"):
            kind, _, path = line.partition(" ")
            if kind == "remove":
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):
                    os.unlink(f"{path}.lock")  # noqa: PTH108
            elif kind == "log":
                with suppress(OSError), open(path, "a") as log:  # noqa: PTH123
                    log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR kevin: {text}\n")

    def _hear(self) -> None:
        while select.select([self._notes], [], [], 0)[0] and (chunk := os.read(self._notes, 4096)):
            self._said += chunk

    def _reap(self) -> bool:
        """Take the status of what has ended. Returns False when there is no child process any more."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                self._status = os.waitstatus_to_exitcode(status)

    def _end_all(self) -> None:
        """Kill all processes below this one, parents before their children, until there are none."""
        start, wait_s = time.monotonic(), _FIRST_WAIT_S
        while self._reap() and (spent := time.monotonic() - start) < _END_S:
            for pid in _descendants(with_trackers=spent > _TRACKER_S):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 0.05)


def _descendants(*, with_trackers: bool) -> list[int]:
    """Process ids of all below this one, parents first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as f:  # noqa: PTH123
                    parent = int(f.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return [pid for pid in found[1:] if with_trackers or not _is_tracker(pid)]


def _is_tracker(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:  # noqa: PTH123
            return _TRACKER.encode() in f.read()
    except OSError:
        return False


def quiet_trackers() -> None:
    """Have them say nothing of the semaphores that they remove after a kill."""
    rule = "ignore:resource_tracker:UserWarning"
    given = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = f"{given},{rule}" if given else rule
