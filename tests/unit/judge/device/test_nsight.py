"""Nsight Compute's table, as it came from a GPU, and what a person is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.judge.device.tools import find_ncu, profiler_command, read_profile, tool_paths

_RATIO = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS = ("barrier", "drain", "long_scoreboard", "math_pipe_throttle", "not_selected", "selected", "wait")
_ACTIVE = "sm__warps_active.avg.pct_of_peak_sustained_active"
_TABLE = [
    ["ID", "Kernel Name", "gpu__time_duration.sum", _ACTIVE, *(_RATIO.format(s) for s in _STALLS)],
    ["", "", "ns", "%", *["inst"] * len(_STALLS)],
    ["0", "normal_kernel", "157,248", "50.51", "0.69", "0.00", "0.00", "1.68", "3.62", "1.00", "1.86"],
    ["1", "relu(float, int)", "125,664", "85.57", "0", "12.72", "107.56", "0.04", "0.14", "1.00", "2.81"],
]
HEAD = "==PROF== Connected to process 17952\n==WARNING== Note: Running with unmodified GPU clocks.\n"
TEXT = HEAD + "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in _TABLE)


def test_kernels_count_by_their_time() -> None:
    found = read_profile(TEXT)
    first, second = 157248, 125664
    assert found["achieved_occupancy_share"] == pytest.approx(
        (first * 0.5051 + second * 0.8557) / (first + second), abs=1e-12
    )
    assert found["stalls"] == "global memory 81%, stores 10%"


def test_what_issues_waits_for_nothing_and_little_is_not_told() -> None:
    rows = TEXT.splitlines(keepends=True)
    only_first = "".join(rows[:-1])
    assert read_profile(only_first)["stalls"] == "their turn 46%, the instruction before 24%, the arithmetic units 21%"


@pytest.mark.parametrize("text", ["", HEAD, TEXT.replace("157,248", "").replace("125,664", "n/a")])
def test_a_table_without_kernels_says_nothing(text: str) -> None:
    assert read_profile(text) == {}


def test_only_own_kernels_are_profiled(tmp_path: Path) -> None:
    command = profiler_command("/opt/ncu/ncu", tmp_path / "log", ["relu", "add"])
    assert command[command.index("--kernel-name") + 1] == "regex:^(add|relu)$"
    assert command[command.index("--log-file") + 1] == str(tmp_path / "log")


def test_a_profiler_outside_the_system_is_shown_to_the_sandbox(tmp_path: Path) -> None:
    program = tmp_path / "bin/ncu"
    program.parent.mkdir()
    program.touch()
    assert str(tmp_path / "bin") in tool_paths(str(program))


def test_a_profiler_that_is_missing_or_useless_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kevin.judge.device.tools.shutil.which", lambda name, path=None: None)
    with pytest.raises(DeviceError, match=r"judge\.profiler is ncu, .* install it"):
        find_ncu()
    with pytest.raises(ValidationError, match="profiler ncu needs device cuda"):
        JudgeProtocol(device="cpu", profiler="ncu")
