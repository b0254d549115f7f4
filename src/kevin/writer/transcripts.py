"""Conversations between a writer of kernels and a judge, as the base model reads them: plans drawn without preference.

Prompts are those of `kevin.core.dialogue`, exactly as at test time. Each later turn goes on from what was said of the
kernels before it in a way drawn by shares (`kevin.writer.ways`), good ways and bad.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

from kevin.core import dialogue, fences
from kevin.core.dialogue import feedback
from kevin.core.history import HistoryConfig
from kevin.core.texts import split_lines
from kevin.core.types import Exchange, Kernel, Language, Outcome, Task, Transcript, Turn
from kevin.writer.plan import COMPILE_ERRORS, EVEN, Habits, Plan, render, sample_plan, without_mistake
from kevin.writer.slots import CARE, SENTENCES
from kevin.writer.ways import Continuation, Seen, Ways, first_turn, go_on

T = TypeVar("T")

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


def completion(rng: random.Random, task: Task, turn: Continuation, source: str) -> str:
    """The full answer of a turn: chain of thought, kernel, summary."""
    opening = rng.choice(OTHER_OPENINGS) if rng.random() < OTHER_OPENING_SHARE else OPENING
    return assembled([opening, *_forward(task), *turn.said, CARE[turn.plan.care]], turn, source)


def assembled(thought: Sequence[str], turn: Continuation, source: str) -> str:
    """An answer whose chain of thought begins with these lines, and ends with what the turn decides."""
    decided = [SENTENCES[slot][value] for slot, value in turn.plan.slots if slot in turn.decided]
    kernel = [f"```{dialogue.FENCES['c_abi', turn.plan.language]}", source.rstrip(), "```"]
    summary = f"{dialogue.SUMMARY} {turn.summary}"
    return "\n".join([fences.THINK_OPEN, *thought, *decided, fences.THINK_CLOSE, *kernel, summary])


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
    history: HistoryConfig = ALL,
) -> Iterator[Transcript]:
    """``num`` transcripts over tasks drawn evenly, of one turn or, at `LATER_SHARE`, of two to ``max_turns``, few
    more often.

    The same arguments give the same transcripts.

    A transcript of one turn has ``first_answers`` answers to its prompt. A longer one has ``later_answers`` at each
    turn from the second on: its first turn's prompt reads differently, with the worked example. Where prompts do not
    show every earlier turn (``history``), the last turn alone has answers: no prompt begins with another.
    """
    rng = random.Random(f"kevin transcripts, seed {seed}")
    for task in islice(in_rounds(rng, tasks), num):
        if max_turns == 1 or rng.random() >= LATER_SHARE:
            yield _first_turn(rng, task, language, first_answers, habits)
            continue
        (num_turns,) = rng.choices(range(2, max_turns + 1), weights=range(max_turns - 1, 0, -1))
        yield _later_turns(rng, task, language, num_turns, later_answers, habits, history)


def in_rounds(rng: random.Random, items: Sequence[T]) -> Iterator[T]:
    """Without end: all of them in a drawn order, again and again. An order is drawn when its first one is asked for."""
    while True:
        order = rng.sample(list(items), len(items))
        while order:
            yield order.pop()


def _first_turn(rng: random.Random, task: Task, language: Language, num_answers: int, habits: Habits) -> Transcript:
    answers = []
    for _ in range(num_answers):
        plan = sample_plan(rng, task, language, habits)
        answers.append(completion(rng, task, first_turn(plan), render(task, plan)))
    conversation = dialogue.conversation(task, (), dialect="c_abi", language=language)
    return Transcript(task_id=task.id, conversation=conversation, exchanges=(Exchange(turn=1, answers=tuple(answers)),))


def _later_turns(
    rng: random.Random,
    task: Task,
    language: Language,
    num_turns: int,
    num_answers: int,
    habits: Habits,
    history: HistoryConfig,
) -> Transcript:
    law = SpeedLaw(rng)
    opening = first_turn(sample_plan(rng, task, language, habits))
    past = [_seen(rng, law, task, opening, render(task, opening.plan), 1)]
    exchanges: list[Exchange] = []
    shown: list[Seen] = []
    for number in range(2, num_turns + 1):
        shown = _shown(past, history)
        is_asked = history.is_whole or number == num_turns
        num_drawn = num_answers if is_asked else 1
        drawn = [_drawn(rng, task, language, shown, habits) for _ in range(num_drawn)]
        sources = [c.source or render(task, c.plan) for c in drawn]
        if is_asked:
            answers = tuple(completion(rng, task, *pair) for pair in zip(drawn, sources, strict=True))
            exchanges.append(Exchange(turn=len(shown) + 1, answers=answers))
        past.append(_seen(rng, law, task, drawn[0], sources[0], number))
    conversation = dialogue.conversation(task, [s.turn for s in shown], dialect="c_abi", language=language)
    return Transcript(task_id=task.id, conversation=conversation, exchanges=tuple(exchanges))


def _drawn(rng: random.Random, task: Task, language: Language, shown: Sequence[Seen], habits: Habits) -> Continuation:
    """How a later turn goes on; as a first one where its prompt shows nothing."""
    if shown:
        return go_on(rng, task, None, language, shown, SHARES, habits, quotes=False)
    return first_turn(sample_plan(rng, task, language, habits))


def _shown(past: Sequence[Seen], history: HistoryConfig) -> list[Seen]:
    """What the next prompt shows; turns are told apart by their numbers."""
    by_number = {seen.turn.turn: seen for seen in past}
    return [by_number[turn.turn] for turn in history.shown([seen.turn for seen in past])]


def _seen(rng: random.Random, law: SpeedLaw, task: Task, made: Continuation, source: str, number: int) -> Seen:
    """A past turn as later prompts show it: its completion is not kept there. Its author means its plan to be right."""
    plan = made.plan
    right = Plan(language=plan.language, slots=plan.slots)
    outcome, text = made_up_feedback(rng, task, plan, source, law)
    turn = Turn(
        task_id=task.id,
        trajectory=0,
        turn=number,
        completion="",
        kernel=Kernel(dialect="c_abi", language=plan.language, source=source),
        summary=made.summary,
        outcome=outcome,
        feedback=text,
        speedup=None if plan.mistake else law.speedup(plan),
        num_prompt_tokens=0,
        num_completion_tokens=0,
        finish_reason="stop",
    )
    return Seen(turn, right)


_SPEEDUPS = (0.05, 4.0)
_EFFECT = 0.5
"""Standard deviation of the logarithm of what one decision does to the speed."""
_MATH_NAME = re.compile(r"\b(\w+)\(")
_MATH_NAMES = ("exp", "tanh", "erf", "log1p", "log", "expm1", "fabs", "sqrt")


class SpeedLaw:
    """The speed of a plan: a product of random factors, one for each decision that it takes."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = random.Random(rng.random())
        low, high = (math.log(s) for s in _SPEEDUPS)
        self._log_speed = self._rng.uniform(low, high)
        self._effects: dict[tuple[str, str], float] = {}

    def speedup(self, plan: Plan) -> float:
        """Over eager PyTorch; the same for the same decisions."""
        for decision in plan.slots:
            if decision not in self._effects:
                self._effects[decision] = self._rng.gauss(0, _EFFECT)
        return math.exp(self._log_speed + sum(self._effects[decision] for decision in plan.slots))


def made_up_feedback(rng: random.Random, task: Task, plan: Plan, source: str, law: SpeedLaw) -> tuple[Outcome, str]:
    """Outcome and feedback text for ``source``, the kernel of ``plan``."""
    if not plan.mistake:
        return Outcome.CORRECT, feedback(Outcome.CORRECT, "", law.speedup(plan))
    if plan.mistake in COMPILE_ERRORS:
        said = _said_by_nvcc if plan.language == "cuda" else _said_by_gcc
        right = render(task, without_mistake(plan))
        message = said(plan, split_lines(right), split_lines(source))
        return Outcome.COMPILE_ERROR, feedback(Outcome.COMPILE_ERROR, message, None)
    return Outcome.INCORRECT, feedback(Outcome.INCORRECT, _mismatch(rng, task), None)


def _first_difference(right: list[str], wrong: list[str]) -> tuple[int, str]:
    """Number and text of the first line that is not as it should be."""
    pairs = zip(right, [*wrong, ""], strict=False)
    return next(((i, w) for i, (r, w) in enumerate(pairs, 1) if r != w), (1, wrong[0]))


def _said_by_nvcc(plan: Plan, right: list[str], wrong: list[str]) -> str:
    """The first errors in nvcc's words."""
    number, line = _first_difference(right, wrong)
    if plan.mistake == "undeclared_name":
        return _nvcc_error(number, line, line.find("num"), 'identifier "num" is undefined')
    if plan.mistake == "missing_semicolon":  # found out at the next token
        after = wrong[number] if number < len(wrong) else ""
        return _nvcc_error(number + 1, after, len(after) - len(after.lstrip()), 'expected a ";"')
    text = 'more than one instance of overloaded function "launch" has "C" linkage'
    errors = [_nvcc_error(number, line, line.find("launch"), text)]
    name = re.split(r"double\* ", line)[-1].split(",")[0]
    text = 'argument of type "const double *" is incompatible with parameter of type "const float *"'
    for call, source in enumerate(wrong[number:], number + 1):
        if re.search(rf">>>\({name}[,)]", source):
            errors.append(_nvcc_error(call, source, source.find(">>>(") + 4, text))
    return "\n\n".join(errors)


def _nvcc_error(number: int, line: str, column: int, text: str) -> str:
    return f"kernel.cu({number}): error: {text}\n  {line}\n  {' ' * column}^"


def _said_by_gcc(plan: Plan, right: list[str], wrong: list[str]) -> str:
    """The first error in g++'s words."""
    number, line = _first_difference(right, wrong)
    if plan.mistake == "missing_include":
        calls = ((i, s, m) for i, s in enumerate(wrong, 1) for m in _MATH_NAME.finditer(s) if m.group(1) in _MATH_NAMES)
        number, line, call = next(calls)
        column, name = call.start() + 1, call.group(1)
        text = f"'{name}' was not declared in this scope"
    elif plan.mistake == "undeclared_name":
        column, name = line.find("num;") + 1, "num"
        text = "'num' was not declared in this scope"
    elif plan.mistake == "missing_semicolon":
        column, name = len(line) + 1, "^"
        text = "expected ';' before '}' token"
    else:
        column, name = line.find("launch") + 1, "launch"
        text = "conflicting declaration of C function 'void launch(const double*"
    marks = f"      | {' ' * (column - 1)}^{'~' * (len(name) - 1)}"
    return f"kernel.cpp:{number}:{column}: error: {text}\n{number:5d} | {line}\n{marks}"


def _mismatch(rng: random.Random, task: Task) -> str:
    """A wrong result in the words of `kevin.judge.correctness.compare`."""
    assert task.spec is not None
    out = task.spec.outputs[0]
    index = f"[{', '.join(str(rng.randrange(d)) for d in out.shape)}]" if out.shape else ""
    bad = rng.randint(1, out.num_elements)
    where = f"{bad} of {out.num_elements} elements ({100 * bad / out.num_elements:.2g} %) are wrong"
    if rng.random() < 0.5:
        where = "every element is wrong" if out.shape else "the value is wrong"
    return f"out: {where}; out{index} is {rng.gauss(0, 1):.6g}, expected {rng.gauss(0, 1):.6g}"
