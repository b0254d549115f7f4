"""What a rollout took of the device that generates and runs kernels, turn by turn, and which that was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kevin.core.texts import split_lines
from kevin.rollout.settings import TurnTiming


def turn_seconds(timing_path: Path, num_turns: int) -> list[float]:
    """Seconds of each turn of all trajectories: generating answers, and checking and timing their kernels.

    A kernel whose verdict was known counts as if it had been judged again; compiling, which needs no such device, does
    not count, nor do answers that a killed run did not finish.

    Args:
        timing_path: timing.jsonl of the rollout, a `TurnTiming` a line; more than one for a turn that was resumed.
    """
    seconds = [0.0] * num_turns
    for timing in _timings(timing_path):
        if timing.turn <= num_turns:
            seconds[timing.turn - 1] += timing.generate_s + timing.device_s
    return seconds


def judging_devices(timing_path: Path) -> list[str]:
    """Names of what judged a rollout's kernels: of several where it was resumed on another machine."""
    names = (timing.device_name for timing in _timings(timing_path))
    return list(dict.fromkeys(name for name in names if name is not None))


def _timings(path: Path) -> Iterator[TurnTiming]:
    for line in split_lines(path.read_text("utf-8")) if path.exists() else ():
        yield TurnTiming.model_validate_json(line)
