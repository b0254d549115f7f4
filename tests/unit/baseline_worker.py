"""What stands in for measuring a task, in another process: apart from tests, since a process imports what it is in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task


def measure_or_abort(task: Task, protocol: JudgeProtocol, wanted: tuple[str, ...]) -> list[dict[str, Any]]:
    """Where the compiler is asked, the process ends as often as the file has lines."""
    deaths = Path(os.environ["KEVIN_TEST_DEATHS"])
    if "compile" in wanted and (left := deaths.read_text()):
        deaths.write_text(left[:-1])
        os.abort()
    return [{"task_id": task.id, "baseline": name} for name in wanted]


def compile_or_end(task: Task, protocol: JudgeProtocol, wanted: tuple[str, ...]) -> None:
    """A file a task says which process it was; the ninth task ends it."""
    Path(os.environ["KEVIN_TEST_COMPILED"], f"{task.id}-{os.getpid()}").touch()
    if task.id == "task8":
        os.abort()
