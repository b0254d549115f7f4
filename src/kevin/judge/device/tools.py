"""NVIDIA's tools on a correct kernel, and which kernels on a profiler's list are a candidate's own.

Each tool is an option that takes a cell of its own and some seconds a kernel, and runs inside the sandbox, around the
cell. Nsight Compute (``judge.profiler: ncu``) says how many of the warps that fit are active, and what the others wait
for: the word of the candidate's process, which is told to the author and to people, and changes no outcome. Its
counters are read at the GPU's usual clocks. compute-sanitizer (``judge.memcheck``, ``kevin judge --memcheck``) says of
reads and writes outside of every allocation; tensors then are allocations of their own.

Own kernels are known by the names that a source defines or launches. What ran is what counts, however it was called: a
module whose build failed and that fell back to PyTorch, a product that hides in C++, a kernel of its own for the look
of it beside a library's that does the work.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from kevin.core.errors import DeviceError
from kevin.core.texts import split_lines
from kevin.judge.screen import strip_c

_SECTIONS = ("Occupancy", "WarpStateStats")
_DURATION = "gpu__time_duration.sum"
_ACTIVE = "sm__warps_active.avg.pct_of_peak_sustained_active"
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio")
_MAX_LAUNCHES = 32
_MAX_STALLS = 3
_LEAST_STALL = 0.05
_PROFILER_HOME = Path("/opt/nvidia")
_WAITS_FOR = {
    "long_scoreboard": "global memory",
    "lg_throttle": "the queue to global memory",
    "short_scoreboard": "shared memory",
    "mio_throttle": "the queue to shared memory",
    "barrier": "a barrier",
    "math_pipe_throttle": "the arithmetic units",
    "wait": "the instruction before",
    "not_selected": "their turn",
    "no_instruction": "instructions",
    "imc_miss": "constants",
    "drain": "stores",
    "membar": "a memory fence",
    "branch_resolving": "a branch",
    "dispatch_stall": "dispatch",
    "sleeping": "a sleep",
    "tex_throttle": "the texture queue",
    "gmma": "the tensor cores",
}
_ISSUING = ("selected",)
_VIOLATION = re.compile(r"=+ (Invalid \S+ \w+ of size \d+ bytes?|Program hit .*)")
_LINES = 4
_MISSING = {
    "ncu": "judge.profiler is ncu, and Nsight Compute's ncu was not found: install it (it comes with the CUDA "
    "toolkit) or put it into PATH",
    "compute-sanitizer": "judge.memcheck is on, and compute-sanitizer was not found: install it (it comes with the "
    "CUDA toolkit), put it into PATH, or judge without --memcheck",
}


def _of_the_toolkit(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/local/cuda/bin")


def find_tool(program: Literal["ncu", "compute-sanitizer"]) -> str:
    """Its path. Raises DeviceError where it is not installed."""
    found = _of_the_toolkit(program)
    if found is None:
        raise DeviceError(_MISSING[program])
    return found


def tool_paths(program: str) -> list[str]:
    """Folders that it reads beside the system's own."""
    folders = [Path(program).resolve().parent, _PROFILER_HOME]
    return [str(f) for f in folders if f.exists() and not str(f).startswith("/usr/")]


def profiler_command(program: str, log: Path, kernel_names: Iterable[str]) -> list[str]:
    """What stands before the command line of the profiled process.

    Args:
        log: gets the table.
        kernel_names: of ``__global__`` functions; others are not profiled.
    """
    sections = [part for section in _SECTIONS for part in ("--section", section)]
    names = "|".join(sorted(kernel_names))
    return [
        program, *sections, "--metrics", _DURATION, "--csv", "--page", "raw", "--log-file", str(log),
        "--kernel-name", f"regex:^({names})$", "--launch-count", str(_MAX_LAUNCHES), "--clock-control", "none",
        "--target-processes", "application-only",
    ]  # fmt: skip


def read_profile(text: str) -> dict[str, float | str]:
    """Details of a verdict from the profiler's table, weighted by the kernels' durations; empty where it has no rows.

    ``achieved_occupancy_share``: mean active warps over those that a multiprocessor holds. ``stalls``: what warps that
    do not issue wait for, the largest shares of their time first.
    """
    lines = [line for line in text.split("\n") if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    kernels = [row for row in rows if (row.get("ID") or "").isdigit()]  # the row below the head holds units
    weights = [_number(row.get(_DURATION)) for row in kernels]
    total = sum(weights)
    if total <= 0:
        return {}

    def mean(name: str) -> float:
        return sum(w * _number(row.get(name)) for w, row in zip(weights, kernels, strict=True)) / total

    found: dict[str, float | str] = {}
    if _ACTIVE in kernels[0]:
        found["achieved_occupancy_share"] = mean(_ACTIVE) / 100
    stalls = {m.group(1): mean(name) for name in kernels[0] if name and (m := _STALL.fullmatch(name))}
    stalls = {name: value for name, value in stalls.items() if name not in _ISSUING}
    if (waited := sum(stalls.values())) > 0:
        top = sorted(stalls.items(), key=lambda item: -item[1])[:_MAX_STALLS]
        shown = [(name, value / waited) for name, value in top if value >= _LEAST_STALL * waited]
        found["stalls"] = ", ".join(f"{_WAITS_FOR.get(name, name.replace('_', ' '))} {s:.0%}" for name, s in shown)
    return found


def _number(text: str | None) -> float:
    try:
        return float((text or "0").replace(",", ""))
    except ValueError:
        return 0.0


def has_sanitizer() -> bool:
    """Whether compute-sanitizer is installed."""
    return _of_the_toolkit("compute-sanitizer") is not None


def sanitizer_command(program: str, report: Path) -> list[str]:
    """What stands before the command line of the process that is checked; ``report`` gets its words.

    PyTorch then allocates each tensor by itself, and not a part of a larger block.
    """
    checked = ["--tool", "memcheck", "--log-file", str(report), "--print-limit", "1", "--show-backtrace", "no"]
    return ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", program, *checked]


def first_violation(report: str) -> str | None:
    """The first access that was out of bounds, with where it was; None where there was none."""
    lines = split_lines(report)
    for number, line in enumerate(lines):
        if found := _VIOLATION.match(line):
            around = [re.sub(r"^=+\s*", "", each).strip() for each in lines[number + 1 : number + _LINES]]
            return "\n".join([found.group(1), *(text for text in around if text)])
    return None


_NESTED = r"\((?:[^()]|\([^()]*\))*\)"
_ATTRIBUTE = re.compile(rf"__(?:launch_bounds|cluster_dims|block_size|maxnreg|attribute)__\s*{_NESTED}")
_DEFINED = re.compile(r"__global__[^;{(]*?\b(\w+)\s*\(")
_LAUNCHED = re.compile(r"\b(\w+)\s*(?:<[^<>;{}()]*(?:<[^<>;{}()]*>[^<>;{}()]*)*>)?\s*<<<")
_HEADER_LIBRARY = re.compile(r"#\s*include\s*[<\"](cub|thrust|cutlass|cute)/")
_LIBRARIES = frozenset(["at", "c10", "torch", "caffe2", "cudnn", "cublas", "cublasLt", "cask"])
_HEADER_LIBRARIES = frozenset(["cub", "thrust", "cutlass", "cute"])
_PLUMBING = re.compile(r"FillFunctor|direct_copy_kernel|CatArrayBatchedCopy|distribution_\w*kernel")


class Shares(NamedTuple):
    """Of the time that all kernels took; copies and fills by the driver are none."""

    own: float
    foreign: float
    """A library's that compute; ones that fill, copy or draw random numbers are neither."""
    largest_foreign: str


class OwnKernels:
    """The kernels of one candidate: CUDA code, or a Python module around it."""

    def __init__(self, source: str) -> None:
        # of a module the code stands in string literals, which stripping would blank
        code = strip_c(source) if "load_inline" not in source else source
        code = _ATTRIBUTE.sub(" ", code)
        self.names = frozenset([*_DEFINED.findall(code), *_LAUNCHED.findall(code)])
        """Declared ``__global__``, or launched with ``<<<``."""
        self._libraries = _LIBRARIES | (_HEADER_LIBRARIES - set(_HEADER_LIBRARY.findall(source)))
        self._included = _HEADER_LIBRARIES - self._libraries

    def __contains__(self, profiled: str) -> bool:
        """Whether the kernel of this (demangled) name is its own, and not a library's that is called the same."""
        words = re.split(r"[<(]", profiled.replace("(anonymous namespace)", ""), maxsplit=1)[0].split()
        path = [part for part in (words[-1] if words else "").split("::") if part]
        if not path or path[0] in self._libraries:
            return False
        return path[-1] in self.names or path[0] in self._included

    def shares(self, profiled: Iterable[tuple[str, float]]) -> Shares:
        """Args: profiled: names with their times, in any unit."""
        times: defaultdict[str, float] = defaultdict(float)
        for name, time in profiled:
            if not name.startswith(("Memset", "Memcpy")):
                times[name] += time
        total = sum(times.values())
        if total <= 0:
            return Shares(0.0, 0.0, "")
        own = {name for name in times if name in self}
        foreign = sorted((n for n in times if n not in own and not _PLUMBING.search(n)), key=lambda n: -times[n])
        return Shares(
            own=sum(times[n] for n in own) / total,
            foreign=sum(times[n] for n in foreign) / total,
            largest_foreign=foreign[0] if foreign else "",
        )
