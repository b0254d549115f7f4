"""Files of a pretraining's past: which tasks are answered, and the judged answers to them.

What those tasks are made of is drawn again from the seed, because kernels are rendered for them; the file says whether
that gave the same.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kevin.core import files
from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.provenance import provenance
from kevin.core.types import Language, Task, Turn
from kevin.writer.ceiling import counterpart
from kevin.writer.corpus import Lessons, Pasts, school_tasks
from kevin.writer.later_turns import Past, PastTask, past_of, past_tasks, written_answers

log = logging.getLogger(__name__)

SCHOOL, HELD_OUT = "school", "held_out"
"""Splits of the tasks: trained on, and in styles that never are."""
LARGEST = 2**25
"""Elements of a task's largest tensor: 128 MB in float32."""
NUM_RIGHT, NUM_WRONG = 1, 1
"""The writer's kernels for each task: right ones, and ones with a mistake."""


class PastTasks(NamedTuple):
    school: list[PastTask]
    held_out: list[PastTask]

    @property
    def all(self) -> list[PastTask]:
        return [*self.school, *self.held_out]


def draw_past_tasks(study: Study, lessons: Lessons | None = None) -> PastTasks:
    """Of what the school teaches; ``lessons`` are made when absent.

    Raises:
        ConfigError, DataError, TaskError: as `school_tasks` and `past_tasks`.
    """
    config = study.base_model.pretraining
    tasks, evaluated = school_tasks(study) if lessons is None else lessons

    def drawn(num: int, *, held_out: bool = False) -> list[PastTask]:
        return past_tasks(
            tasks, study.language, num, study.seed, evaluated=evaluated, largest=LARGEST, held_out=held_out
        )

    return PastTasks(drawn(config.num_past_tasks), drawn(config.num_held_out_past_tasks, held_out=True))


def write_past_tasks(study: Study, out_path: Path) -> None:
    """Write the tasks that are to be answered, as a tasks.parquet with the splits school and held_out."""
    drawn = draw_past_tasks(study)
    pairs = [*((t.shown, SCHOOL) for t in drawn.school), *((t.shown, HELD_OUT) for t in drawn.held_out)]
    files.write_tasks(out_path, pairs, provenance(study.digest))
    log.info("%s: %d tasks, %d of them in held-out styles", out_path, len(pairs), len(drawn.held_out))


def read_past_tasks(study: Study, path: Path, lessons: Lessons | None = None) -> PastTasks:
    """The tasks of a file, with what they are made of; ``lessons`` as in `draw_past_tasks`.

    Raises:
        DataError: they are not those that this configuration draws.
    """
    drawn = draw_past_tasks(study, lessons)
    wanted = {t.shown.id: t.shown.digest for t in drawn.all}
    given = {t.id: t.digest for t in files.read_tasks(path)}
    if wanted != given:
        changed = next(i for i in (*wanted, *given) if wanted.get(i) != given.get(i))
        raise DataError(
            f"{path}: task {changed} is not as this configuration and this code draw it; make the file, and the "
            f"answers to it, anew: kevin past tasks --out {path}"
        )
    return drawn


def past_answers(study: Study, path: Path) -> dict[str, list[str]]:
    """The writer's answers to every task of a file, by its id; they are yet to be judged.

    Raises:
        DataError: as `read_past_tasks`.
    """
    return {
        task.shown.id: written_answers(task, study.language, NUM_RIGHT, NUM_WRONG, study.seed)
        for task in read_past_tasks(study, path).all
    }


def read_pasts(study: Study, tasks_path: Path, turns_paths: Sequence[Path], lessons: Lessons | None = None) -> Pasts:
    """Tasks with all judged answers to them; ``lessons`` as in `draw_past_tasks`.

    Raises:
        DataError: as `read_past_tasks`; answers to other tasks, or none to a task of the school.
    """
    tasks = read_past_tasks(study, tasks_path, lessons)
    turns: dict[str, list[Turn]] = {t.shown.id: [] for t in tasks.all}
    for path in turns_paths:
        found, _ = files.read_turns(path)
        for turn in found:
            if turn.task_id not in turns:
                raise DataError(f"{path}: task {turn.task_id} is not in {tasks_path}; give the answers to those tasks")
            turns[turn.task_id].append(turn)

    def answered(some: list[PastTask]) -> tuple[Past, ...]:
        pasts = (past_of(t, study.language, turns[t.shown.id]) for t in some)
        return tuple(p for p in pasts if p.answers)

    pasts = Pasts(answered(tasks.school), answered(tasks.held_out))
    if not pasts.school:
        raise DataError(f"{', '.join(map(str, turns_paths))}: no judged answer to a task of {tasks_path}")
    log.info("%d judged answers to %d tasks", sum(len(p.answers) for p in pasts.school), len(pasts.school))
    return pasts


def rehearsed_answers(task: Task, language: Language, num: int, seed: int) -> list[str]:
    """Up to ``num`` answers of the writer, half of them right ones, in any order; none to a task that it does not
    know."""
    known = counterpart(task)
    if known is None:
        return []
    texts = written_answers(PastTask(known.shown, known), language, num // 2, num // 2, seed)
    random.Random(f"kevin rehearsal, {task.id}, seed {seed}").shuffle(texts)  # right ones stand first
    return texts
