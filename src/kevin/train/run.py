"""A training run on disk, started, killed, resumed, finished; by one process or by several.

::

    <run>/run.json                    what is being trained; a resume must match it
    <run>/metrics.jsonl, tensorboard/ one record a step
    <run>/turns/step_00001.parquet    every turn with its verdict, score, return and advantage
    <run>/rollouts/step_00001/        rollouts of the steps since the last checkpoint
    <run>/checkpoints/checkpoint-2/   weights, optimiser, RNG, position in the data
    <run>/finished.json, summary.json written last: the run is done
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kevin.core import files
from kevin.core.config import RewardConfig, RolloutConfig, Study, TrainConfig
from kevin.core.identity import changes, refused, set_aside, write_identity
from kevin.core.lengths import check_context, with_lengths
from kevin.core.texts import strict_json
from kevin.core.types import Task
from kevin.policy.load import has_random_weights, policy_identity
from kevin.rollout.settings import Judge
from kevin.train.order import training_tasks
from kevin.train.records import Ended, rehearsal

logger = logging.getLogger(__name__)

LIMITS = ("num_steps", "stop_nothing_correct")
"""Keys of ``train`` that end a run; when they are raised it goes on."""
MAY_CHANGE = (
    *LIMITS,
    *("save_every", "micro_batch_size", "vllm_memory_share"),
)
"""Keys of ``train`` that a resumed run may have changed; the steps so far would have been the same (of ``num_steps``:
while the learning rate is constant)."""


IDENTITY_DEFAULTS = {
    "train": TrainConfig().model_dump(mode="json", exclude=set(MAY_CHANGE)),
    "reward": RewardConfig().model_dump(mode="json"),
    "rollout": RolloutConfig().model_dump(mode="json", include={"history"}),
}
"""Of settings that a run from before them was trained without."""


def run_training(
    study: Study, run: str, tasks_path: Path, out: Path, *, store: Path | None = None, judge: Judge | None = None
) -> None:
    """Train run ``run`` of the study in the folder ``out``, from its last checkpoint where there is one.

    Args:
        store: verdict store; the study's own by default.
        judge: in place of the study's judge pool.

    Raises:
        ConfigError: no such run, a batch that cannot be divided, more tasks a step than there are.
        DataError: ``out`` holds a run of something else, which the text names; a missing initial model.
        TrainingStoppedError: a loss that is not a finite number.
        KevinError: as `refine` and `load_policy`.
    """
    own = with_lengths(study, study.for_run(run).train.init, fetch=True).for_run(run)
    check_context(own, own.train.init)
    tasks = training_tasks(tasks_path, own.train)
    start_or_resume(out, identity(own, run, tasks))
    limits = own.train.model_dump(mode="json", include=set(LIMITS))
    if (summary := _finished(out, limits)) is not None:
        logger.info("%s: run %s is done already", out, run)
        files.write_text(out / "summary.json", strict_json(summary, indent=1) + "\n")
        return
    if has_random_weights(own.policies[own.train.init].model):
        logger.warning(
            "run %s: %s has random weights, so this is a rehearsal: it goes on whatever its answers are, and no number "
            "of it but times and memory means anything",
            run,
            own.policies[own.train.init].model,
        )
        own = own.model_copy(update={"train": rehearsal(own.train)})
    with _judge(own, store, judge) as judging:
        if own.train.method == "think_prune":
            from kevin.train.think_prune import think_prune_train

            ended: Ended | None = think_prune_train(own, run, tasks, judging, out)
        else:
            from kevin.train.grpo_run import grpo_train

            ended = grpo_train(own, run, tasks, judging, out)
    if ended is not None:
        summary = {
            "run": run,
            "num_steps": ended.step,
            "planned_steps": own.train.num_steps,
            "reason": ended.reason or "all steps are done",
            "elapsed_s": ended.elapsed_s,
        }
        logger.info("training ended after step %d of %d: %s", ended.step, own.train.num_steps, summary["reason"])
        files.write_text(out / "finished.json", strict_json({"limits": limits, "summary": summary}, indent=1) + "\n")
        files.write_text(out / "summary.json", strict_json(summary, indent=1) + "\n")


def _finished(out: Path, limits: dict[str, Any]) -> dict[str, Any] | None:
    """The summary of a run that ended under these limits."""
    path = out / "finished.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text("utf-8"))
    return dict(found["summary"]) if found["limits"] == limits else None


def identity(study: Study, run: str, tasks: Sequence[Task]) -> dict[str, Any]:
    """What a run depends on, as nested JSON values. ``study``: as `Study.for_run` gives it."""
    free = set(MAY_CHANGE) - ({"num_steps"} if study.train.schedule == "linear" else set())
    return {
        "run": run,
        "seed": study.seed,
        "dialect": study.dialect,
        "language": study.language,
        "train": study.train.model_dump(mode="json", exclude=free),
        "reward": study.reward.model_dump(mode="json"),
        "rollout": study.rollout.model_dump(
            mode="json",
            include={
                "max_prompt_tokens",
                "max_response_tokens",
                "max_feedback_chars",
                "profile_feedback",
                "history",
                "top_p",
            },
        ),
        "judge": study.judge.identity,
        "policies": {study.train.init: policy_identity(study.policies[study.train.init])},
        "tasks": {t.id: t.digest for t in tasks},
    }


def start_or_resume(out: Path, wanted: dict[str, Any]) -> None:
    """Write ``run.json``, or compare with it. A finished run of something else is moved aside, never overwritten.

    Raises:
        DataError: the folder holds an unfinished run of something else; the text names every difference.
    """
    path = out / "run.json"
    found = changes(path, wanted, IDENTITY_DEFAULTS) if path.exists() else []
    if found and (out / "finished.json").exists():
        logger.warning(
            "%s held a finished run of something else (%s); moved to %s", out, "; ".join(found), set_aside(out)
        )
    elif found and _has_begun(out):
        raise refused(out, "a training run", found)
    if found or not path.exists():
        write_identity(path, wanted)


def _has_begun(out: Path) -> bool:
    """Whether there is an answer or a checkpoint to lose; a run that failed before its first one is in nobody's way."""
    return any(path.is_file() for name in ("rollouts", "turns", "checkpoints") for path in (out / name).rglob("*"))


@contextmanager
def _judge(study: Study, store: Path | None, judge: Judge | None) -> Iterator[Judge]:
    if judge is not None:
        yield judge
        return
    from kevin.rollout.run import open_judge

    with open_judge(study, store, show_progress=False) as opened:
        yield opened


def leave_together() -> None:
    """End this process once all have come this far; a training of one process goes on.

    Without the interpreter's own teardown: DeepSpeed keeps process groups, whose threads outlive
    ``destroy_process_group``, and what one of them aborts then would fail a training that has ended.
    """
    import torch.distributed as dist

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    dist.barrier()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
