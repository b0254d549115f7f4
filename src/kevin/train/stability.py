"""Watching for the collapse that the paper describes: junk text, drifting openings; and the rule that ends a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kevin.core.config import TrainConfig
from kevin.core.errors import HarnessError

NGRAM = 8
STOP_PATIENCE = 3
"""Steps in a row that a limit must be exceeded before training ends."""


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


def run_summary(
    run: str, config: TrainConfig, num_steps: int, reason: str | None, elapsed_s: float
) -> dict[str, str | int | float | bool]:
    """What became of a run, for the report. ``reason``: why it ended early, None when all its steps are done."""
    return {
        "run": run,
        "num_steps": num_steps,
        "planned_steps": config.num_steps,
        "reason": reason or "all steps are done",
        "elapsed_s": elapsed_s,
    }
