"""The line that a training step says of itself."""

from __future__ import annotations

from kevin.train.metrics import TIMES, progress_line


def line(judge_s: float) -> str:
    record = {"step": 1, "score": 1.0, "correct": 0.5, "num_kernels": 64, "num_completion_tokens": 4000}
    return progress_line(record | {TIMES: {"generate": 2.0, "judge": judge_s}}, 3, 10.0)


def test_the_pace_of_judging_is_told_and_never_that_of_reading_stored_verdicts() -> None:
    assert "160 kernels/min" in line(24.0)
    assert "kernels/min" not in line(0.0145) and "2,000 tokens/s" in line(0.0145)


def test_a_model_that_solves_nothing_yet_may_compile() -> None:
    record = {"step": 1, "score": 0.0, "correct": 0.0, "compiled": 0.25, "num_kernels": 8, "num_completion_tokens": 9}
    assert "0 % correct, 25 % compile" in progress_line(record | {TIMES: {"generate": 2.0, "judge": 0.1}}, 3, 10.0)
