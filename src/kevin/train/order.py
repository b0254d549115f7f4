"""Which tasks are trained on in which step: mixed difficulty in every batch, the same for the same seed."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path

from kevin.core import files
from kevin.core.config import TrainConfig
from kevin.core.errors import ConfigError
from kevin.core.types import Task

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
