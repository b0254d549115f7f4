"""Later turns for pretrained weights: answers that were judged, what was truly said of them, and a turn after.

Tasks, styles and the writer's own answers follow from the study's seed: any plan can be rendered for them again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from kevin.core import dialogue
from kevin.core.errors import TaskError
from kevin.core.fences import THINK_CLOSE, THINK_OPEN
from kevin.core.types import Conversation, Exchange, Language, Task, Transcript, Turn
from kevin.tasks.ops import trace_task
from kevin.tasks.rules import first_objection
from kevin.writer.evaluated import Evaluated
from kevin.writer.first_turns import answer, styled_anew, usable_tasks
from kevin.writer.modules.sizes import largest_tensor, vary_sizes
from kevin.writer.modules.styled import Styled
from kevin.writer.plan import FLAWLESS, Plan, mistakes_of, plan_space, render, sample_plan, summarise, without_mistake
from kevin.writer.slots import SENTENCES
from kevin.writer.transcripts import in_rounds
from kevin.writer.ways import ANEW, Seen, Ways, first_turn, go_on

_ATTEMPTS = 6
_PLANS_PER_KERNEL = 5


class PastTask(NamedTuple):
    """A task at sizes of its own, and as a prompt shows it."""

    plain: Task
    styled: Styled

    @property
    def shown(self) -> Task:
        """What is judged; its id carries a number: ``l1/softmax~17``."""
        return self.styled.shown


def past_tasks(
    tasks: Sequence[Task],
    language: Language,
    num: int,
    seed: int,
    *,
    largest: int,
    evaluated: Evaluated | None = None,
    held_out: bool = False,
) -> list[PastTask]:
    """``num`` tasks with sizes and style drawn anew: single operators and compositions by turns, each as often as any
    other of its kind.

    The same arguments give the same tasks; of a larger ``num`` the first ones are the same.

    Args:
        evaluated: what no task may become when its sizes are drawn.
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
        some = islice(next(by_turns), len(usable))
        plain = next(filter(None, (_sized(task, language, rng, evaluated, largest) for task in some)), None)
        if plain is None:
            raise TaskError(f"none of {len(usable)} tasks has tensors of at most {largest} elements")
        styled = styled_anew(plain, rng, held_out=held_out)
        task_id = f"{plain.id}~{'h' if held_out else ''}{len(found) + 1}"
        found.append(PastTask(plain, styled._replace(shown=styled.shown.model_copy(update={"id": task_id}))))
    return found


def _evenly(tasks: Sequence[Task], rng: random.Random) -> Iterator[Task]:
    while True:
        yield from rng.sample(tasks, len(tasks))


def _sized(
    task: Task, language: Language, rng: random.Random, evaluated: Evaluated | None, largest: int
) -> Task | None:
    """The task at sizes for which the writer knows a kernel; None where none was drawn."""
    for _ in range(_ATTEMPTS):
        varied = vary_sizes(task, rng, largest=largest)
        if evaluated and evaluated.holds(varied):
            continue
        try:
            if largest_tensor(trace_task(varied)) > largest or first_objection(varied.ops):
                continue
            render(varied, without_mistake(sample_plan(rng, varied, language)))
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
            plan = without_mistake(sample_plan(rng, task.plain, language))
            if wrong:
                plan = plan.model_copy(update={"mistake": rng.choice(mistakes_of(task.plain, plan))})
            source = render(task.plain, plan, task.styled.names)
            found.setdefault(source, answer(task.plain, task.styled.names, first_turn(plan, source)))
    return list(found.values())


def read_plan(task: Task, language: Language, completion: str) -> Plan | None:
    """The plan whose sentences stand in the chain of thought of an answer to ``task``; None where there is not one.

    A decision that is not said, or said in two ways, takes its plainest value. Mistakes cannot be read.
    """
    thought = completion.partition(THINK_CLOSE)[0].removeprefix(THINK_OPEN)
    lines = {line.strip() for line in thought.split("\n")}
    space = plan_space(task, language)
    said = {slot: [v for v in values if SENTENCES[slot][v] in lines] for slot, values in space.items()}
    if not any(len(values) == 1 for values in said.values()):
        return None
    slots = tuple((slot, said[slot][0] if len(said[slot]) == 1 else values[0]) for slot, values in space.items())
    return Plan(language=language, slots=slots)


WAYS = Ways(mend=1.0)
"""After a wrong kernel deciding anew is shown as often as mending it."""
MAX_PAST = 2
"""Turns before a later one, at most."""
_FORGOTTEN_SHARE = 0.15
"""Of pasts whose oldest turn is not shown, as in rollouts whose prompts have become too long."""


class Past(NamedTuple):
    """A task with answers to it that were judged."""

    task: PastTask
    answers: tuple[Seen, ...]


def past_of(task: PastTask, language: Language, turns: Sequence[Turn]) -> Past:
    """``turns``: of this task; those without a verdict are left out."""
    judged = (t for t in turns if t.outcome is not None)
    return Past(task, tuple(Seen(t, read_plan(task.plain, language, t.completion)) for t in judged))


def later_transcripts(
    pasts: Sequence[Past],
    language: Language,
    num: int,
    seed: int,
    *,
    max_prompt_chars: int,
) -> Iterator[Transcript]:
    """``num`` transcripts over tasks drawn evenly, each with one answer, to its last turn.

    The past is one to `MAX_PAST` of the task's answers, few more often, in any order and none twice. Their feedback
    is what was said of them; summaries are the writer's, of what has changed since the turn before. The same arguments
    give the same transcripts.

    Args:
        pasts: none without an answer.
        max_prompt_chars: the oldest turns are left out until the prompt is as short; the newest is always shown.
    """
    rng = random.Random(f"kevin later turns, seed {seed}")
    for past in islice(in_rounds(rng, pasts), num):
        shown = _shown(rng, past)
        conversation = _conversation(past.task, language, shown)
        while len(shown) > 1 and sum(len(m.content) for m in conversation) > max_prompt_chars:
            shown = shown[1:]
            conversation = _conversation(past.task, language, shown)
        plain, names = past.task.plain, past.task.styled.names
        next_one = go_on(rng, plain, names, language, shown, WAYS, FLAWLESS)
        exchange = Exchange(turn=len(shown) + 1, answers=(answer(plain, names, next_one),))
        yield Transcript(task_id=past.task.shown.id, conversation=conversation, exchanges=(exchange,))


def _shown(rng: random.Random, past: Past) -> list[Seen]:
    (num,) = rng.choices(range(1, MAX_PAST + 1), weights=range(MAX_PAST, 0, -1))
    num_forgotten = int(rng.random() < _FORGOTTEN_SHARE)
    drawn = rng.sample(past.answers, k=min(num + num_forgotten, len(past.answers)))
    seen = []
    for i, answered in enumerate(drawn):
        summary, before = answered.turn.summary, drawn[i - 1].plan
        if i > 0:
            summary = summarise(before, answered.plan) if before and answered.plan else ANEW
        seen.append(answered._replace(turn=answered.turn.model_copy(update={"summary": summary})))
    return seen[num_forgotten:] or seen


def _conversation(task: PastTask, language: Language, shown: Sequence[Seen]) -> Conversation:
    return dialogue.conversation(task.shown, [s.turn for s in shown], dialect="c_abi", language=language)
