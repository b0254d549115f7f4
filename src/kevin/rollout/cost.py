"""What a rollout took of the device that generates and runs kernels, turn by turn."""

from __future__ import annotations

from pathlib import Path

from kevin.rollout.settings import TurnTiming


def turn_seconds(timing_path: Path, num_turns: int) -> list[float]:
    """Seconds of each turn of all trajectories: generating answers, and checking and timing their kernels.

    A kernel whose verdict was known counts as if it had been judged again; compiling, which needs no such device, does
    not count, nor do answers that a killed run did not finish.

    Args:
        timing_path: timing.jsonl of the rollout, a `TurnTiming` a line; more than one for a turn that was resumed.
    """
    seconds = [0.0] * num_turns
    if timing_path.exists():
        for line in timing_path.read_text().splitlines():
            timing = TurnTiming.model_validate_json(line)
            if timing.turn <= num_turns:
                seconds[timing.turn - 1] += timing.generate_s + timing.device_s
    return seconds
