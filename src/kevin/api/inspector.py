"""References are looked into by processes of their own, which can be ended: one that hangs holds nobody up for long.

``python -m kevin.api.inspector SECONDS`` is such a process: it reads off what references take and give, a line of JSON
each.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from kevin.core.errors import HarnessError, TaskError
from kevin.core.heavy import import_torch
from kevin.core.texts import strict_json
from kevin.core.types import TaskSpec, digest

_MAX_PROCESSES = 2
_PATIENCE_S = 5.0
"""A second process, which takes seconds to start, is for when the first one is held up."""
_REMEMBERED = 4096
_START_S = 120.0
"""For importing torch, on a machine that is busy."""
_KILL_AFTER_S = 5.0
"""The process ends what hangs by itself and says where it was, if it can; else it is ended, this much later."""


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
        self._popen: subprocess.Popen[bytes] | None = None

    def inspect(self, source: str, name: str) -> TaskSpec | TaskError:
        process = self._popen or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(strict_json({"source": source, "name": name}).encode() + b"\n")
            process.stdin.flush()
            line = self._line(self._timeout_s + _KILL_AFTER_S)
        except (BrokenPipeError, EOFError):
            self.close()
            return TaskError(f"{name}: the reference ended the process that looked into it; take out what exits there")
        except TimeoutError:
            self.close()
            return TaskError(
                f"{name}: the reference was not done within {self._timeout_s:g} s: look for a loop, a wait or a "
                f"download there, and take it out"
            )
        answer = json.loads(line)
        if "spec" in answer:
            return TaskSpec.model_validate(answer["spec"])
        return TaskError(answer["error"])

    def _start(self) -> subprocess.Popen[bytes]:
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "kevin.api.inspector", str(self._timeout_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._line(_START_S)
        except (EOFError, TimeoutError):
            self.close()
            raise HarnessError("no process could be started to look into references; see its words above") from None
        return self._popen

    def _line(self, timeout_s: float) -> bytes:
        """The next line that it writes. Raises TimeoutError, or EOFError when it has ended."""
        assert self._popen is not None and self._popen.stdout is not None
        fd, deadline, line = self._popen.stdout.fileno(), time.monotonic() + timeout_s, b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise TimeoutError
            if not (chunk := os.read(fd, 1 << 16)):
                raise EOFError
            line += chunk
        return line

    def close(self) -> None:
        """End it, with all that a reference may have started."""
        process, self._popen = self._popen, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def main(timeout_s: float) -> None:
    """Answer every line of standard input until it ends; what references print goes to standard error."""
    import_torch()
    import torch

    from kevin.tasks import limit
    from kevin.tasks.format import inspect_task

    torch.set_num_threads(1)
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    limit.LIMIT_S = timeout_s
    answers.write("ready\n")
    for line in questions:
        asked = json.loads(line)
        try:
            told: dict[str, Any] = {"spec": inspect_task(asked["source"], asked["name"]).model_dump(mode="json")}
        except TaskError as e:
            told = {"error": str(e)}
        answers.write(strict_json(told) + "\n")


if __name__ == "__main__":
    main(float(sys.argv[1]))
