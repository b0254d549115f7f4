"""Build stage of the ``load_inline`` dialect: import the candidate once in a sandbox that may run compilers.

A module that compiles when its model is made, or first called, has that done here too. A build that fails is told as
the candidate's failure even where its module swallows the error, unless what runs instead is its own or nobody minds.
The import has no GPU, so that builds do not disturb what is timed, and is told that there is one; only a module that
fails then is given one.

Torch's headers are precompiled for the bindings: parsing them is most of what these cost. Made once a toolchain, beside
the first builds, which do without; kept in the user's cache (1.1 GB). They change no outcome: the compiler takes them
only where they are what it would read itself.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from kevin.core.errors import DeviceError, HarnessError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task, digest
from kevin.judge.compile.compilers import (
    find_gxx,
    find_nvcc,
    module_environment,
    module_folders,
    require_loadable,
    search_path,
)
from kevin.judge.compile.native import (
    Build,
    check_compiler_space,
    compiler_excerpt,
    native_architecture,
    require_working,
)
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.sandbox.isolation import Isolation, detect_isolation, gpu_devices, toolchain

log = logging.getLogger(__name__)

_FALLBACK, _SWALLOWED = "fallback_after_failed_build", "swallowed.txt"
_HEADERS_TIMEOUT_S = 600.0
_FREE_BYTES = 8 << 30
"""Of the disk: with less no headers are precompiled."""
_LAYOUT = "2"
"""Of the folder of headers: changes with what `inside.build` puts there."""
_starting = threading.Lock()
_NARROW = Path(__file__).parents[1] / "inside" / "fast_include"


def _cache() -> Path:
    """Not absolute where the user has no home, for which pathlib would fail."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "kevin"  # noqa: PTH111


def _headers_folder(isolation: Isolation) -> Path:
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
    folder = _headers_folder(isolation)
    return folder if folder.is_dir() else None


def start_precompiling(isolation: Isolation) -> None:
    """Make them in the background unless they are there, or somebody else is at it."""
    with _starting:  # the builds of a pool begin at the same time
        _start(isolation)


@functools.cache
def _start(isolation: Isolation) -> None:
    threading.Thread(target=make_precompiled, args=(isolation,), daemon=True).start()


def make_precompiled(isolation: Isolation) -> None:
    """Make them now, unless they are there or cannot be made."""
    folder = _headers_folder(isolation)
    if not folder.is_absolute() or folder.is_dir():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in folder.parent.glob("making-*"):
            if time.time() - old.stat().st_mtime < _HEADERS_TIMEOUT_S:
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
        environment=module_environment(isolation),
    ) as cell:
        cell.prepare(setup)
        cell.raise_for(cell.load(_HEADERS_TIMEOUT_S))


def _build_error(text: str) -> str:
    """The compiler's words out of ninja's report."""
    keep = [line for line in text.split("\n") if not line.startswith(("[", "FAILED:", "ninja:"))]
    return re.sub(r"\S*/build-\w+/[0-9a-f]{24}/", "", compiler_excerpt("\n".join(keep)))


def _require_parts(kernel: Kernel, protocol: JudgeProtocol, cache: Path, isolation: Isolation) -> None:
    """Raises DeviceError where the host lacks what every extension is built with, so that no module is to blame."""
    if toolchain(isolation):
        return
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        raise DeviceError(
            f"load_inline modules cannot be built here: {header} is missing; install Python's headers "
            f"(Debian: apt-get install python3-dev)"
        )
    if shutil.which("ninja", path=search_path()) is None:
        raise DeviceError("load_inline modules cannot be built here: ninja is missing; pip install ninja")
    without_flags = protocol.model_copy(update={"cpp_flags": (), "cuda_flags": ()})
    for language in dict.fromkeys(("cpp", kernel.language)):
        require_working(language, without_flags, cache, isolation)


def _environment(kernel: Kernel, isolation: Isolation) -> dict[str, str]:
    """Raises DeviceError."""
    environment = module_environment(isolation)
    environment["MAX_JOBS"] = "1"  # as many builds as cores run at once, and what fails is not waited for by another
    if kernel.language == "cuda":
        find_nvcc(isolation)
        if os.environ.get("CUDA_HOME"):
            environment["CUDA_HOME"] = os.environ["CUDA_HOME"]
        capability = native_architecture().removeprefix("sm_")
        environment["TORCH_CUDA_ARCH_LIST"] = f"{capability[:-1]}.{capability[-1]}"
    return environment


def build_inline(task: Task, kernel: Kernel, protocol: JudgeProtocol, cache: Path) -> Build:
    """Import the module, which compiles its extensions. ``path`` of the result is the folder that holds them.

    One that swallows a failed build has a ``path`` too, and says in ``reason`` and ``message`` what failed.

    Raises:
        DeviceError: a CUDA module, and no CUDA toolkit.
    """
    start, cache, isolation = time.perf_counter(), cache.resolve(), detect_isolation()
    folder = cache / f"{digest('inline', task.source, kernel.source, protocol.device, *toolchain(isolation))[:40]}.ext"
    if folder.exists():
        known = folder / _SWALLOWED
        if known.exists():
            return Build(path=str(folder), reason=_FALLBACK, message=known.read_text("utf-8"), cached=True)
        return Build(path=str(folder), cached=True)
    cache.mkdir(parents=True, exist_ok=True)
    require_loadable(cache)
    # torch writes absolute paths into its build files, so the folder must be built under its final name
    marker = Path(tempfile.mkdtemp(prefix="build-", dir=cache))
    setup = {
        "mode": "build",
        "source": kernel.source,
        "task_source": task.source,
        "build_folder": str(marker),
        "num_threads": 1,
        "device": protocol.device,
    }
    headers = precompiled_headers(isolation)
    if headers is not None:
        setup["precompiled"] = str(headers)
    environment = _environment(kernel, isolation)

    def import_it(*, gpu: bool, pretend: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The cell's reply, and the builds in it that failed."""
        with Cell(
            "module.py",
            isolation=isolation,
            gpu=gpu,
            read_only=[*([str(headers)] if headers else []), *module_folders(kernel.language, isolation)],
            writable=[str(marker)],
            environment=environment,
            forked=True,
        ) as cell:
            cell.prepare(setup | {"pretend_gpu": pretend})
            reply = cell.load(protocol.inline_build_timeout_s)
        builds = reply.get("builds")
        return reply, [b for b in builds if isinstance(b, dict) and b.get("error")] if isinstance(builds, list) else []

    try:
        reply, failed = import_it(gpu=False, pretend=protocol.device == "cuda")
        if not failed and {"error", "unbuilt"} & reply.keys() and protocol.device == "cuda":
            reply, failed = import_it(gpu=bool(gpu_devices()), pretend=False)
        seconds = time.perf_counter() - start
        check_compiler_space(str([reply.get("error"), *failed]), cache)
        if failed:
            _require_parts(kernel, protocol, cache, isolation)
        message = _build_error(str(failed[0]["error"])) if failed else ""
        if failed and "error" not in reply:
            (marker / _SWALLOWED).write_bytes(message.encode(errors="replace"))
            marker.rename(folder)
            return Build(path=str(folder), reason=_FALLBACK, message=message, seconds=seconds)
        if failed:
            return Build(outcome=Outcome.COMPILE_ERROR, reason="compile_error", message=message, seconds=seconds)
        if "error" in reply:
            message = str(reply["error"])[:4000]
            outcome = Outcome.COMPILE_ERROR if "SyntaxError" in message else Outcome.RUNTIME_ERROR
            return Build(outcome=outcome, reason="import_error", message=message, seconds=seconds)
        marker.rename(folder)
        return Build(path=str(folder), seconds=seconds)
    except CandidateFailed as e:
        seconds = time.perf_counter() - start
        if e.outcome is Outcome.TIMEOUT:
            message = f"the build was stopped after {protocol.inline_build_timeout_s:g} s"
            return Build(outcome=Outcome.TIMEOUT, reason="compile_timeout", message=message, seconds=seconds)
        return Build(outcome=e.outcome, reason=e.reason, message=e.message, seconds=seconds)
    finally:
        shutil.rmtree(marker, ignore_errors=True)
