"""The judge's own process, as its user sees it: pairs go in, futures of verdicts come out.

`answering` is the other end. What the store knows is answered here, and starts nothing; the same pair asked for twice
is judged once.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kevin.core.errors import HarnessError, KevinError, UsageError
from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import device_name
from kevin.core.types import Kernel, Task, Verdict
from kevin.judge.store import VerdictStore, verdict_key

if TYPE_CHECKING:
    from kevin.core.config import JudgePoolConfig

_COMMAND = (sys.executable, "-P", "-c", "from kevin.cli import main; main()", "answer")
_FOLLOWS = "KEVIN_WORKFLOW_PID"
"""Names the process that the command ends with: see `kevin.cli.supervisor`."""
_CLOSE_S = 20.0


class Setup(NamedTuple):
    """What the other end is told once: how to judge."""

    protocol: JudgeProtocol
    pool: JudgePoolConfig | None
    store: Path | None
    reference_timeout_s: float


class Engine:
    """Safe for threads. Its process starts when it is first needed, and again after it was lost."""

    def __init__(
        self,
        protocol: JudgeProtocol,
        pool: JudgePoolConfig | None,
        *,
        store: Path | None,
        reference_timeout_s: float,
    ) -> None:
        self.protocol = protocol
        self.store = VerdictStore(store) if store is not None else None
        self._setup = Setup(protocol, pool, store.resolve() if store is not None else None, reference_timeout_s)
        self._judges_here = pool is None or pool.scheduler is None
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._device_name: str | None = None
        self._is_closed = False
        self._open: dict[str, Future[Verdict]] = {}

    @property
    def device_name(self) -> str:
        """Raises DeviceError without a GPU, and HarnessError where a cluster's judge does not answer."""
        if self._device_name is None:
            self._device_name = device_name(self.protocol.device) if self._judges_here else self.start()
        return self._device_name

    def start(self) -> str:
        """Start the process unless it runs. Returns the device's name. Raises HarnessError where it cannot start."""
        with self._lock:
            return self._running().device_name

    def key(self, task: Task, kernel: Kernel) -> str:
        """Of the pair's verdict."""
        return verdict_key(task, kernel, self.protocol, self.device_name)

    def stored(self, key: str) -> Verdict | None:
        """What the store knows. Raises DataError for a damaged file."""
        return self.store.get(key) if self.store is not None else None

    def submit(self, task: Task, kernel: Kernel) -> Future[Verdict]:
        """The pair's verdict, from the store or to come; its future raises TaskError, or HarnessError.

        Raises:
            UsageError: the engine is closed, or belongs to another process.
            DataError: the store holds a damaged file under the pair's key.
            HarnessError: the judge cannot start.
        """
        self._require_open()
        key = self.key(task, kernel)
        if (known := self.stored(key)) is not None:
            done: Future[Verdict] = Future()
            done.set_result(known)
            return done
        with self._lock:
            if (same := self._open.get(key)) is not None:
                return same
            process = self._running()
            future: Future[Verdict] = Future()
            future.set_running_or_notify_cancel()  # others may wait for the same one, so nobody cancels it
            self._open[key] = future
            future.add_done_callback(lambda _: self._open.pop(key, None))
            process.ask(key, task, kernel, future)
        return future

    def _require_open(self) -> None:
        if os.getpid() != self._owner:
            raise UsageError("a Judge belongs to the process that made it: make another one after a fork")
        if self._is_closed:
            raise UsageError("this Judge is closed: make another one")

    def _running(self) -> _Process:
        self._require_open()
        if self._process is None or self._process.is_lost:
            self._process = _Process(self._setup)
        return self._process

    @property
    def is_well(self) -> bool:
        """False once its process was lost, until it is started again."""
        return not self._is_closed and (self._process is None or not self._process.is_lost)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._is_closed = True
            process, self._process = self._process, None
        if process is not None:
            process.close()


class _Process:
    def __init__(self, setup: Setup) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(
                [*_COMMAND, "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what references print must not get between a program's own lines
                start_new_session=True,  # Ctrl-C is for the program, which then closes this
                env={**os.environ, _FOLLOWS: str(os.getpid())},
            )
        self._channel = Connection(ours.detach())
        self._sending = threading.Lock()
        self._waiting: dict[str, Future[Verdict]] = {}
        self._settling = threading.Lock()
        self.is_lost = False
        self._send(setup)
        self.device_name = self._hello()
        threading.Thread(target=self._read, name="kevin-judge-answers", daemon=True).start()

    def _hello(self) -> str:
        """The device's name. Raises what keeps the other end from judging."""
        try:
            told: str | KevinError = self._channel.recv()
        except (EOFError, OSError):
            self.close()
            words = f"the judge's process ended before it was ready ({self._end()}); see its words above"
            raise HarnessError(words) from None
        if isinstance(told, KevinError):
            self.close()
            raise told
        return told

    def ask(self, key: str, task: Task, kernel: Kernel, future: Future[Verdict]) -> None:
        with self._settling:
            self._waiting[key] = future
        try:
            self._send((key, task, kernel))
        except OSError:
            self._lose("its connection broke")

    def _send(self, message: Any) -> None:
        with self._sending:
            self._channel.send(message)

    def _read(self) -> None:
        with suppress(EOFError, OSError):  # closed, from either end
            while True:
                key, answer = self._channel.recv()
                with self._settling:
                    future = self._waiting.pop(key, None)
                if future is None:
                    continue
                if isinstance(answer, Verdict):
                    future.set_result(answer)
                else:
                    future.set_exception(answer)
        self._lose("it ended")

    def _lose(self, why: str) -> None:
        """What is still waited for has no verdict; it may be asked for again."""
        self.is_lost = True
        with self._settling:
            left, self._waiting = self._waiting, {}
        for future in left.values():
            future.set_exception(HarnessError(f"the judge's process was lost before its verdict ({why}); try again"))

    def _end(self) -> str:
        code = self._popen.poll()
        return "still running" if code is None else f"exit code {code}"

    def close(self) -> None:
        with suppress(OSError), socket.socket(fileno=os.dup(self._channel.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        try:
            self._popen.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._popen.terminate()  # its supervisor ends all below it
            self._popen.wait()
        self._channel.close()
        self._lose("it was closed")
