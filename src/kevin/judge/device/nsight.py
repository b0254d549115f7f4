"""Nsight Compute on a correct kernel: how many of the warps that fit are active, and what the others wait for.

An option (``judge.profiler: ncu``): each profiled kernel takes a cell of its own and some seconds. The profiler runs
inside the sandbox, around the cell, and what it says is the candidate's process's word: it is told to the author and to
people, and changes no outcome. Counters are read at the GPU's usual clocks.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from kevin.core.errors import DeviceError

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


def find_ncu() -> str:
    """Path of Nsight Compute's command line. Raises DeviceError where it is not installed."""
    found = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if found is None:
        raise DeviceError(
            "judge.profiler is ncu, and Nsight Compute's ncu was not found: install it (it comes with the CUDA "
            "toolkit) or put it into PATH"
        )
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
