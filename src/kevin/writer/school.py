"""Transcripts for a pretrained model's school: modules in many styles and sizes, and kernels under their names.

Each has one turn. The answer restates the module first, independent of its style, then says the decisions of its plan,
then gives the kernel.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence

from kevin.core import dialogue
from kevin.core.config import WriterConfig
from kevin.core.errors import TaskError
from kevin.core.types import Language, Task
from kevin.tasks.ops import sequence
from kevin.tasks.render import trace_task
from kevin.tasks.sizes import vary_sizes
from kevin.tasks.styled import Styled, restyle
from kevin.writer.plan import Plan, render, sample_plan
from kevin.writer.restate import restated
from kevin.writer.slots import sentence
from kevin.writer.transcripts import OPENING, Exchange, Transcript, summarise

_OWN_SIZES_SHARE = 0.15
_PLAIN_SHARE = 0.08
_ATTEMPTS = 6


def school_transcripts(
    tasks: Sequence[Task],
    language: Language,
    num: int,
    seed: int,
    *,
    held_out_styles: bool = False,
    mistakes: float = 0.0,
    exclude: Collection[tuple[str, ...]] = frozenset(),
) -> Iterator[Transcript]:
    """``num`` transcripts over tasks drawn evenly; sizes, style and plan are drawn anew each time.

    The same arguments give the same transcripts.

    Args:
        held_out_styles: only styles that the school never shows, for an evaluation.
        mistakes: share of kernels with a mistake of the writer's.
        exclude: operator-name sequences that must not come up.

    Raises:
        TaskError: no task is left, or one is not our own.
    """
    usable = _usable(tasks, exclude)
    rng = random.Random(f"kevin school, seed {seed}")
    habits = WriterConfig(careful_one_in=1, careful_mistakes=mistakes)
    order: list[Task] = []
    for _ in range(num):
        if not order:
            order = rng.sample(usable, len(usable))
        task, plan = _drawn(order.pop(), language, rng, habits)
        plain = not held_out_styles and rng.random() < _PLAIN_SHARE
        styled = _plain(task) if plain else restyle(task, rng, held_out=held_out_styles)
        conversation = dialogue.conversation(styled.shown, (), dialect="c_abi", language=language)
        answer = _answer(task, styled, plan)
        yield Transcript(task_id=task.id, conversation=conversation, exchanges=(Exchange(turn=1, answers=(answer,)),))


def _usable(tasks: Sequence[Task], exclude: Collection[tuple[str, ...]]) -> list[Task]:
    if foreign := [t.id for t in tasks if not t.ops or t.origin not in ("catalog", "composed")]:
        raise TaskError(f"task {foreign[0]} is not one of our own: only catalog and composed tasks go to school")
    usable = [t for t in tasks if sequence(t.ops) not in exclude]
    if not usable:
        raise TaskError(f"none of {len(tasks)} tasks is left for school: their operator sequences are all excluded")
    return usable


def _drawn(task: Task, language: Language, rng: random.Random, habits: WriterConfig) -> tuple[Task, Plan]:
    """The task at sizes for which the writer knows a kernel, and a plan for it."""
    for _ in range(_ATTEMPTS):
        if rng.random() < _OWN_SIZES_SHARE:
            break
        varied = vary_sizes(task, rng)
        try:
            plan = sample_plan(rng, varied, language, habits)
            render(varied, plan)
        except TaskError:
            continue
        return varied, plan
    return task, sample_plan(rng, task, language, habits)


def _plain(task: Task) -> Styled:
    """The task as the study's own renderer writes it."""
    assert task.spec is not None
    tensors = (*task.spec.inputs, *task.spec.parameters, *task.spec.outputs)
    return Styled(task, {s.name: s.name for s in tensors})


def _answer(task: Task, styled: Styled, plan: Plan) -> str:
    assert task.spec is not None
    thought = [OPENING, *restated(trace_task(task).steps, task.spec, styled.names)]
    thought += [sentence(slot, value) for slot, value in plan.slots]
    fence = dialogue.FENCES["c_abi", plan.language]
    kernel = render(task, plan, styled.names).rstrip()
    summary = f"{dialogue.SUMMARY} {summarise(None, plan)}"
    parts = [dialogue.THINK_OPEN, *thought, dialogue.THINK_CLOSE, f"```{fence}", kernel, "```", summary]
    return "\n".join(parts)


def held_out_tasks(tasks: Sequence[Task], num: int, seed: int) -> list[Task]:
    """``num`` restyled tasks, in styles that the school never shows, for an evaluation; the sizes are the tasks' own.

    Tasks come up evenly; ids carry a number: ``l1/softmax~3``.
    """
    rng = random.Random(f"kevin held-out styles, seed {seed}")
    order: list[Task] = []
    shown = []
    for number in range(1, num + 1):
        if not order:
            order = rng.sample(list(tasks), len(tasks))
        task = restyle(order.pop(), rng, held_out=True).shown
        shown.append(task.model_copy(update={"id": f"{task.id}~{number}"}))
    return shown
