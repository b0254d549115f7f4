"""Turns -> scores: one row a turn, with its score and return, and all that tables and figures need of its task."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from kevin.core import reward
from kevin.core.config import RewardConfig, Study
from kevin.core.dialogue import opening_is_expected
from kevin.core.errors import DataError
from kevin.core.files import read_metadata, read_parquet, read_tasks, read_turns, write_parquet
from kevin.core.provenance import machine_names, provenance
from kevin.core.types import Task, Turn
from kevin.report.answers import joined_names, read_answers, told_machines
from kevin.report.similarity import similarity

logger = logging.getLogger(__name__)

KIND = "scores"
CEILING = "ceiling"
"""The policy that stands for the kernel writer's search."""
UNKNOWN_MACHINE = "unknown hardware"


def score_frame(
    turns: Sequence[Turn], tasks: Sequence[Task], config: RewardConfig, *, policy: str, split: str
) -> pd.DataFrame:
    """One row a turn, sorted by task (in the order of ``tasks``), trajectory and turn.

    ``similarity``: of the kernel to that of the turn before, see `kevin.report.similarity`; none where one is missing.
    A turn without a verdict has no outcome, score or return. Raises DataError for a turn of an unknown task.
    """
    order = {task.id: i for i, task in enumerate(tasks)}
    unknown = sorted({t.task_id for t in turns} - order.keys())
    if unknown:
        raise DataError(f"turns of tasks that are not in the tasks file: {', '.join(unknown[:5])}")
    rows: list[dict[str, Any]] = []
    ordered = sorted(turns, key=lambda t: (order[t.task_id], t.trajectory, t.turn))
    for (task_id, _), group in groupby(ordered, key=lambda t: (t.task_id, t.trajectory)):
        rows += _trajectory_rows(tasks[order[task_id]], list(group), config)
    columns = {"policy": policy, "split": split}
    frame = pd.DataFrame([columns | row for row in rows], columns=[*columns, *SCORE_COLUMNS])
    return frame.astype(SCORE_COLUMNS)


SCORE_COLUMNS = {
    "task_id": "str",
    "level": "int64",
    "flawed": "bool",
    "trajectory": "int64",
    "turn": "int64",
    "outcome": "str",
    "reason": "str",
    "speedup": "float64",
    "score": "float64",
    "return": "float64",
    "kernel_digest": "str",
    "similarity": "float64",
    "verdict_key": "str",
    "num_prompt_tokens": "int64",
    "num_completion_tokens": "int64",
    "finish_reason": "str",
    "expected_opening": "bool",
}


def _trajectory_rows(task: Task, turns: list[Turn], config: RewardConfig) -> list[dict[str, Any]]:
    own = [reward.configured_score(t.outcome, t.speedup, config) for t in turns]
    returns = reward.configured_returns(own, [t.num_completion_tokens for t in turns], config)
    return [
        {
            "task_id": task.id,
            "level": task.level,
            "flawed": bool(task.flaws),
            "trajectory": t.trajectory,
            "turn": t.turn,
            "outcome": t.outcome.value if t.outcome is not None else None,
            "reason": t.reason,
            "speedup": t.speedup,
            "score": score,
            "return": ret,
            "kernel_digest": t.kernel.digest if t.kernel is not None else None,
            "similarity": _similarity(before, t),
            "verdict_key": t.verdict_key,
            "num_prompt_tokens": t.num_prompt_tokens,
            "num_completion_tokens": t.num_completion_tokens,
            "finish_reason": t.finish_reason,
            "expected_opening": opening_is_expected(t.completion),
        }
        for before, t, score, ret in zip([None, *turns[:-1]], turns, own, returns, strict=True)
    ]


def _similarity(before: Turn | None, turn: Turn) -> float | None:
    if before is None or before.kernel is None or turn.kernel is None:
        return None
    return similarity(before.kernel.source, turn.kernel.source)


def score_rollouts(turns: Path, tasks: Path, out: Path, *, study: Study, policy: str, split: str) -> Path:
    """Score one rollout file; see `score_frame`. Returns ``out``."""
    found, meta = read_turns(turns)
    frame = score_frame(found, read_tasks(tasks, split), study.reward, policy=policy, split=split)
    missing = int(frame["outcome"].isna().sum())
    if missing:
        logger.warning(
            "%s: %d of %d turns have no verdict (the harness failed) and are left out", turns, missing, len(frame)
        )
    write_parquet(out, frame, KIND, provenance(study.digest, policy=policy, split=split, rollouts=meta))
    return out


def read_scores(paths: Sequence[Path], study: Study) -> pd.DataFrame:
    """Score files as one frame, policies in the order of ``study.evaluate``, the ceiling last.

    A ``.csv`` is a file of `kevin.report.answers.write_answers`, with any number of policies and splits.
    Raises DataError without files, or when two of them hold the same policy and split.
    """
    frames: list[pd.DataFrame] = []
    for path in paths:
        is_csv = path.suffix == ".csv"
        frames += read_answers(path, SCORE_COLUMNS, study.reward) if is_csv else [read_parquet(path, KIND)[0]]
    if not frames:
        raise DataError("no score files were given; make them with: snakemake (rule score_rollouts)")
    heads = [(f["policy"].iloc[0], f["split"].iloc[0]) for f in frames if len(f)]
    if len(set(heads)) != len(heads):
        raise DataError("two of these score files hold the same policy and split: " + ", ".join(map(str, paths)))
    frame = pd.concat(frames, ignore_index=True)
    rank = {name: i for i, name in enumerate(policy_order(list(frame["policy"].unique()), study))}
    return frame.sort_values("policy", key=lambda s: s.map(rank), kind="stable", ignore_index=True)


def hardware(paths: Sequence[Path], study: Study) -> str:
    """What the kernels behind these score files ran on: GPUs or processors by name."""
    return joined_names(machines(paths, study))


def machines(paths: Sequence[Path], study: Study) -> list[tuple[str, ...]]:
    """GPUs, or the processor, of each kind of machine on which the rollouts behind these score files were judged."""
    found: dict[tuple[str, ...], None] = {}
    for path in paths:
        if path.suffix == ".csv":
            own = told_machines(path, study.judge.device)
        else:
            meta = read_metadata(path, KIND).get("rollouts", {})
            devices: list[tuple[str, ...]] = [(str(name),) for name in meta.get("judged_on") or ()]
            own = devices or [machine_names(meta, study.judge.device)]
        found |= dict.fromkeys(names or (UNKNOWN_MACHINE,) for names in own)
    return list(found)


def policy_order(policies: Sequence[str], study: Study) -> list[str]:
    """As in ``study.evaluate``, then others by name, the ceiling last."""
    wanted = {name: i for i, name in enumerate(study.evaluate)}
    return sorted(policies, key=lambda p: (p == CEILING, wanted.get(p, len(wanted)), p))


def policy_label(policy: str, study: Study, num_seeds: int = 1) -> str:
    """The name that people read; ``num_seeds``: of what stands under it."""
    if policy == CEILING:
        return "ceiling (kernel writer)"
    config = study.policies.get(policy)
    label = config.label if config is not None and config.label else policy
    return f"{label} ({num_seeds} seeds)" if num_seeds > 1 else label


def first_seed(policy: str, study: Study) -> str:
    """The policy that stands for this one's seeds: itself, as a rule."""
    config = study.policies.get(policy)
    return (config.seed_of if config is not None else None) or policy


def split_label(split: str) -> str:
    """``level1`` -> ``Level 1``; ``all`` -> ``All held-out``."""
    if split in _SPLIT_LABELS:
        return _SPLIT_LABELS[split]
    return f"Level {split[5:]}" if split.startswith("level") and split[5:].isdigit() else split


_SPLIT_LABELS = {"all": "All held-out", "unseen": "New fused tasks"}
