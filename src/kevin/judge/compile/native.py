"""Compile a ``c_abi`` kernel to a shared object, inside the sandbox, once per distinct content.

A compiler that crashes, hangs or runs out of memory is the candidate's outcome; a missing compiler is ours.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from pydantic import Field

from kevin.core import abi
from kevin.core.errors import DeviceError, SandboxError
from kevin.core.files import check_space, writing
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Frozen, Kernel, Outcome, TaskSpec, digest
from kevin.judge.sandbox.isolation import Isolation, detect_isolation, toolchain, with_parent, wrap

_COMPILER_MEMORY_BYTES: dict[str, int] = {"cpp": 3 << 30, "cuda": 12 << 30}
_MAX_LIBRARY_BYTES = 64 << 20


class Build(Frozen):
    """What came of building one kernel: a path, or an outcome with the compiler's words.

    Both a path and a reason: it can run without what failed to build.
    """

    path: str | None = None
    """The shared object (``c_abi``) or the folder of built extensions (``load_inline``)."""
    outcome: Outcome | None = None
    reason: str | None = None
    message: str = ""
    seconds: float = 0.0
    cached: bool = False
    resources: dict[str, int] = Field(default_factory=dict)
    """What nvcc says of a ``c_abi`` kernel just built, the largest over its functions: registers a thread, bytes of
    spills to memory and of shared memory."""


_CUDA_FOOTER = """#line 1 "harness.cu"
extern "C" const char* kevin_last_error() {
  const cudaError_t e = cudaGetLastError();
  return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}
extern "C" void kevin_load() {
  cudaFree(nullptr);
  cudaGetLastError();
}
"""


@functools.cache
def native_architecture() -> str:
    """``-arch`` of the first GPU here, e.g. ``sm_90``. Raises DeviceError where there is none to ask."""
    try:
        query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
        run = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
        return "sm_" + run.stdout.split()[0].replace(".", "")
    except (OSError, subprocess.SubprocessError, IndexError):
        raise DeviceError(
            "no GPU here to compile for: add the architecture to judge.cuda_flags, e.g. -arch=sm_90"
        ) from None


def check_architecture(protocol: JudgeProtocol, capability: tuple[int, int]) -> None:
    """Raises DeviceError where ``judge.cuda_flags`` asks for code that a GPU of this compute capability cannot run."""
    own = 10 * capability[0] + capability[1]
    named = [int(n) for f in protocol.cuda_flags for n in re.findall(r"(?:sm|compute)_(\d+)", f)]
    if named and min(named) > own:
        raise DeviceError(
            f"judge.cuda_flags compiles for sm_{min(named)}, but the GPU here is sm_{own}: use -arch=sm_{own} or "
            f"leave the architecture out, to compile for the GPU that is found"
        )


def cuda_flags(protocol: JudgeProtocol) -> list[str]:
    flags = list(protocol.cuda_flags)
    if not any(f.startswith(("-arch", "--gpu-architecture", "-gencode")) for f in flags):
        flags.append(f"-arch={native_architecture()}")
    return flags


def translation_unit(kernel: Kernel, spec: TaskSpec) -> str:
    """Header and candidate in one file; ``#line`` makes the compiler count the candidate's own lines."""
    name = "kernel.cu" if kernel.language == "cuda" else "kernel.cpp"
    footer = _CUDA_FOOTER if kernel.language == "cuda" else ""
    return f'{abi.header(spec, kernel.language)}#line 1 "{name}"\n{kernel.source.rstrip()}\n{footer}'


@functools.cache
def processor() -> str:
    """What ``-march=native`` depends on: builds of one cache may be asked for by unlike machines of a cluster."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    told = [line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))]
    return " ".join([platform.machine(), *sorted(told[0] if told else [])])


def find_nvcc() -> str:
    """Raises DeviceError where the CUDA toolkit is not installed."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = shutil.which("nvcc") or f"{home}/bin/nvcc"
    if not Path(nvcc).exists():
        raise DeviceError("nvcc was not found: install the CUDA toolkit or put it on PATH to judge CUDA kernels")
    return nvcc


def compiler_command(kernel: Kernel, protocol: JudgeProtocol, source: str, output: str) -> list[str]:
    """Raises DeviceError when the compiler is not installed."""
    if kernel.language == "cuda":
        # the harness's own constants are often unused
        flags = [*cuda_flags(protocol), "-Xptxas", "-v", "-diag-suppress=177"]
        return [find_nvcc(), *flags, "-shared", "-Xcompiler", "-fPIC", "-o", output, source]
    gxx = os.environ.get("CXX") or shutil.which("g++")
    if not gxx:
        raise DeviceError("g++ was not found: install a C++ compiler (e.g. apt-get install g++) or set CXX")
    return [gxx, *protocol.cpp_flags, "-shared", "-fPIC", "-fdiagnostics-color=never", "-o", output, source]


def compiler_excerpt(text: str, max_errors: int = 3, max_lines: int = 24) -> str:
    """The first errors with their source lines; warnings and notes are left out."""
    keep: list[str] = []
    errors = 0
    in_error = False
    for line in text.replace("\u2018", "'").replace("\u2019", "'").splitlines():
        head = re.match(r"^(?:\S+?[:(]\d+[:)]?.*?|ptxas )\b(fatal error|error|fatal|warning|note|remark)\b", line)
        if head:
            in_error = head.group(1) in ("error", "fatal error", "fatal")
            errors += in_error
            if errors > max_errors:
                break
        elif re.match(r"^\S+: (In|At) |\d+ errors? detected in the compilation", line) or line.startswith(
            ("In file included", "compilation terminated")
        ):
            in_error = False
        if in_error:
            keep.append(line.rstrip())
    if not keep:
        keep = [line.rstrip() for line in text.splitlines() if line.strip()][-max_lines:]
    return "\n".join(keep[:max_lines])


_RESOURCES = {
    "registers": r"Used (\d+) registers",
    "spilled_bytes": r"(\d+) bytes spill stores",
    "shared_bytes": r"(\d+) bytes smem",
}


def resources_used(text: str) -> dict[str, int]:
    """From the words of ``ptxas -v``; empty where it says nothing."""
    found = {name: [int(n) for n in re.findall(pattern, text)] for name, pattern in _RESOURCES.items()}
    return {name: max(numbers) for name, numbers in found.items() if numbers}


def without_resources(text: str) -> str:
    """A compiler's words as they would be without ``ptxas -v``."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not re.match(r"ptxas info|\s+\d+ bytes stack frame", line))


def _limits(memory_bytes: int) -> list[str]:
    return [*with_parent(), "prlimit", f"--as={memory_bytes}", f"--fsize={_MAX_LIBRARY_BYTES}", "--core=0", "--"]


def compiler_environment(folder: str) -> dict[str, str]:
    """``folder`` holds the temporary files: nvcc names them by its process number, which is the same in every sandbox,
    and not every isolation has a /tmp of its own."""
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8", "TMPDIR": folder}
    return environment | {name: os.environ[name] for name in ("CUDA_HOME", "CXX") if name in os.environ}


def run_limited(
    argv: list[str], timeout_s: float, memory_bytes: int, environment: dict[str, str]
) -> tuple[int | None, str]:
    """Exit status (None: killed at the time limit) and combined output. The whole process group dies with it."""
    with tempfile.TemporaryFile() as out:
        proc = subprocess.Popen(
            [*_limits(memory_bytes), *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
        try:
            status: int | None = proc.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(proc.pid, signal.SIGKILL)
            proc.wait()
        out.seek(0)
        return status, out.read(1 << 18).decode(errors="replace")


def check_compiler_space(text: str, folder: Path) -> None:
    """Raises OSError where a compiler that says ``text`` failed because there is no space in ``folder`` or /tmp."""
    if "No space left on device" in text:
        for place in (folder, Path("/tmp")):
            check_space(place / "*")


def build_native(
    kernel: Kernel, spec: TaskSpec, protocol: JudgeProtocol, cache: Path, isolation: Isolation | None = None
) -> Build:
    """Compile, or answer from ``cache``. Only successes are cached: a failure is in the verdict store anyway."""
    start, cache = time.perf_counter(), cache.resolve()
    isolation = isolation or detect_isolation()
    unit = translation_unit(kernel, spec)
    suffix = ".cu" if kernel.language == "cuda" else ".cpp"
    flags = list(protocol.cuda_flags) if kernel.language == "cuda" else [*protocol.cpp_flags, processor()]
    library = cache / f"{digest('build', unit, *toolchain(isolation), *flags)[:40]}.so"
    if library.exists():
        return Build(path=str(library), cached=True)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as folder:
        source, output = Path(folder) / f"unit{suffix}", Path(folder) / "unit.so"
        with writing(library):
            source.write_text(unit)
        environment = compiler_environment(folder)
        argv = wrap(
            compiler_command(kernel, protocol, str(source), str(output)),
            isolation=isolation,
            read_only=["/usr/local"],
            writable=[folder],
            environment=environment,
        )
        memory_bytes = _COMPILER_MEMORY_BYTES[kernel.language]
        status, text = run_limited(argv, protocol.build_timeout_s, memory_bytes, environment)
        seconds = time.perf_counter() - start
        if status == 0 and output.exists():
            output.rename(library)
            return Build(path=str(library), seconds=seconds, resources=resources_used(text))
    if status is None:
        message = f"the compiler was stopped after {protocol.build_timeout_s:g} s"
        return Build(outcome=Outcome.TIMEOUT, reason="compile_timeout", message=message, seconds=seconds)
    check_compiler_space(text, cache)
    if f"{source}: No such file" in text or not text.strip():
        raise SandboxError(f"the compiler could not run in the sandbox (status {status}): {text.strip()[:400]}")
    if fatal := re.search(
        r"^nvcc fatal\s*: (Unsupported gpu architecture.*|Value .* is not defined for option.*)", text, re.M
    ):
        raise DeviceError(
            f"nvcc refuses judge.cuda_flags: {fatal.group(1)}; name an architecture that this toolkit knows"
        )
    text = without_resources(text).replace(str(source), "kernel" + suffix)
    reason = "compiler_crash" if "internal compiler error" in text or status > 128 else "compile_error"
    message = compiler_excerpt(text) or f"the compiler ended with status {status}"
    return Build(outcome=Outcome.COMPILE_ERROR, reason=reason, message=message, seconds=seconds)
