"""Temporary files and folders do not outlive their process, even one that was killed: its successors remove them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = ".lock"

on_made: Callable[[Path], None] = lambda path: None  # noqa: E731
"""Told of each folder, so that whoever kills this process can remove it, and the lock of the same name beside it."""


@contextmanager
def lock_held(fd: int, *, exclusive: bool = True) -> Iterator[None]:
    """The lock of an open file, waited for; ``fd`` is closed afterwards."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of a file of this user's; None where a process has it, or it is gone."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):  # held by somebody, or a file system without locks: then nothing is ever taken for stale
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(fd)
        if found.st_nlink and found.st_uid == os.getuid():
            return fd
    os.close(fd)
    return None


def new_locked_file(parent: Path, prefix: str, suffix: str) -> tuple[int, Path]:
    """An empty file, and a descriptor that holds its lock for as long as it is open, in this process at most."""
    while True:
        fd, name = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=parent)
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink:
            return fd, Path(name)
        os.close(fd)  # somebody took it for stale before it was locked


def remove_stale(parent: Path, prefix: str, suffix: str) -> None:
    """Remove such files whose process is gone, and the folder of the same name without ``suffix``, if there is one."""
    names = [entry.name for entry in os.scandir(parent) if entry.name.startswith(prefix)]
    for path in (parent / name for name in names if name.endswith(suffix)):
        if (fd := _locked(path)) is not None:
            if suffix == _LOCK:
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
            os.close(fd)


@contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder, gone when left; those that killed processes left there are removed first.

    Whose process lives is told by a lock on a file beside the folder, on a network drive as well.

    Args:
        prefix: of its name, by which its kind is known.
        parent: where it is made; the system's temporary folder by default.
    """
    parent = parent or Path(tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    remove_stale(parent, prefix, _LOCK)
    fd, lock = new_locked_file(parent, prefix, _LOCK)
    folder = lock.with_suffix("")
    on_made(folder)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)
        os.close(fd)
