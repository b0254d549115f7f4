"""The other end of `engine`: the process that inspects references and has kernels judged. It is told once how to judge.

The socket's first line is the set-up, each further line a pair; answers come in any order, under the pair's key. The
end of the connection is the end of the work.
"""

from __future__ import annotations

import json
import logging
import queue
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kevin.api.inspector import Inspectors
from kevin.core.config import JudgePoolConfig
from kevin.core.errors import HarnessError, KevinError
from kevin.core.files import disk_full
from kevin.core.protocol import JudgeProtocol
from kevin.core.scratch import scratch_folder
from kevin.core.texts import strict_json
from kevin.core.types import Kernel, Task, Verdict

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 64
"""Pairs that are worked on at once, each by a thread that mostly waits; more of them queue up here."""


def answer(fd: int) -> None:
    """Judge what comes in over the socket ``fd`` until its other end is closed."""
    with socket.socket(fileno=fd) as connection, ExitStack() as stack:
        lines = connection.makefile("r", encoding="utf-8", newline="\n")
        sender = _Sender(connection)
        try:
            desk = _Desk(json.loads(lines.readline()), stack)
        except Exception as e:
            sender.send({"error": _told(e)})
            return
        sender.send({"device_name": desk.device_name})
        work: queue.SimpleQueue[str] = queue.SimpleQueue()

        def serve() -> None:
            while True:
                sender.send(desk.answer(work.get()))

        for number in range(MAX_IN_FLIGHT):
            threading.Thread(target=serve, name=f"pair-{number}", daemon=True).start()
        for line in lines:
            work.put(line)


class _Sender:
    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        try:
            with self._lock:
                self._connection.sendall(strict_json(message).encode() + b"\n")
        except OSError:
            log.debug("nobody listens any more; the verdict is in the store")


class _Desk:
    """A pool and the inspectors, for pairs from any thread."""

    def __init__(self, setup: dict[str, Any], stack: ExitStack) -> None:
        from kevin.judge.pool.judge_pool import JudgePool

        protocol = JudgeProtocol.model_validate(setup["protocol"])
        store = Path(setup["store"]) if setup["store"] else stack.enter_context(scratch_folder("kevin-store-"))
        config = JudgePoolConfig.model_validate(setup["pool"])
        self._pool = stack.enter_context(JudgePool(protocol, store, config))
        self._inspectors = stack.enter_context(Inspectors(setup["reference_timeout_s"]))
        self._starting = threading.Lock()
        self.device_name = self._pool.device_name

    def answer(self, line: str) -> dict[str, Any]:
        asked = json.loads(line)
        try:
            verdict = self._judge(Task.model_validate(asked["task"]), Kernel.model_validate(asked["kernel"]))
        except Exception as e:
            return {"key": asked["key"], "error": _told(e)}
        return {"key": asked["key"], "verdict": verdict.model_dump_json()}

    def _judge(self, task: Task, kernel: Kernel) -> Verdict:
        with self._starting:
            self._pool.warm_up()
        if task.spec is None:
            task = task.model_copy(update={"spec": self._inspectors.inspect(task.source, task.id)})
        [verdict] = self._pool.judge([(task, kernel)])
        if isinstance(verdict, HarnessError):
            raise verdict
        return verdict


def _told(e: Exception) -> dict[str, str]:
    e = disk_full(e) or e
    if isinstance(e, KevinError):
        return {"type": type(e).__name__, "message": str(e)}
    log.debug("no verdict", exc_info=e)
    return {"type": "HarnessError", "message": f"no verdict was formed: {type(e).__name__}: {e}"}
