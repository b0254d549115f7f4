"""Progress for people and for logs: a bar on a terminal, plain log lines anywhere else."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Self

from tqdm import tqdm

logger = logging.getLogger(__name__)

LINE_INTERVAL_S = 15.0
"""Without a terminal, at most one line in this time, and one at the end."""


class Progress:
    """Counts to a total: a bar on standard error when that is a terminal, otherwise lines of this module's logger.

    Args:
        desc: what is being done, e.g. ``turn 2/4: judge``.
        unit: what is counted, in the plural, e.g. ``kernels``.
    """

    def __init__(self, total: int, desc: str, unit: str) -> None:
        self.total, self.desc, self.unit = total, desc, unit
        self.count = 0
        self._note = ""
        self._closed = False
        self._start = self._last_line = time.monotonic()
        self._bar = tqdm(total=total, desc=desc, unit=f" {unit}", dynamic_ncols=True, disable=None)
        self._in_lines = bool(self._bar.disable)

    def update(self, num: int = 1) -> None:
        self.count += num
        self._bar.update(num)
        if self._in_lines and time.monotonic() - self._last_line >= LINE_INTERVAL_S and self.count < self.total:
            self._log_line()

    def note(self, text: str) -> None:
        """A short remark behind the count, e.g. ``12 correct``."""
        self._note = text
        self._bar.set_postfix_str(text)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._bar.close()
        if self._in_lines:
            self._log_line()

    def _log_line(self) -> None:
        now = time.monotonic()
        self._last_line = now
        elapsed = now - self._start
        parts = [f"{self.count}/{self.total} {self.unit}", f"{elapsed:.1f} s"]
        if 0 < self.count < self.total and not self._closed:
            parts.append(f"about {elapsed * (self.total - self.count) / self.count:.0f} s left")
        logger.info("%s: %s", self.desc, ", ".join([*parts, *([self._note] if self._note else [])]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
