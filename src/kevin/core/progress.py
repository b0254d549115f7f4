"""Progress for people and for logs: a bar on a terminal, plain log lines anywhere else."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from tqdm import tqdm

logger = logging.getLogger(__name__)
T = TypeVar("T")

LINE_INTERVAL_S = 15.0
"""Without a terminal, at most one line in this time, and one at the end."""


class Progress(Generic[T]):
    """Counts to a total. Iterate over it, or use it as a context manager and call `update`."""

    def __init__(self, items: Collection[T] | None, total: int, desc: str, unit: str, *, terminal: bool) -> None:
        self._items, self.total, self.desc, self.unit = items, total, desc, unit
        self.count = 0
        self._note = ""
        self._closed = False
        self._start = self._last_line = time.monotonic()
        self._bar = tqdm(total=total, desc=desc, unit=f" {unit}", dynamic_ncols=True) if terminal else None

    def update(self, num: int = 1) -> None:
        self.count += num
        if self._bar is not None:
            self._bar.update(num)
        elif time.monotonic() - self._last_line >= LINE_INTERVAL_S and self.count < self.total:
            self._log_line()

    def note(self, text: str) -> None:
        """A short remark behind the count, e.g. ``12 correct``."""
        self._note = text
        if self._bar is not None:
            self._bar.set_postfix_str(text)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._bar is not None:
            self._bar.close()
        else:
            self._log_line()

    def _log_line(self) -> None:
        now = time.monotonic()
        self._last_line = now
        elapsed = now - self._start
        parts = [f"{self.count}/{self.total} {self.unit}", f"{elapsed:.1f} s"]
        if 0 < self.count < self.total and not self._closed:
            parts.append(f"about {elapsed * (self.total - self.count) / self.count:.0f} s left")
        logger.info("%s: %s", self.desc, ", ".join([*parts, *([self._note] if self._note else [])]))

    def __iter__(self) -> Iterator[T]:
        if self._items is None:
            raise TypeError("this progress was made from a number: call update() instead of iterating")
        with self:
            for item in self._items:
                yield item
                self.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@overload
def progress(iterable_or_total: int, desc: str, unit: str) -> Progress[Any]: ...
@overload
def progress(iterable_or_total: Collection[T], desc: str, unit: str) -> Progress[T]: ...
def progress(iterable_or_total: Collection[T] | int, desc: str, unit: str) -> Progress[Any]:
    """A bar on standard error when that is a terminal, otherwise lines of the logger ``kevin.core.progress``.

    Args:
        iterable_or_total: what to iterate over, or the number to count to.
        desc: what is being done, e.g. ``turn 2/4: judge``.
        unit: what is counted, in the plural, e.g. ``kernels``.
    """
    terminal = sys.stderr.isatty()
    if isinstance(iterable_or_total, int):
        return Progress(None, iterable_or_total, desc, unit, terminal=terminal)
    return Progress(iterable_or_total, len(iterable_or_total), desc, unit, terminal=terminal)
