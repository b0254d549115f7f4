"""The other end of `engine`: the process that inspects references and has kernels judged. It is told once how to judge.

Of what comes in over the socket the first is the set-up, each further one a pair; answers come in any order, under the
pair's key. The end of the connection is the end of the work.

References are looked into by processes of their own, which can be ended: one that hangs holds nobody up for long.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections import OrderedDict
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from kevin.api.engine import Setup
from kevin.core.errors import HarnessError, KevinError, TaskError
from kevin.core.files import disk_full
from kevin.core.scratch import scratch_folder
from kevin.core.types import Kernel, Task, TaskSpec, Verdict, digest

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 64
"""Pairs that are worked on at once, each by a thread that mostly waits; more of them queue up here."""
_MAX_PROCESSES = 2
_PATIENCE_S = 5.0
"""A second process, which takes seconds to start, is for when the first one is held up."""
_REMEMBERED = 4096
_START_S = 120.0
"""For importing torch, on a machine that is busy."""
_KILL_AFTER_S = 5.0
"""The process ends what hangs by itself and says where it was, if it can; else it is ended, this much later."""


def answer(fd: int) -> None:
    """Judge what comes in over the socket ``fd`` until its other end is closed."""
    with Connection(fd) as connection, ExitStack() as stack:
        sending = threading.Lock()

        def send(answer: Any) -> None:
            try:
                with sending:
                    connection.send(answer)
            except OSError:
                log.debug("nobody listens any more; the verdict is in the store")

        try:
            desk = _Desk(connection.recv(), stack)
        except Exception as e:
            send(_told(e))
            return
        send(desk.device_name)
        work: queue.SimpleQueue[tuple[str, Task, Kernel]] = queue.SimpleQueue()

        def serve() -> None:
            while True:
                key, task, kernel = work.get()
                send((key, desk.answer(task, kernel)))

        for number in range(MAX_IN_FLIGHT):
            threading.Thread(target=serve, name=f"pair-{number}", daemon=True).start()
        with suppress(EOFError, OSError):
            while True:
                work.put(connection.recv())


class _Desk:
    """A pool and the inspectors, for pairs from any thread."""

    def __init__(self, setup: Setup, stack: ExitStack) -> None:
        from kevin.judge.pool.judge_pool import JudgePool

        store = setup.store or stack.enter_context(scratch_folder("kevin-store-"))
        self._pool = stack.enter_context(JudgePool(setup.protocol, store, setup.pool))
        self._inspectors = stack.enter_context(Inspectors(setup.reference_timeout_s))
        self._starting = threading.Lock()
        self.device_name = self._pool.device_name

    def answer(self, task: Task, kernel: Kernel) -> Verdict | KevinError:
        try:
            with self._starting:
                self._pool.warm_up()
            if task.spec is None:
                task = task.model_copy(update={"spec": self._inspectors.inspect(task.source, task.id)})
            [verdict] = self._pool.judge([(task, kernel)])
        except Exception as e:
            return _told(e)
        return verdict


def _told(e: Exception) -> KevinError:
    e = disk_full(e) or e
    if isinstance(e, KevinError):
        return e
    log.debug("no verdict", exc_info=e)
    return HarnessError(f"no verdict was formed: {type(e).__name__}: {e}")


class Inspectors:
    """Specifications of references, each looked into once. Safe for threads. Leaving ends the processes."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._idle: queue.LifoQueue[_Process] = queue.LifoQueue()
        self._idle.put(_Process(timeout_s))
        self._num_processes = 1
        self._lock = threading.Lock()
        self._known: OrderedDict[str, TaskSpec | TaskError] = OrderedDict()

    def inspect(self, source: str, name: str) -> TaskSpec:
        """What a reference takes and gives.

        Raises:
            TaskError: it is not in the format, fails, or does not end; the same one fails at once the next time.
            HarnessError: no process could be started for it.
        """
        key = digest("inspected", source, name)
        with self._lock:
            found = self._known.get(key)
        if found is None:
            process = self._take()
            try:
                found = process.inspect(source, name)
            finally:
                self._idle.put(process)
            with self._lock:
                self._known[key] = found
                while len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
        if isinstance(found, TaskError):
            raise TaskError(str(found))
        return found

    def _take(self) -> _Process:
        try:
            return self._idle.get(timeout=_PATIENCE_S)
        except queue.Empty:
            with self._lock:
                if self._num_processes < _MAX_PROCESSES:
                    self._num_processes += 1
                    return _Process(self._timeout_s)
        return self._idle.get()

    def __enter__(self) -> Inspectors:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()


class _Process:
    """Started when it is needed, ended and started again when a reference hangs or ends it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._running: tuple[SpawnProcess, Connection] | None = None

    def inspect(self, source: str, name: str) -> TaskSpec | TaskError:
        _, connection = self._running or self._start()
        try:
            connection.send((source, name))
            found: TaskSpec | TaskError = _received(connection, self._timeout_s + _KILL_AFTER_S)
            return found
        except TimeoutError:
            self.close()
            return TaskError(
                f"{name}: the reference was not done within {self._timeout_s:g} s: look for a loop, a wait or a "
                f"download there, and take it out"
            )
        except (EOFError, OSError):
            self.close()
            return TaskError(f"{name}: the reference ended the process that looked into it; take out what exits there")

    def _start(self) -> tuple[SpawnProcess, Connection]:
        spawn = get_context("spawn")
        connection, other = spawn.Pipe()
        process = spawn.Process(target=_inspect_all, args=(other, self._timeout_s), name="kevin-inspector")
        process.start()
        other.close()
        self._running = process, connection
        try:
            _received(connection, _START_S)
        except (EOFError, OSError):
            self.close()
            raise HarnessError("no process could be started to look into references; see its words above") from None
        return self._running

    def close(self) -> None:
        """End it, with all that a reference may have started."""
        if self._running is None:
            return
        process, connection = self._running
        self._running = None
        assert process.pid is not None, "it was started"
        with suppress(ProcessLookupError):  # it has no group of its own yet
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        connection.close()


def _received(connection: Connection, timeout_s: float) -> Any:
    """What comes next. Raises TimeoutError, or EOFError when the other end is gone."""
    if not connection.poll(timeout_s):
        raise TimeoutError
    return connection.recv()


def _inspect_all(connection: Connection, timeout_s: float) -> None:
    """In a process of its own: answer all that comes; what references print goes to standard error."""
    from kevin.core.heavy import import_torch
    from kevin.tasks import format as references
    from kevin.tasks.format import inspect_task

    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    import_torch()
    import torch

    torch.set_num_threads(1)
    references.LIMIT_S = timeout_s
    connection.send("ready")
    with suppress(EOFError):
        while True:
            source, name = connection.recv()
            try:
                connection.send(inspect_task(source, name))
            except TaskError as e:
                connection.send(TaskError(str(e)))
