"""Tasks whose answers are judged before a pretraining, so that its later turns go on from what is true.

Tasks, styles and the writer's own answers follow from the study's seed: any plan can be rendered for them again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from kevin.core.errors import TaskError
from kevin.core.types import Language, Task
from kevin.tasks.render import trace_task
from kevin.tasks.rules import first_objection
from kevin.tasks.sizes import largest_tensor, vary_sizes
from kevin.tasks.styled import Styled
from kevin.writer.plan import mistakes_of, render, sample_plan, summarise, without_mistakes
from kevin.writer.school import answer, styled_anew, usable_tasks

_ATTEMPTS = 6
_PLANS_PER_KERNEL = 5


class PastTask(NamedTuple):
    """A school task at sizes of its own, and as a prompt shows it."""

    plain: Task
    styled: Styled

    @property
    def shown(self) -> Task:
        """What is judged; its id carries a number: ``l1/softmax~17``."""
        return self.styled.shown


def past_tasks(
    tasks: Sequence[Task], language: Language, num: int, seed: int, *, largest: int, held_out: bool = False
) -> list[PastTask]:
    """``num`` tasks with sizes and style drawn anew: single operators and compositions by turns, each as often as any
    other of its kind.

    The same arguments give the same tasks; of a larger ``num`` the first ones are the same.

    Args:
        largest: elements of a task's largest tensor.
        held_out: in styles that are never trained on.

    Raises:
        TaskError: a task that is not our own, or none that is as small as that.
    """
    usable = usable_tasks(tasks)
    kind = "held out" if held_out else "school"
    rng = random.Random(f"kevin past, {kind}, seed {seed}")
    levels = {level: [t for t in usable if t.level == level] for level in sorted({t.level for t in usable})}
    by_turns = cycle([_evenly(some, rng) for some in levels.values()])
    found: list[PastTask] = []
    while len(found) < num:
        plain = _first_sized(next(by_turns), len(usable), language, rng, largest)
        styled = styled_anew(plain, rng, held_out=held_out)
        task_id = f"{plain.id}~{'h' if held_out else ''}{len(found) + 1}"
        found.append(PastTask(plain, styled._replace(shown=styled.shown.model_copy(update={"id": task_id}))))
    return found


def _evenly(tasks: Sequence[Task], rng: random.Random) -> Iterator[Task]:
    while True:
        yield from rng.sample(tasks, len(tasks))


def _first_sized(tasks: Iterator[Task], max_tasks: int, language: Language, rng: random.Random, largest: int) -> Task:
    """The first of ``max_tasks`` that is to be had in a size that fits."""
    for task in islice(tasks, max_tasks):
        if (plain := _sized(task, language, rng, largest)) is not None:
            return plain
    raise TaskError(f"none of {max_tasks} school tasks has tensors of at most {largest} elements")


def _sized(task: Task, language: Language, rng: random.Random, largest: int) -> Task | None:
    """The task at sizes for which the writer knows a kernel; None where none was drawn."""
    for _ in range(_ATTEMPTS):
        varied = vary_sizes(task, rng, largest=largest)
        try:
            if largest_tensor(trace_task(varied)) > largest or first_objection(varied.ops):
                continue
            render(varied, without_mistakes(sample_plan(rng, varied, language)))
        except TaskError:
            continue
        return varied
    return None


def written_answers(task: PastTask, language: Language, num_right: int, num_wrong: int, seed: int) -> list[str]:
    """Answers of the writer with different kernels: up to ``num_right`` that are meant to be right, then up to
    ``num_wrong`` with a mistake. The same arguments give the same answers.
    """
    rng = random.Random(f"kevin written past, {task.shown.id}, seed {seed}")
    found: dict[str, str] = {}
    for wrong, wanted in ((False, num_right), (True, num_right + num_wrong)):
        for _ in range(_PLANS_PER_KERNEL * wanted):
            if len(found) >= wanted:
                break
            plan = without_mistakes(sample_plan(rng, task.plain, language))
            if wrong:
                plan = plan.model_copy(update={"mistakes": (rng.choice(mistakes_of(task.plain, plan)),)})
            source = render(task.plain, plan, task.styled.names)
            text = answer(task.plain, task.styled.names, plan, summary=summarise(None, plan), source=source)
            found.setdefault(source, text)
    return list(found.values())
