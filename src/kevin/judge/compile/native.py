"""Compile a ``c_abi`` kernel to a shared object, inside the sandbox, once per distinct content.

A compiler that crashes, hangs or runs out of memory is the candidate's outcome; one that is missing, or compiles
nothing at all, is ours.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from kevin.core import abi
from kevin.core.errors import DeviceError, SandboxError
from kevin.core.files import check_space, writing
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Frozen, Kernel, Language, Outcome, TaskSpec, digest
from kevin.judge.compile.compilers import (
    compiler_folders,
    find_gxx,
    find_nvcc,
    require_loadable,
    runtime_folders,
)
from kevin.judge.sandbox.isolation import Isolation, detect_isolation, toolchain, with_parent, wrap

_COMPILER_MEMORY_BYTES: dict[str, int] = {"cpp": 3 << 30, "cuda": 12 << 30}
_MAX_LIBRARY_BYTES = 64 << 20
_OTHER_LAUNCHER = re.compile(
    rf"error.*\b(conflict|ambiguat|overload|linkage|incompatible|redeclared).*\b{abi.LAUNCHER}\b"
    rf"|error.*\b{abi.LAUNCHER}\b.*\b(conflict|ambiguat|overload|linkage|incompatible|redeclared)"
)
"""What compilers say of a launcher that is declared otherwise than the harness declares it."""
_OF_PYTORCH = re.compile(r"error: (?:torch|ATen|c10|pybind11)/\S*: No such file")
_OTHER_FLAGS = re.compile(r"error.*(?:option mismatch|\bflags?\b)")
_UNDEFINED = re.compile(r'error: identifier "(\w+)" is undefined')
_HEADERS = {
    **dict.fromkeys(("half", "half2", "__half", "__half2"), "cuda_fp16.h"),
    **dict.fromkeys(("nv_bfloat16", "__nv_bfloat16", "nv_bfloat162", "__nv_bfloat162"), "cuda_bf16.h"),
    **dict.fromkeys(("FLT_MAX", "FLT_MIN", "FLT_EPSILON"), "cfloat"),
}
"""What nvcc does not say; g++ names headers itself."""
_HEADER_MISSING = re.compile(r"\bnote: .* is defined in header ")
_LATER_STANDARD = re.compile(
    r"note: .* only available (?:from C\+\+|with .-std=)|"
    r"error: .(?:assume_aligned|atomic_ref|barrier|bit_cast|bit_ceil|"
    r"countl_zero|countr_zero|expected|format|has_single_bit|jthread|latch|lerp|mdspan|midpoint|numbers|popcount|ranges|"
    r"remove_cvref(?:_t)?|rotl|rotr|source_location|span|ssize|views). (?:is not a member of|in namespace) .std\b"
)
"""What g++ says of names that its standard does not have."""
_CRASH_STATUS = 4
"""Of a GCC in which something crashed; with ``-pass-exit-codes`` also where its driver did not see that."""
_PROBE = {
    "cpp": '#include <cmath>\nextern "C" void launch(const float* x, float* y) { y[0] = std::exp(x[0]); }\n',
    "cuda": "__global__ void probe(float* y) { y[0] = 1.0f; }\n",
}
"""What every compiler compiles that works at all."""
_proven: set[tuple[object, ...]] = set()
"""Compilers, with their flags and walls, that have compiled something in this process."""


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
        lines = Path("/proc/cpuinfo").read_text("utf-8").split("\n")
    except OSError:
        return platform.machine()
    told = [line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))]
    return " ".join([platform.machine(), *sorted(told[0] if told else [])])


def compiler_command(
    language: Language, protocol: JudgeProtocol, source: str, output: str, isolation: Isolation
) -> list[str]:
    """Raises DeviceError when the compiler is not installed."""
    if language == "cuda":
        nvcc = find_nvcc(isolation)
        # the harness's own constants are often unused
        flags = [*cuda_flags(protocol), "-Xptxas", "-v", "-diag-suppress=177"]
        own = runtime_folders(language, isolation)
        flags += [word for folder in own for word in ("-Xlinker", f"-rpath={folder}")]
        return [nvcc, *flags, "-shared", "-Xcompiler", "-fPIC", "-o", output, source]
    flags = [*protocol.cpp_flags, *(f"-Wl,-rpath,{folder}" for folder in runtime_folders(language, isolation))]
    return [*find_gxx(isolation), *flags, "-shared", "-fPIC", "-fdiagnostics-color=never", "-o", output, source]


def compiler_excerpt(text: str, max_errors: int = 3, max_lines: int = 24) -> str:
    """The first errors with their source lines; warnings are left out, and notes but those that name a header."""
    keep: list[str] = []
    errors = 0
    in_error = False
    for line in text.replace("\u2018", "'").replace("\u2019", "'").split("\n"):
        head = re.match(r"^(?:\S+?[:(]\d+[:)]?.*?|ptxas )\b(fatal error|error|fatal|warning|note|remark)\b", line)
        if head:
            if in_error and _HEADER_MISSING.search(line):
                keep.append(line.rstrip())
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
        keep = [line.rstrip() for line in text.split("\n") if line.strip()][-max_lines:]
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
    lines = text.rstrip("\n").split("\n")
    return "\n".join(line for line in lines if not re.match(r"ptxas info|\s+\d+ bytes stack frame", line))


def _limits(memory_bytes: int) -> list[str]:
    return [*with_parent(), "prlimit", f"--as={memory_bytes}", f"--fsize={_MAX_LIBRARY_BYTES}", "--core=0", "--"]


def compiler_environment(folder: str) -> dict[str, str]:
    """``folder`` holds the temporary files: nvcc names them by its process number, which is the same in every sandbox,
    and not every isolation has a /tmp of its own."""
    own = {"TMPDIR": folder, "HOME": folder}  # ccache keeps what it compiled in its user's home
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8"} | own
    passed_on = ("CUDA_HOME", "CXX", "LD_LIBRARY_PATH")
    return environment | {name: os.environ[name] for name in passed_on if name in os.environ}


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


def _flags(language: Language, protocol: JudgeProtocol) -> list[str]:
    return list(protocol.cuda_flags) if language == "cuda" else [*protocol.cpp_flags, processor()]


def _compiler(language: Language, protocol: JudgeProtocol, isolation: Isolation) -> tuple[object, ...]:
    return (language, *_flags(language, protocol), isolation, *toolchain(isolation))


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
    flags = _flags(kernel.language, protocol)
    library = cache / f"{digest('build', unit, *toolchain(isolation), *flags)[:40]}.so"
    if library.exists():
        return Build(path=str(library), cached=True)
    cache.mkdir(parents=True, exist_ok=True)
    require_loadable(cache)
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as folder:
        source, output = Path(folder) / f"unit{suffix}", Path(folder) / "unit.so"
        with writing(library):
            source.write_text(unit, "utf-8")
        status, text = _compile(kernel.language, protocol, source, output, isolation)
        seconds = time.perf_counter() - start
        if status == 0 and output.exists():
            _proven.add(_compiler(kernel.language, protocol, isolation))
            output.rename(library)
            return Build(path=str(library), seconds=seconds, resources=resources_used(text))
        crashed = status is not None and (status > 128 or status == _CRASH_STATUS)
        if not crashed and "internal compiler error" in text:  # or its candidate says so
            own = "-Xcompiler=-pass-exit-codes" if kernel.language == "cuda" else "-pass-exit-codes"
            crashed = _compile(kernel.language, protocol, source, output, isolation, own)[0] == _CRASH_STATUS
    if status is None:
        message = f"the compiler was stopped after {protocol.build_timeout_s:g} s"
        return Build(outcome=Outcome.TIMEOUT, reason="compile_timeout", message=message, seconds=seconds)
    check_compiler_space(text, cache)
    if not text.strip():
        raise SandboxError(f"the compiler could not run in the sandbox (status {status})")
    # what a compiler says can be a candidate's words, so that whom a failure is of is never read from it
    doubted = f"{source}: No such file" in text or "nvcc fatal" in text
    require_working(kernel.language, protocol, cache, isolation, again=doubted)
    text = without_resources(text).replace(str(source), "kernel" + suffix)
    reason = "compiler_crash" if crashed else "compile_error"
    message = compiler_excerpt(text) or f"the compiler ended with status {status}"
    message = "\n".join([*advice(text, kernel.language, spec, protocol), message])
    return Build(outcome=Outcome.COMPILE_ERROR, reason=reason, message=message, seconds=seconds)


def advice(text: str, language: Language, spec: TaskSpec, protocol: JudgeProtocol) -> Iterator[str]:
    """What a compiler's words do not say, for an author who knows other harnesses."""
    if _OF_PYTORCH.search(text):
        yield "a kernel here is one file without PyTorch's headers"
    if _OF_PYTORCH.search(text) or _OTHER_LAUNCHER.search(text):
        yield abi.wanted(spec, language)
    wanted = {_HEADERS[name]: None for name in _UNDEFINED.findall(text) if name in _HEADERS}
    yield from (f"#include <{header}> is missing" for header in wanted)
    if _OTHER_FLAGS.search(text) or _LATER_STANDARD.search(text):
        flags = cuda_flags(protocol) if language == "cuda" else protocol.cpp_flags
        yield f"it is compiled with {' '.join(flags)}, and with no other flags"


def _compile(
    language: Language, protocol: JudgeProtocol, source: Path, output: Path, isolation: Isolation, *flags: str
) -> tuple[int | None, str]:
    """As `run_limited`; temporary files stand beside ``source``. ``flags``: beside the protocol's."""
    environment = compiler_environment(str(source.parent))
    argv = wrap(
        [*compiler_command(language, protocol, str(source), str(output), isolation), *flags],
        isolation=isolation,
        read_only=["/usr/local", *compiler_folders(language, isolation)],
        writable=[str(source.parent)],
        environment=environment,
    )
    return run_limited(argv, protocol.build_timeout_s, _COMPILER_MEMORY_BYTES[language], environment)


def require_working(
    language: Language, protocol: JudgeProtocol, cache: Path, isolation: Isolation, *, again: bool = False
) -> None:
    """Compile what is surely right, unless this compiler has compiled something in this process.

    Args:
        again: even then.

    Raises:
        DeviceError: the compiler cannot even do that, so that no kernel is to blame.
    """
    if _compiler(language, protocol, isolation) in _proven and not again:
        return
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as folder:
        source, output = Path(folder) / ("probe.cu" if language == "cuda" else "probe.cpp"), Path(folder) / "probe.so"
        source.write_text(_PROBE[language])
        status, text = _compile(language, protocol, source, output, isolation)
    check_compiler_space(text, cache)
    if status not in (0, None):
        name, key = ("nvcc", "judge.cuda_flags") if language == "cuda" else ("g++", "judge.cpp_flags")
        raise DeviceError(
            f"{name} compiles nothing here, isolated by {isolation}, not even an empty kernel: "
            f"{compiler_excerpt(without_resources(text), max_lines=4)[:600]}; correct {key}, or name a compiler that "
            f"stands under /usr with {'PATH' if language == 'cuda' else 'CXX'}"
        )
    _proven.add(_compiler(language, protocol, isolation))
