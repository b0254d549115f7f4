"""What somebody else wrote, judged as if a policy had tried it: kernels for the ceiling of the tables, and answers that
the later turns of a pretraining go on from."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

from kevin.core import files
from kevin.core.config import PolicyConfig, Study
from kevin.core.dialogue import FENCES, verdict_feedback
from kevin.core.errors import ConfigError, HarnessError
from kevin.core.lengths import with_lengths
from kevin.core.types import Kernel, Language, Task, Turn, Verdict
from kevin.policy.replay import Recorded
from kevin.rollout.run import open_judge, run_rollouts, write_results

log = logging.getLogger(__name__)

CEILING = "ceiling"
"""Name of this policy in files and tables."""
RECORDING = "answers.jsonl"
"""Answers before they are judged, beside what comes of them."""


def run_ceiling(
    study: Study,
    split: str,
    tasks_path: Path,
    out_path: Path,
    write: Callable[[Task, Language, int], list[Kernel]],
    *,
    limit: int = 24,
    store: Path | None = None,
) -> None:
    """Judge up to ``limit`` kernels of a writer for each task of a split and write them as turns.parquet.

    Each kernel is a trajectory of one turn, so that best@k over all of a task's is what a policy could reach. The store
    answers what was judged before, also after a kill.

    Args:
        write: kernels for a task in a language, so many at most; none for a task that the writer does not know.

    Raises:
        HarnessError: as `run_rollouts`.
    """
    tasks = files.read_tasks(tasks_path, split)
    pairs = [(t, k) for t in tasks for k in write(t, study.language, limit)]
    if not pairs:
        log.warning("%s, split %s: the kernel writer knows none of these tasks: no ceiling", tasks_path, split)
        write_results(out_path, [], study, policy=CEILING, split=split, judged_on=[])
        return
    with open_judge(study, store, show_progress=True) as judge:
        results, device_name = judge(pairs), judge.device_name
    numbers: defaultdict[str, Iterator[int]] = defaultdict(count)
    turns = [_turn(t, next(numbers[t.id]), kernel, r) for (t, kernel), r in zip(pairs, results, strict=True)]
    write_results(out_path, turns, study, policy=CEILING, split=split, judged_on=[device_name])


def _turn(task: Task, trajectory: int, kernel: Kernel, result: Verdict | HarnessError) -> Turn:
    verdict = result if isinstance(result, Verdict) else None
    return Turn(
        task_id=task.id,
        trajectory=trajectory,
        turn=1,
        completion=f"```{FENCES[kernel.dialect, kernel.language]}\n{kernel.source.rstrip()}\n```\n",
        kernel=kernel,
        outcome=verdict.outcome if verdict else None,
        reason=verdict.reason if verdict else type(result).__name__,
        feedback=verdict_feedback(verdict) if verdict else "",
        verdict_key=verdict.key if verdict else None,
        speedup=verdict.speedup if verdict else None,
        num_prompt_tokens=0,
        num_completion_tokens=0,
        finish_reason="stop",
    )


def judge_answers(
    study: Study,
    answers: Mapping[str, Sequence[str]],
    tasks_path: Path,
    out_path: Path,
    *,
    store: Path | None = None,
) -> None:
    """First answers to the tasks of a file, by the tasks' ids, judged, as turns.parquet. They are told with feedback as
    long as the base model's; the pretraining's GPUs judge.

    Raises:
        ConfigError: no policy with the base model.
        KevinError: as `run_rollouts`.
    """
    base = next((p for p in study.policies if study.is_base_model(p)), None)
    if base is None:
        raise ConfigError("no policy has the model <results>/base_model: how long its feedback is is not known")
    recorded = [
        Recorded(task_id=task_id, trajectory=trajectory, turn=1, completion=text)
        for task_id, texts in answers.items()
        for trajectory, text in enumerate(texts)
    ]
    recording = out_path.parent / RECORDING
    files.write_text(recording, "".join(r.model_dump_json() + "\n" for r in recorded))
    once = {"num_trajectories": max(map(len, answers.values())), "num_turns": 1}
    pool = study.pool
    if study.judge.device == "cuda" and pool.device_workers == 1 and not pool.gpus:
        pool = pool.model_copy(update={"device_workers": study.base_model.pretraining.num_gpus})
    derived = study.model_copy(
        update={
            "rollout": with_lengths(study, base).rollout.model_copy(update=once),
            "policies": {**study.policies, "written": PolicyConfig(backend="replay", model=str(recording))},
            "pool": pool,
        }
    )
    run_rollouts(derived, "written", [(None, out_path)], tasks_path, store=store)
