"""Judging while later answers are still being generated, where generating and judging do not share a device."""

from __future__ import annotations

import threading
import time
from typing import Self
from urllib.parse import urlsplit

from kevin.core.config import JudgePoolConfig, PolicyConfig
from kevin.core.errors import HarnessError
from kevin.core.types import Kernel, Task, Verdict
from kevin.rollout.settings import Judge, Place

_HERE = ("localhost", "127.0.0.1", "::1")


def judges_beside(pool: JudgePoolConfig, policy: PolicyConfig | None = None) -> bool:
    """What ``pool.while_generating`` says; where it leaves that open, whether the devices are surely not the same.

    Args:
        policy: None for one that is being trained in this process.
    """
    if pool.while_generating != "auto":
        return pool.while_generating == "always"
    if pool.scheduler is not None:
        return True
    if policy is None or policy.backend != "openai":
        return False
    return policy.base_url is None or urlsplit(policy.base_url).hostname not in _HERE


class BesideJudge:
    """Judges on a thread of its own, each time all that was added since the last. Leaving it drops what waits."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._changed = threading.Condition()
        self._added: set[Place] = set()
        self._waiting: dict[Place, tuple[Task, Kernel]] = {}
        self._results: dict[Place, Verdict | HarnessError] = {}
        self._error: BaseException | None = None
        self._is_closed = False
        self._busy_s = 0.0
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._waiting.clear()
            self._is_closed = True
            self._changed.notify()

    def add(self, place: Place, task: Task, kernel: Kernel) -> None:
        """Once for a place; what is added again is known."""
        with self._changed:
            if place not in self._added:
                self._added.add(place)
                self._waiting[place] = (task, kernel)
                self._changed.notify()

    def busy_s(self) -> float:
        """Seconds of judging so far."""
        with self._changed:
            return self._busy_s + (time.monotonic() - self._busy_since if self._busy_since is not None else 0.0)

    def results(self) -> dict[Place, Verdict | HarnessError]:
        """Of all that was added, when the last is known; nothing can be added then. Raises what the judge raised."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                batch, self._waiting = self._waiting, {}
                if not batch:
                    return
                self._busy_since = time.monotonic()
            try:
                results = self._judge(list(batch.values()))
            except BaseException as e:  # for the thread that waits for the results
                self._error = e
                return
            with self._changed:
                self._results |= dict(zip(batch, results, strict=True))
                self._busy_s += time.monotonic() - self._busy_since
                self._busy_since = None
