"""Answers of the kernel writer that later turns of a pretraining go on from, judged for real."""

from __future__ import annotations

from pathlib import Path

from kevin.core.config import PolicyConfig, Study
from kevin.core.errors import ConfigError
from kevin.core.files import write_text
from kevin.core.lengths import with_lengths
from kevin.policy.replay import Recorded
from kevin.rollout.run import run_rollout
from kevin.train.past import read_past_tasks
from kevin.writer.later_turns import written_answers

RECORDING = "answers.jsonl"
"""The writer's answers before they are judged, beside what comes of them."""
NUM_RIGHT, NUM_WRONG = 1, 1
"""Kernels for each task: right ones, and ones with a mistake."""


def judge_written(study: Study, tasks_path: Path, out_path: Path, *, store: Path | None = None) -> None:
    """The writer's answers to every task of a file, right ones and ones with a mistake, judged, as turns.parquet.

    Raises:
        DataError: the tasks are not those that this configuration draws.
        ConfigError: no policy with the base model.
        KevinError: as `run_rollout`.
    """
    recorded = [
        Recorded(task_id=task.shown.id, trajectory=trajectory, turn=1, completion=text)
        for task in read_past_tasks(study, tasks_path).all
        for trajectory, text in enumerate(written_answers(task, study.language, NUM_RIGHT, NUM_WRONG, study.seed))
    ]
    recording = out_path.parent / RECORDING
    write_text(recording, "".join(r.model_dump_json() + "\n" for r in recorded))
    policy = PolicyConfig(backend="replay", model=str(recording))
    _roll_out(study, "written", policy, NUM_RIGHT + NUM_WRONG, tasks_path, out_path, store)


def base_policy(study: Study) -> str:
    """The policy that is the base model. Raises ConfigError where there is none."""
    name = next((p for p in study.policies if study.is_base_model(p)), None)
    if name is None:
        raise ConfigError("no policy has the model <results>/base_model: how long its feedback is is not known")
    return name


def _roll_out(
    study: Study, name: str, policy: PolicyConfig, num: int, tasks_path: Path, out_path: Path, store: Path | None
) -> None:
    """``num`` first turns a task, with feedback as long as the base model's. The pretraining's GPUs judge."""
    lengths = with_lengths(study, base_policy(study)).rollout
    once = lengths.model_copy(update={"num_trajectories": num, "num_turns": 1})
    pool = study.pool
    if study.judge.device == "cuda" and pool.device_workers == 1 and not pool.gpus:
        pool = pool.model_copy(update={"device_workers": study.base_model.pretraining.num_gpus})
    derived = study.model_copy(update={"rollout": once, "policies": {**study.policies, name: policy}, "pool": pool})
    run_rollout(derived, name, None, tasks_path, out_path, store=store)
