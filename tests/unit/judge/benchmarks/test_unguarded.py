"""A judge without guards: what it keeps, and that each pair is measured once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kevin.core.errors import DataError, DeviceError, HarnessError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task
from kevin.judge.benchmarks import unguarded as module
from kevin.judge.benchmarks.unguarded import Unguarded, _kept, measure_unguarded, unguarded, unguarded_key
from kevin.judge.compile.native import Build

PROTOCOL = JudgeProtocol()
PAID = Unguarded(passed=True, kernel_us=2.0, reference_us=5.0, num_calls=100)
REFUSED = Unguarded(passed=False, reason="wrong_values")


def _pair(source: str, task: str = "t") -> tuple[Task, Kernel]:
    made = Task(id=task, level=1, name=task, source=task, origin="user")
    return made, Kernel(dialect="c_abi", language="cpp", source=source)


def test_its_times_belong_to_what_passed() -> None:
    assert PAID.speedup == 2.5 and REFUSED.speedup is None
    for wrong in ({"passed": True}, {"passed": False}, {"passed": False, "reason": "x", "kernel_us": 1.0}):
        with pytest.raises(ValidationError):
            Unguarded.model_validate(wrong)


def test_rules_are_no_part_of_it_and_everything_else_is() -> None:
    task, kernel = _pair("x")
    key = unguarded_key(task, kernel, PROTOCOL, "cpu")
    assert unguarded_key(task, kernel, PROTOCOL.model_copy(update={"rules": ()}), "cpu") == key
    assert unguarded_key(task, kernel, PROTOCOL.model_copy(update={"memory_mb": 64}), "cpu") != key
    assert unguarded_key(task, kernel, PROTOCOL, "gpu") != key


def test_equal_pairs_are_measured_once_and_known_ones_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def one(judging: Any, task: Task, kernel: Kernel, build: Build) -> Unguarded:
        measured.append((task.id, kernel.source))
        if kernel.source == "lost":
            raise DeviceError("no device")
        return PAID if kernel.source == "right" else REFUSED

    class Judging:
        protocol = PROTOCOL

    monkeypatch.setattr(module, "unguarded", one)
    monkeypatch.setattr(module, "build_stage", lambda *_: Build(path="built"))
    pairs = [_pair("right", "b"), _pair("wrong", "a"), _pair("right", "b"), _pair("lost", "c")]
    for _ in range(2):
        with (tmp_path / "unguarded.jsonl").open("a") as f:
            f.write('{"key": "c", "pas')  # a kill has cut it short
        results = measure_unguarded(pairs, Judging, PROTOCOL, tmp_path, "kernels")  # type: ignore[arg-type]
        assert results[:3] == [PAID, REFUSED, PAID] and isinstance(results[3], HarnessError)
    assert measured == [("a", "wrong"), ("b", "right"), ("c", "lost"), ("c", "lost")], "failures are tried again"


@pytest.mark.parametrize("line", ['{"key": ', "[1, 2]", "null", "\x00"])
def test_a_damaged_line_costs_one_kernel(tmp_path: Path, line: str) -> None:
    (tmp_path / "unguarded.jsonl").write_text(f'{{"key": "of another version"}}\n{line}\n')
    with pytest.raises(
        DataError, match=r"unguarded.jsonl: damaged \(line 2: .*delete that line, its kernel is measured"
    ):
        _kept(tmp_path / "unguarded.jsonl")


def test_what_does_not_build_earns_nothing() -> None:
    build = Build(outcome=Outcome.COMPILE_ERROR, reason="compile_error")
    found = unguarded(None, *_pair("x"), build)  # type: ignore[arg-type]
    assert (found.passed, found.reason) == (False, "compile_error")
