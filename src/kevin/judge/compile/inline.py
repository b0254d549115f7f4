"""Build stage of the ``load_inline`` dialect: import the candidate once in a sandbox that may run compilers.

A module that compiles when its model is made, or first called, has that done here too. A build that fails is told as
the candidate's failure even where its module swallows the error, unless what runs instead is its own or nobody minds.
The import has no GPU, so that builds do not disturb what is timed, and is told that there is one; only a module that
fails then is given one.
"""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task, digest
from kevin.judge.compile.compilers import find_nvcc, module_environment, module_folders, require_loadable, search_path
from kevin.judge.compile.native import (
    Build,
    check_compiler_space,
    compiler_excerpt,
    native_architecture,
    require_working,
)
from kevin.judge.compile.precompiled import precompiled_headers
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.sandbox.isolation import Isolation, detect_isolation, gpu_devices, toolchain

_FALLBACK, _SWALLOWED = "fallback_after_failed_build", "swallowed.txt"


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


def build_inline(
    task: Task, kernel: Kernel, protocol: JudgeProtocol, cache: Path, isolation: Isolation | None = None
) -> Build:
    """Import the module, which compiles its extensions. ``path`` of the result is the folder that holds them.

    One that swallows a failed build has a ``path`` too, and says in ``reason`` and ``message`` what failed.

    Raises:
        DeviceError: a CUDA module, and no CUDA toolkit.
    """
    start, cache = time.perf_counter(), cache.resolve()
    isolation = isolation or detect_isolation()
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
            python_flags=("-I",),
            environment=environment,
            forked=True,
        ) as cell:
            cell.prepare(setup | {"pretend_gpu": pretend})
            reply = cell.load(protocol.inline_build_timeout_s)
        return reply, [b for b in reply.get("builds", []) if isinstance(b, dict) and b.get("error")]

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
