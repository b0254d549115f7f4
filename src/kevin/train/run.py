"""A training run on disk: started, killed, resumed, finished.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kevin.core import files
from kevin.core.config import RewardConfig, RolloutConfig, Study, TrainConfig
from kevin.core.errors import DataError
from kevin.core.identity import differences, read_identity, set_aside, with_defaults
from kevin.core.lengths import check_context, with_lengths
from kevin.core.texts import strict_json
from kevin.core.types import Task
from kevin.policy.load import has_random_weights, policy_identity
from kevin.rollout.settings import Judge
from kevin.train.checkpoint import NUM_CHECKPOINTS, CheckpointKeeper
from kevin.train.order import task_order, training_tasks
from kevin.train.stability import rehearsal, run_summary

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

            summary = think_prune_train(own, run, tasks, judging, out)
        else:
            summary = _train_grpo(own, run, tasks, judging, out)
    if summary is not None:
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
        "judge": study.judge.model_dump(mode="json"),
        "policies": {study.train.init: policy_identity(study.policies[study.train.init])},
        "tasks": {t.id: t.digest for t in tasks},
    }


def start_or_resume(out: Path, wanted: dict[str, Any]) -> None:
    """Write ``run.json``, or compare with it. A finished run of something else is moved aside, never overwritten.

    Raises:
        DataError: the folder holds an unfinished run of something else; the text names every difference.
    """
    path = out / "run.json"
    wanted = json.loads(strict_json(wanted))
    if not path.exists():
        files.write_text(path, strict_json(wanted, indent=1, sort_keys=True) + "\n")
        return
    changes = list(differences(with_defaults(read_identity(path), IDENTITY_DEFAULTS), wanted))
    if changes and (out / "finished.json").exists():
        logger.warning(
            "%s held a finished run of something else (%s); moved to %s", out, "; ".join(changes), set_aside(out)
        )
        start_or_resume(out, wanted)
    elif changes and not _has_begun(out):
        path.unlink()
        start_or_resume(out, wanted)
    elif changes:
        raise DataError(
            f"{out} holds a training run of something else:\n"
            + "\n".join(f"  {c}" for c in changes)
            + f"\nGo back to the old configuration to go on with it, or start anew: rm -r {out}"
        )


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


def _train_grpo(study: Study, run: str, tasks: Sequence[Task], judge: Judge, out: Path) -> dict[str, Any] | None:
    """The summary; None on all processes but the main one."""
    import torch

    from kevin.policy.transformers import load_transformers
    from kevin.train.bill import GB
    from kevin.train.fit import check_memory
    from kevin.train.grpo import KernelTrainer, grpo_config
    from kevin.train.metrics import MetricsLog
    from kevin.train.observer import StepObserver
    from kevin.train.parallel import meet_alone, process_count
    from kevin.train.step import StepPlayer

    meet_alone()
    train = study.train
    if torch.cuda.is_available() and train.lora is not None:
        check_memory(study, torch.cuda.get_device_properties(0).total_memory / GB)
    order = task_order(tasks, train.num_steps, train.tasks_per_step, study.seed + train.seed)
    args = grpo_config(study, out, process_count(), on_cpu=not torch.cuda.is_available())
    config = study.policies[train.init].model_copy(update={"dtype": train.dtype, "backend": "transformers"})
    loaded = load_transformers(train.init, config)
    player = StepPlayer(study, run, tasks, judge, out)
    keeper = CheckpointKeeper(out / "checkpoints", NUM_CHECKPOINTS)
    found = keeper.latest()
    log = MetricsLog(out, first_step=found[1] + 1 if found else 1) if args.process_index == 0 else None
    observer = StepObserver(study, player, keeper, log)
    trainer = KernelTrainer(study, order, player, loaded.model, loaded.tokenizer, args, [observer])
    observer.trainer = trainer
    if found:
        logger.info("resuming after step %d", found[1])
    trainer.train(resume_from_checkpoint=str(found[0]) if found else None)
    if log is None:
        return None
    log.close()
    reached = trainer.state.global_step // (train.updates_per_step * train.num_iterations)
    summary = run_summary(run, train, reached, observer.stop_reason, log.elapsed_s)
    logger.info("training ended after step %d of %d: %s", reached, train.num_steps, summary["reason"])
    return summary
