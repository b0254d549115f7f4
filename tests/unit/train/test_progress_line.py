"""The line that a training step says of itself."""

from __future__ import annotations

from kevin.train.records import TIMES, progress_line


def line(judge_s: float) -> str:
    record = {"step": 1, "score": 1.0, "correct": 0.5, "num_kernels": 64, "num_completion_tokens": 4000}
    return progress_line(record | {TIMES: {"generate": 2.0, "judge": judge_s}}, 3, 10.0)


def test_the_pace_of_judging_is_told_and_never_that_of_reading_stored_verdicts() -> None:
    assert "160 kernels/min" in line(24.0)
    assert "kernels/min" not in line(0.0145) and "2,000 tokens/s" in line(0.0145)
