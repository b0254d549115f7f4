"""Precompiled torch headers for the bindings of ``load_inline`` modules: parsing them is most of what these cost.

Made once a toolchain, beside the first builds, which do without; kept in the user's cache (1.1 GB). They change no
outcome: the compiler takes them only where they are what it would read itself.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from kevin.core.errors import DeviceError, HarnessError
from kevin.core.types import digest
from kevin.judge.compile.compilers import find_gxx, module_environment, module_folders
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.sandbox.isolation import Isolation, toolchain

log = logging.getLogger(__name__)

_TIMEOUT_S = 600.0
_FREE_BYTES = 8 << 30
"""Of the disk: with less they are not made."""
_LAYOUT = "2"
"""Of the folder: changes with what `inside.build` puts there."""
_starting = threading.Lock()
_NARROW = Path(__file__).parents[1] / "inside" / "fast_include"


def _cache() -> Path:
    """Not absolute where the user has no home, for which pathlib would fail."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "kevin"  # noqa: PTH111


def _folder(isolation: Isolation) -> Path:
    """Of what the compiler itself does not check: which headers, and where they stand."""
    environment = module_environment(isolation)
    command = "c++"
    with contextlib.suppress(DeviceError):  # a module may do without
        command = shlex.join(find_gxx(isolation)) if "CXX" in environment else command
    compiler = Path(shutil.which(shlex.split(command)[0], path=environment["PATH"]) or sys.executable).resolve()
    version = (command, str(compiler), str(compiler.stat().st_mtime_ns))
    narrow = [p.read_text("utf-8") for p in sorted(_NARROW.rglob("*.h"))]
    about = (
        _LAYOUT,
        torch.__version__,
        torch.__path__[0],
        sys.prefix,
        *version,
        str(isolation),
        *toolchain(isolation),
        *narrow,
    )
    return _cache() / f"headers-{digest('headers', *about)[:16]}"


def precompiled_headers(isolation: Isolation) -> Path | None:
    """The folder with ``narrow`` and ``plain``; None while there is none."""
    folder = _folder(isolation)
    return folder if folder.is_dir() else None


def start_precompiling(isolation: Isolation) -> None:
    """Make them in the background unless they are there, or somebody else is at it."""
    with _starting:  # the builds of a pool begin at the same time
        _start(isolation)


@functools.cache
def _start(isolation: Isolation) -> None:
    threading.Thread(target=_make, args=(_folder(isolation), isolation), daemon=True).start()


def make_precompiled(isolation: Isolation) -> None:
    """Make them now, unless they are there or cannot be made."""
    _make(_folder(isolation), isolation)


def _make(folder: Path, isolation: Isolation) -> None:
    if not folder.is_absolute() or folder.is_dir():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in folder.parent.glob("making-*"):
            if time.time() - old.stat().st_mtime < _TIMEOUT_S:
                return
            shutil.rmtree(old, ignore_errors=True)
        if shutil.disk_usage(folder.parent).free < _FREE_BYTES:
            log.info("%s: too little space for precompiled headers; builds go on without", folder.parent)
            return
        making = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
        try:
            precompile(making, isolation)
            if not folder.is_dir():
                making.rename(folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    except (HarnessError, CandidateFailed, OSError) as e:
        log.warning("no precompiled headers; builds go on without: %s", e)


def precompile(folder: Path, isolation: Isolation) -> None:
    """Compile the headers into ``folder``, in a sandbox like that of a build.

    Raises:
        CandidateFailed: the compiler failed.
    """
    setup = {"mode": "precompile", "build_folder": str(folder), "num_threads": 1, "device": "cpu", "source": ""}
    with Cell(
        "module.py",
        isolation=isolation,
        read_only=module_folders("cpp", isolation),
        writable=[str(folder)],
        python_flags=("-I",),
        environment=module_environment(isolation),
    ) as cell:
        cell.prepare(setup)
        cell.raise_for(cell.load(_TIMEOUT_S))
