"""Watching for the collapse that the paper describes: junk text, drifting openings; and the rule that ends a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kevin.core.config import TrainConfig
from kevin.core.errors import HarnessError

NGRAM = 8


def repetition(tokens: Sequence[int], n: int = NGRAM) -> float:
    """Share of a text's n-grams that stood in it before: 0 without repetition, near 1 for a loop."""
    count = len(tokens) - n + 1
    if count < 1:
        return 0.0
    return 1 - len({tuple(tokens[i : i + n]) for i in range(count)}) / count


class TrainingStoppedError(HarnessError):
    """Training cannot go on from here; the last checkpoint is kept."""


def check_finite(step: int, values: Mapping[str, float]) -> None:
    """Raises TrainingStoppedError when a loss or gradient norm is not a finite number."""
    bad = [f"{name} = {value}" for name, value in values.items() if not math.isfinite(value)]
    if bad:
        raise TrainingStoppedError(
            f"step {step}: {', '.join(bad)}. The step is not kept. Lower train.learning_rate or train.max_grad_norm, "
            f"or use float32, and start the run anew in another folder"
        )


def stop_reason(history: Sequence[Mapping[str, float]], config: TrainConfig) -> str | None:
    """Why training should end now, from the records of the steps so far; None to go on."""
    recent = history[-config.stop_patience :]
    if len(recent) < config.stop_patience:
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
