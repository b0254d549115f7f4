"""Conversations between a writer of kernels and a judge, as the base model reads them: plans drawn without preference.

Prompts are those of `kevin.core.dialogue`, exactly as at test time. Each later turn goes on from what was said of the
kernels before it in a way drawn by shares (`kevin.writer.ways`), good ways and bad.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence

from kevin.core import dialogue, fences
from kevin.core.history import HistoryConfig
from kevin.core.types import Exchange, Kernel, Language, Task, Transcript, Turn
from kevin.writer.plan import EVEN, Habits, Plan, render, sample_plan, summarise
from kevin.writer.slots import CARE, sentence
from kevin.writer.synthetic import SpeedLaw, made_up_feedback
from kevin.writer.ways import Continuation, Seen, Ways, go_on

OPENING = "Okay, this is computed:"
OTHER_OPENINGS = ("Hmm, this is computed:", "So this is computed:", "Let me see, this is computed:")
OTHER_OPENING_SHARE = 0.04
SHARES = Ways()
LATER_SHARE = 0.5
"""Of the transcripts, how many ask for a later turn."""
MAX_TURNS = 4
"""Transcripts hold one to this many turns."""
ALL = HistoryConfig()


def _forward(task: Task) -> list[str]:
    """The forward method as the task writes it, line by line."""
    lines = task.source.split("\n")
    start = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def forward("))
    end = next(i for i in range(start, len(lines)) if lines[i].lstrip().startswith("return "))
    return lines[start : end + 1]


def completion(
    rng: random.Random,
    task: Task,
    plan: Plan,
    source: str,
    summary: str,
    *,
    goes_on: Sequence[str] = (),
    decided: Collection[str] | None = None,
) -> str:
    """The full answer of a turn: chain of thought, kernel, summary.

    Args:
        goes_on: lines that say what a later turn goes on from.
        decided: slots of the plan whose values are said; None for all.
    """
    opening = rng.choice(OTHER_OPENINGS) if rng.random() < OTHER_OPENING_SHARE else OPENING
    thought = [opening, *_forward(task), *goes_on, CARE[plan.care]]
    thought += [sentence(slot, value) for slot, value in plan.slots if decided is None or slot in decided]
    fence = dialogue.FENCES["c_abi", plan.language]
    return "\n".join(
        [
            fences.THINK_OPEN,
            *thought,
            fences.THINK_CLOSE,
            f"```{fence}",
            source.rstrip(),
            "```",
            f"{dialogue.SUMMARY} {summary}",
        ]
    )


def transcripts(
    tasks: Sequence[Task],
    language: Language,
    num: int,
    max_turns: int,
    seed: int,
    *,
    first_answers: int = 1,
    later_answers: int = 1,
    habits: Habits = EVEN,
    later_share: float = LATER_SHARE,
    ways: Ways = SHARES,
    history: HistoryConfig = ALL,
) -> Iterator[Transcript]:
    """``num`` transcripts over tasks drawn evenly, of one turn or, at ``later_share``, of two to ``max_turns``, few
    more often.

    The same arguments give the same transcripts.

    A transcript of one turn has ``first_answers`` answers to its prompt. A longer one has ``later_answers`` at each
    turn from the second on: its first turn's prompt reads differently, with the worked example. Where prompts do not
    show every earlier turn (``history``), the last turn alone has answers: no prompt begins with another.
    """
    rng = random.Random(f"kevin transcripts, seed {seed}")
    order: list[Task] = []
    for _ in range(num):
        if not order:
            order = rng.sample(list(tasks), len(tasks))
        task = order.pop()
        if max_turns == 1 or rng.random() >= later_share:
            yield _first_turn(rng, task, language, first_answers, habits)
            continue
        (num_turns,) = rng.choices(range(2, max_turns + 1), weights=range(max_turns - 1, 0, -1))
        yield _later_turns(rng, task, language, num_turns, later_answers, habits, ways, history)


def _first_turn(rng: random.Random, task: Task, language: Language, num_answers: int, habits: Habits) -> Transcript:
    answers = []
    for _ in range(num_answers):
        plan = sample_plan(rng, task, language, habits)
        answers.append(completion(rng, task, plan, render(task, plan), summarise(None, plan)))
    conversation = dialogue.conversation(task, (), dialect="c_abi", language=language)
    return Transcript(task_id=task.id, conversation=conversation, exchanges=(Exchange(turn=1, answers=tuple(answers)),))


def _later_turns(
    rng: random.Random,
    task: Task,
    language: Language,
    num_turns: int,
    num_answers: int,
    habits: Habits,
    ways: Ways,
    history: HistoryConfig,
) -> Transcript:
    law = SpeedLaw(rng)
    plan = sample_plan(rng, task, language, habits)
    past = [_seen(rng, law, task, plan, render(task, plan), summarise(None, plan), 1)]
    exchanges: list[Exchange] = []
    shown: list[Seen] = []
    for number in range(2, num_turns + 1):
        shown = _shown(past, history)
        is_asked = history.is_whole or number == num_turns
        num_drawn = num_answers if is_asked else 1
        drawn = [_drawn(rng, task, language, shown, ways, habits) for _ in range(num_drawn)]
        sources = [c.source or render(task, c.plan) for c in drawn]
        if is_asked:
            answers = [
                completion(rng, task, c.plan, source, c.summary, goes_on=c.said, decided=c.decided)
                for c, source in zip(drawn, sources, strict=True)
            ]
            exchanges.append(Exchange(turn=len(shown) + 1, answers=tuple(answers)))
        past.append(_seen(rng, law, task, drawn[0].plan, sources[0], drawn[0].summary, number))
    conversation = dialogue.conversation(task, [s.turn for s in shown], dialect="c_abi", language=language)
    return Transcript(task_id=task.id, conversation=conversation, exchanges=tuple(exchanges))


def _drawn(
    rng: random.Random, task: Task, language: Language, shown: Sequence[Seen], ways: Ways, habits: Habits
) -> Continuation:
    """How a later turn goes on; as a first one where its prompt shows nothing."""
    if shown:
        return go_on(rng, task, None, language, shown, ways, habits, quotes=False)
    plan = sample_plan(rng, task, language, habits)
    return Continuation("start_anew", (), plan, None, summarise(None, plan))


def _shown(past: Sequence[Seen], history: HistoryConfig) -> list[Seen]:
    """What the next prompt shows; turns are told apart by their numbers."""
    by_number = {seen.turn.turn: seen for seen in past}
    return [by_number[turn.turn] for turn in history.shown([seen.turn for seen in past])]


def _seen(rng: random.Random, law: SpeedLaw, task: Task, plan: Plan, source: str, summary: str, number: int) -> Seen:
    """A past turn as later prompts show it: its completion is not kept there. Its author means its plan to be right."""
    right = Plan(language=plan.language, slots=plan.slots)
    first = render(task, plan.model_copy(update={"mistakes": plan.mistakes[:1]}))
    outcome, text = made_up_feedback(rng, task, plan, render(task, right), first, law)
    turn = Turn(
        task_id=task.id,
        trajectory=0,
        turn=number,
        completion="",
        kernel=Kernel(dialect="c_abi", language=plan.language, source=source),
        summary=summary,
        outcome=outcome,
        feedback=text,
        speedup=None if plan.mistakes else law.speedup(plan),
        num_prompt_tokens=0,
        num_completion_tokens=0,
        finish_reason="stop",
    )
    return Seen(turn, right)
