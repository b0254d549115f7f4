"""Whether the base model has learned what later stages need: its loss, and how many of its kernels are correct."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from kevin.core import files
from kevin.core.config import BaseModelConfig, Study
from kevin.core.errors import DataError
from kevin.core.lengths import with_lengths
from kevin.core.texts import strict_json
from kevin.core.types import Outcome
from kevin.rollout.refine import refine
from kevin.rollout.settings import Judge, RolloutSettings
from kevin.tasks.catalog import catalog
from kevin.tasks.kernelbench import is_kernelbench
from kevin.train.order import training_tasks
from kevin.train.records import TrainingStoppedError
from kevin.train.training import SUMMARY

log = logging.getLogger(__name__)


def check_base_model(study: Study, model: Path, tasks_path: Path, judge: Judge, out: Path) -> None:
    """Judge a few first answers for the training tasks, compare with the expectations, and write ``out`` (JSON).

    Raises:
        DataError: the model's folder holds no summary of its training.
        TrainingStoppedError: an expectation of ``base_model`` is not met; the text says which, and what to do.
        KevinError: as `refine`.
    """
    config = study.base_model
    found = read_summary(model)
    if config.expected_correct_share is not None:
        found |= _judged(study, model, tasks_path, judge)
    found |= {"expected_loss": config.expected_loss, "expected_correct_share": config.expected_correct_share}
    if problems := shortcomings(found, config):
        raise TrainingStoppedError(
            f"the base model in {model} has not learned enough for the study: {'; '.join(problems)}. Give it more to "
            f"learn from (base_model.num_transcripts) or another learning rate, or lift the expectation "
            f"(base_model.expected_loss, base_model.expected_correct_share: null) to go on all the same"
        )
    files.write_text(out, strict_json(found, indent=1) + "\n")


def read_summary(model: Path) -> dict[str, Any]:
    """The summary that training left in the model's folder. Raises DataError where there is none."""
    path = model / SUMMARY
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as e:
        raise DataError(f"{path}: no summary of a training ({e}); make the base model anew: rm -r {model}") from None


def shortcomings(found: dict[str, Any], config: BaseModelConfig) -> list[str]:
    """What is not as the configuration expects it, in words; what was not looked at is not found wanting."""
    problems = []
    if config.expected_loss is not None and not found["loss"] <= config.expected_loss:
        problems.append(f"its loss is {found['loss']:.3g} nats a token, expected at most {config.expected_loss:g}")
    if config.expected_correct_share is not None and found["correct_share"] < config.expected_correct_share:
        problems.append(
            f"{found['num_correct']} of {found['num_kernels']} kernels for its own training tasks are correct, "
            f"expected at least {100 * config.expected_correct_share:g} %"
        )
    return problems


def _judged(study: Study, model: Path, tasks_path: Path, judge: Judge) -> dict[str, Any]:
    """Numbers of first answers and of correct kernels among them; what the harness failed on is left out."""
    from kevin.policy.load import load_policy

    tasks = training_tasks(tasks_path, study.train)
    if study.tasks.source != "catalog" and not is_kernelbench(study.tasks.kernelbench):
        tasks = [task for task in tasks if task.origin != "kernelbench"] or catalog(study.task_size)
    num = study.base_model.num_checked_kernels
    tasks = [tasks[i * len(tasks) // num] for i in range(num)] if num < len(tasks) else tasks
    each = -(-num // len(tasks))
    name = next(p for p in study.policies if study.is_base_model(p))
    settings = RolloutSettings.from_study(with_lengths(study, name))
    settings = settings.model_copy(update={"num_trajectories": each, "num_turns": 1})
    policy = load_policy(name, study.policies[name].model_copy(update={"model": str(model)}))
    try:
        turns = refine(tasks, policy, judge, settings)
    finally:
        policy.close()
    judged = [t for t in turns if t.outcome is not None]
    num_correct = sum(t.outcome is Outcome.CORRECT for t in judged)
    log.info("base model: %d of %d kernels for its training tasks are correct", num_correct, len(judged))
    return {
        "num_kernels": len(judged),
        "num_correct": num_correct,
        "correct_share": num_correct / len(judged) if judged else 0.0,
    }
