"""Which tasks are trained on in which step: mixed difficulty in every batch, the same for the same seed. And repair
tasks: one of which no kernel was correct goes on from one of these when it comes up next."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kevin.core import files
from kevin.core.config import TrainConfig
from kevin.core.errors import ConfigError
from kevin.core.types import Task, Turn

logger = logging.getLogger(__name__)


def training_tasks(path: Path, train: TrainConfig) -> list[Task]:
    """Of the tasks in the file ``path`` those that are trained on; of unknown size all.

    Raises:
        ConfigError: all are larger than ``train.max_task_gb``.
        DataError: as `kevin.core.files.read_tasks`.
    """
    tasks = files.read_tasks(path, "train")
    if train.max_task_gb is None:
        return tasks
    limit = train.max_task_gb * 1e9
    small = [t for t in tasks if t.spec is None or t.spec.num_bytes <= limit]
    if tasks and not small:
        least = min(t.spec.num_bytes for t in tasks if t.spec is not None) / 1e9
        raise ConfigError(
            f"train.max_task_gb is {train.max_task_gb:g}, but no task of {path} takes less than {least:.2g} GB"
        )
    logger.info(
        "%d of %d tasks are trained on: the others take more than %g GB", len(small), len(tasks), train.max_task_gb
    )
    return small


def task_order(tasks: Sequence[Task], num_steps: int, tasks_per_step: int, seed: int) -> list[list[Task]]:
    """The tasks of every step.

    A step's tasks differ. Levels are dealt out so that after every step each has had its share of the split, to within
    one task; inside a level every task is used once before one is used again. Longer runs begin like shorter ones.

    Raises:
        ConfigError: a step wants more tasks than there are.
    """
    if tasks_per_step > len(tasks):
        raise ConfigError(
            f"train.tasks_per_step is {tasks_per_step}, but the split has {len(tasks)} tasks; lower it or build more"
        )
    rng = random.Random(f"kevin task order, seed {seed}")
    levels = {level: [t for t in tasks if t.level == level] for level in sorted({t.level for t in tasks})}
    queues: dict[int, list[Task]] = {level: [] for level in levels}
    dealt = dict.fromkeys(levels, 0)
    steps = []
    for step in range(1, num_steps + 1):
        due = {level: step * tasks_per_step * len(own) / len(tasks) - dealt[level] for level, own in levels.items()}
        chosen: list[Task] = []
        for _ in range(tasks_per_step):
            taken = {t.id for t in chosen}
            left = [level for level, own in levels.items() if any(t.id not in taken for t in own)]
            level = max(left, key=lambda lv: (due[lv], -lv))
            chosen.append(_next(queues[level], levels[level], taken, rng))
            due[level] -= 1
            dealt[level] += 1
        steps.append(chosen)
    return steps


def _next(queue: list[Task], own: Sequence[Task], taken: set[str], rng: random.Random) -> Task:
    """Take the first task of the queue that is not in ``taken``; a queue without one is filled up by a new deal."""
    if all(t.id in taken for t in queue):
        queue += rng.sample(own, k=len(own))
    at = next(i for i, t in enumerate(queue) if t.id not in taken)
    return queue.pop(at)


class RepairStarts:
    """What earlier steps left to be mended, from the turns' files that these wrote; the same for a resumed run."""

    def __init__(self, folder: Path, seed: int) -> None:
        """``folder``: of files ``step_00001.parquet``, ... ``seed``: of the choice among a task's kernels."""
        self._folder, self._seed = folder, seed
        self._steps: dict[int, dict[str, Turn | None]] = {}

    def of_step(self, step: int, task_ids: Sequence[str]) -> dict[str, Turn]:
        """By task the turn that its trajectories start from in ``step``; nothing for a task that begins anew.

        A task whose last step was a repair begins anew, whatever became of it.
        """
        found: dict[str, Turn] = {}
        for task_id in task_ids:
            start: Turn | None = None
            for earlier in range(1, step):
                left = self._left_by(earlier)
                if task_id in left:
                    start = left[task_id] if start is None else None
            if start is not None:
                found[task_id] = start
        return found

    def _left_by(self, step: int) -> dict[str, Turn | None]:
        """By task of a step a wrong kernel of it, None where one was correct or none holds a kernel."""
        if step not in self._steps:
            frame, _ = files.read_parquet(self._folder / f"step_{step:05d}.parquet", files.TRAIN_TURNS)
            self._steps[step] = {str(task): self._wrong_kernel(step, own) for task, own in frame.groupby("task_id")}
        return self._steps[step]

    def _wrong_kernel(self, step: int, group: pd.DataFrame) -> Turn | None:
        turns = files.turns_from_frame(group)
        kernels = [t for t in turns if t.kernel is not None and t.outcome is not None]
        if not kernels or any(t.speedup is not None for t in turns):
            return None
        return random.Random(f"kevin repair, {self._seed}, {step}, {kernels[0].task_id}").choice(kernels)
