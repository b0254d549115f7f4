"""Transcripts whose last turn has a past: judged answers with what was truly said of them, and a turn that goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kevin.core import dialogue
from kevin.core.types import Conversation, Exchange, Language, Transcript, Turn
from kevin.writer.past import PastTask
from kevin.writer.plan import FLAWLESS, Plan, summarise
from kevin.writer.read_back import read_plan
from kevin.writer.school import answer
from kevin.writer.ways import ANEW, Seen, Ways, go_on

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
    ways: Ways = WAYS,
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
    order: list[Past] = []
    for _ in range(num):
        if not order:
            order = rng.sample(list(pasts), len(pasts))
        past = order.pop()
        shown = _shown(rng, past)
        conversation = _conversation(past.task, language, shown)
        while len(shown) > 1 and sum(len(m.content) for m in conversation) > max_prompt_chars:
            shown = shown[1:]
            conversation = _conversation(past.task, language, shown)
        plain, names = past.task.plain, past.task.styled.names
        next_one = go_on(rng, plain, names, language, shown, ways, FLAWLESS)
        text = answer(
            plain,
            names,
            next_one.plan,
            summary=next_one.summary,
            goes_on=next_one.said,
            decided=next_one.decided,
            source=next_one.source,
        )
        exchange = Exchange(turn=len(shown) + 1, answers=(text,))
        yield Transcript(task_id=past.task.shown.id, conversation=conversation, exchanges=(exchange,))


def _shown(rng: random.Random, past: Past) -> list[Seen]:
    (num,) = rng.choices(range(1, MAX_PAST + 1), weights=range(MAX_PAST, 0, -1))
    num_forgotten = int(rng.random() < _FORGOTTEN_SHARE)
    drawn = rng.sample(past.answers, k=min(num + num_forgotten, len(past.answers)))
    seen = []
    for i, answered in enumerate(drawn):
        summary = answered.turn.summary if i == 0 else _summary(drawn[i - 1].plan, answered.plan)
        seen.append(answered._replace(turn=answered.turn.model_copy(update={"summary": summary})))
    return seen[num_forgotten:] or seen


def _summary(before: Plan | None, plan: Plan | None) -> str:
    return summarise(before, plan) if before and plan else ANEW


def _conversation(task: PastTask, language: Language, shown: Sequence[Seen]) -> Conversation:
    return dialogue.conversation(task.shown, [s.turn for s in shown], dialect="c_abi", language=language)
