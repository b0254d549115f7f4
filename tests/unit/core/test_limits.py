"""A shell's limits: raised where that is allowed, told of by name where it is not."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from cli_fixtures import kevin_here

from kevin.core import limits
from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.judge.pool.judge_pool import JudgePool

PROGRAM = """
import resource, sys
limit, soft, hard = getattr(resource, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(limit, (soft, hard))
from kevin.core.errors import DeviceError
from kevin.core.limits import require_limits
try:
    require_limits()
    print(resource.getrlimit(limit)[0])
except DeviceError as e:
    print(e)
"""
NONE = resource.RLIM_INFINITY


def told(name: str, soft: int, hard: int) -> str:
    command = [sys.executable, "-c", PROGRAM, name, str(soft), str(hard)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("name", "hard", "option"),
    [
        ("RLIMIT_NOFILE", 128, "-n allows 128 open files"),
        ("RLIMIT_AS", 2_000_000_000, "-v allows 2,000,000,000 bytes of address space"),
        ("RLIMIT_DATA", 2_000_000_000, "-d allows 2,000,000,000 bytes of data"),
        ("RLIMIT_STACK", 1_000_000, "-s allows 1,000,000 bytes of stack"),
        ("RLIMIT_NPROC", 100, "-u allows 100 processes and threads"),
        ("RLIMIT_FSIZE", 1_000_000, "-f allows 1,000,000 bytes of a file"),
        ("RLIMIT_CPU", 60, "-t allows 60 seconds of CPU time"),
    ],
)
def test_what_is_too_low_to_judge_is_named(name: str, hard: int, option: str) -> None:
    assert f"ulimit {option} here, and judging needs" in told(name, hard, hard)


def test_what_may_be_raised_is() -> None:
    assert told("RLIMIT_NOFILE", 128, 1000) == "256"
    assert told("RLIMIT_NOFILE", 600, 1000) == "600"
    assert told("RLIMIT_AS", 3 << 30, NONE) == str(NONE)
    assert told("RLIMIT_DATA", 3 << 30, 8 << 30) == str(4 << 30)
    assert told("RLIMIT_FSIZE", 1 << 30, 1 << 40) == str(1 << 30)


def test_whoever_judges_asks_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.resource, "getrlimit", lambda what: (64, 64))
    run = kevin_here("judge", "--task-file", "r.py", "--kernel", "k.cpp")
    assert run.returncode == 3 and "ulimit -n allows 64 open files here" in run.stderr
    with pytest.raises(DeviceError, match="ulimit -n allows 64 open files here"):
        JudgePool(JudgeProtocol(), tmp_path)
