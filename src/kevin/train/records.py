"""A record of every step: metrics.jsonl, TensorBoard scalars and one line for a person; and what in them ends a run.

Collapse is watched for as the paper describes it: junk text, drifting openings.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kevin.core.config import TrainConfig
from kevin.core.errors import HarnessError
from kevin.core.files import append_line, check_space, parse_object, read_lines, write_text
from kevin.core.texts import strict_json

logger = logging.getLogger(__name__)

NGRAM = 8
STOP_PATIENCE = 3
"""Steps in a row that a limit must be exceeded before training ends."""
TIMES = "seconds"
"""Key of the one part of a record that differs between equal runs: where the step's time went."""


class MetricsLog:
    """One JSON object a step in ``folder/metrics.jsonl``, the same for TensorBoard in ``folder/tensorboard``."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Steps from ``first_step`` on that a killed run logged are dropped: they are made again."""
        self.path = folder / "metrics.jsonl"
        self.records = [r for r in read_metrics(self.path) if r["step"] < first_step]
        write_text(self.path, "".join(strict_json(r) + "\n" for r in self.records))
        check_space(self.path)  # TensorBoard's files are written in a thread, which could only print what goes wrong
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step, flush_secs=10)

    def add(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        check_space(self.path)
        append_line(self.path, strict_json(record))
        for key, value in flat(record).items():
            if key != "step":
                self._writer.add_scalar(key if "/" in key else f"train/{key}", value, record["step"])
        self._writer.flush()

    def end_step(self, record: dict[str, Any], config: TrainConfig) -> tuple[str | None, str | None]:
        """Add a step's record and tell it. Why training should end now, and why it makes no sense; None to go on."""
        self.add(record)
        logger.info("%s", progress_line(record, config.num_steps, self.elapsed_s))
        if (reason := stop_reason(self.records, config)) is not None:
            logger.warning("training ends early: %s", reason)
        return reason, nothing_learnable(self.records, config)

    @property
    def elapsed_s(self) -> float:
        """Of the steps so far, without pauses between runs."""
        return float(sum(r[TIMES]["step"] for r in self.records))

    def close(self) -> None:
        self._writer.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Records in the order of steps. Raises DataError for a damaged line."""
    return read_lines(path, parse_object, f"train anew: rm -r {path.parent}")


def flat(record: Mapping[str, Any]) -> dict[str, float]:
    """Numbers by key; those of a nested mapping as ``outer/inner``."""
    result: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            result |= {f"{key}/{inner}": v for inner, v in flat(value).items()}
        elif isinstance(value, int | float):
            result[key] = value
    return result


_LEAST_JUDGING_S = 0.01
"""Of one kernel, far below what building and timing it takes; a verdict is read in less."""


def progress_line(record: Mapping[str, Any], num_steps: int, elapsed_s: float) -> str:
    """``step 3/12: score 1.21, 64 % correct, 2.1x, 15,000 tokens/s, 160 kernels/min, 2 min left``.

    No pace is told of kernels whose verdicts the store knew.
    """
    seconds = record[TIMES]
    left = elapsed_s / record["step"] * (num_steps - record["step"])
    parts = [f"score {record['score']:.2f}" if "score" in record else "nothing judged"]
    if "correct" in record:
        parts.append(f"{100 * record['correct']:.0f} % correct")
    if record.get("correct") == 0 and "compiled" in record:
        parts.append(f"{100 * record['compiled']:.0f} % compile")
    if "speedup" in record:
        parts.append(f"{record['speedup']:.2f}x")
    if seconds["generate"] > 0:
        parts.append(f"{record['num_completion_tokens'] / seconds['generate']:,.0f} tokens/s")
    if (judge_s := seconds["judge"] + seconds.get("beside", 0.0)) > _LEAST_JUDGING_S * record["num_kernels"]:
        parts.append(f"{60 * record['num_kernels'] / judge_s:.0f} kernels/min")
    parts.append(f"about {left / 60:.0f} min left" if left >= 90 else f"about {left:.0f} s left")
    return f"step {record['step']}/{num_steps}: {', '.join(parts)}"


def repetition(tokens: Sequence[int], n: int = NGRAM) -> float:
    """Share of a text's n-grams that stood in it before: 0 without repetition, near 1 for a loop."""
    count = len(tokens) - n + 1
    if count < 1:
        return 0.0
    return 1 - len({tuple(tokens[i : i + n]) for i in range(count)}) / count


class TrainingStoppedError(HarnessError):
    """Training cannot go on from here; the last checkpoint is kept."""


def check_finite(
    step: int, values: Mapping[str, float], advice: str = "train.learning_rate or train.max_grad_norm, or use float32"
) -> None:
    """Raises TrainingStoppedError when a loss or gradient norm is not a finite number. ``advice``: what to lower."""
    bad = [f"{name} = {value}" for name, value in values.items() if not math.isfinite(value)]
    if bad:
        raise TrainingStoppedError(
            f"step {step}: {', '.join(bad)}. The step is not kept. Lower {advice}, and start anew in another folder"
        )


def stop_reason(history: Sequence[Mapping[str, float]], config: TrainConfig) -> str | None:
    """Why training should end now, from the records of the steps so far; None to go on."""
    recent = history[-STOP_PATIENCE:]
    if len(recent) < STOP_PATIENCE:
        return None
    limits = {
        "not_okay_ratio": (config.stop_not_okay, "answers leave the expected opening"),
        "repetition": (config.stop_repetition, "answers repeat themselves"),
    }
    for key, (limit, what) in limits.items():
        if limit is not None and all(record.get(key, 0.0) > limit for record in recent):
            return (
                f"{what}: {key} was above {limit:g} in {len(recent)} steps in a row, last {recent[-1][key]:.2f}; this "
                f"comes before collapse"
            )
    return None


def nothing_learnable(history: Sequence[Mapping[str, float]], config: TrainConfig) -> str | None:
    """Why training makes no sense, from the records of the steps so far: no kernel was ever correct. None otherwise."""
    if config.stop_nothing_correct is None:
        return None
    num_first = min(config.stop_nothing_correct, config.num_steps)
    first = history[:num_first]
    if len(first) < num_first or any(record.get("correct", 0.0) > 0 for record in first):
        return None
    num_kernels = round(sum(record.get("num_kernels", 0) for record in first))
    found = f"none of the {num_kernels} kernels of the first {num_first} steps was correct"
    if not num_kernels:
        found = f"no answer of the first {num_first} steps held a kernel"
    return (
        f"{found}: they teach nothing. "
        f"Start from a model that solves some tasks (train.init), take easier tasks or more trajectories, or set "
        f"train.stop_nothing_correct: null to go on all the same"
    )


def rehearsal(config: TrainConfig) -> TrainConfig:
    """Of a training of random weights, whose answers say nothing: no rule ends it that looks at what they say."""
    return config.model_copy(update={"stop_not_okay": None, "stop_repetition": None, "stop_nothing_correct": None})


class Ended(NamedTuple):
    """How far a run came."""

    step: int
    reason: str | None
    """Why it ended early; None when all its steps are done."""
    elapsed_s: float
