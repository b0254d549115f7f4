"""Ways in which a later turn goes on from the turns before it, drawn by shares.

Only what a later turn sees is used: kernels, and what was said of each. Which way pays is not looked at.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kevin.core.types import Language, Outcome, Task, Turn
from kevin.writer.plan import (
    Habits,
    Plan,
    changed_slots,
    mutate_plan,
    plan_space,
    render,
    sample_plan,
    summarise,
    with_mistake,
)

_LOW_SHARE = 60.0
"""Per cent of a peak below which a profile is read as a complaint."""


class Hint(NamedTuple):
    said: str
    """The feedback's own sentence."""
    slots: tuple[str, ...]
    """Decisions that it points to."""


_COMPLAINTS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (
        re.compile(r"It reaches (\S+) % of the memory bandwidth\."),
        ("grid", "fusion", "passes", "rows", "threads"),
    ),
    (re.compile(r"It reaches (\S+) % of the arithmetic peak\."), ("product", "order", "loop", "real")),
    (re.compile(r"Of the warps that a multiprocessor holds (\S+) % are active\."), ("block_size", "rows")),
    (re.compile(r"Warps wait for a barrier \d+%[^.]*\."), ("rows", "block_size")),
    (re.compile(r"Warps wait for global memory \d+%[^.]*\."), ("grid", "fusion", "product")),
    (re.compile(r"Warps wait for the arithmetic units \d+%[^.]*\."), ("math", "real", "loop")),
    (re.compile(r"It uses \S+ registers a thread, \S+ bytes spilled\."), ("product", "loop", "block_size")),
)
"""Sentences of a profile, those with a share where that is low, and the decisions that they point to."""


def hints(feedback: str) -> list[Hint]:
    """What a feedback's profile complains of, with the decisions that may help; empty without a profile."""
    found = ((pattern.search(feedback), slots) for pattern, slots in _COMPLAINTS)
    return [
        Hint(match.group(), slots)
        for match, slots in found
        if match and all(float(share) < _LOW_SHARE for share in match.groups())
    ]


_SPEED = re.compile(r"Correct, (\S+)x the speed of PyTorch\.")
_MAX_SAID_CHARS = 160

ANEW = "started anew."
"""Summary of a turn that keeps nothing."""
_KINDS = {
    Outcome.PARSE_ERROR: "answer's form",
    Outcome.REFUSED: "rule violation",
    Outcome.COMPILE_ERROR: "compile error",
    Outcome.RUNTIME_ERROR: "runtime error",
    Outcome.TIMEOUT: "time limit",
    Outcome.INCORRECT: "wrong result",
    Outcome.QUARANTINED: "wrong result",
}
"""Of an outcome: what was mended, in a summary."""


class Ways(NamedTuple):
    """How often a later turn goes on in which way: shares of those that its past allows, relative to each other."""

    mend: float = 3.0
    """After a wrong kernel: the same decisions, right."""
    change: float = 3.0
    """The fastest kernel so far with one decision drawn anew."""
    go_back: float = 1.0
    """After a slower or wrong kernel: the fastest one so far as it was."""
    follow_profile: float = 1.0
    """The fastest kernel so far with one decision drawn anew that its profile points to, where the feedback has one."""
    start_anew: float = 1.0
    """All decisions drawn anew."""
    change_at_random: float = 1.0
    """The last kernel with one to three decisions drawn anew, whatever became of it."""
    repeat: float = 1.0
    """The last kernel as it was, where it was correct."""


class Seen(NamedTuple):
    """A past turn, and the plan that its author meant to follow, as far as that is known."""

    turn: Turn
    plan: Plan | None

    @property
    def is_correct(self) -> bool:
        return self.turn.outcome is Outcome.CORRECT

    @property
    def source(self) -> str | None:
        return self.turn.kernel.source if self.turn.kernel else None

    @property
    def speed(self) -> str:
        """As its feedback says it, which is all that a later turn knows; a correct kernel's only."""
        match = _SPEED.match(self.turn.feedback)
        assert match is not None, self.turn.feedback
        return match[1]


class Continuation(NamedTuple):
    """How a turn goes on."""

    said: tuple[str, ...]
    """Lines of its chain of thought."""
    plan: Plan
    source: str | None
    """The kernel, where it is not to be rendered from the plan: that of an earlier turn, to the letter."""
    summary: str
    kept: Plan | None = None
    """The plan of the turn that it goes on from; None where it starts anew."""
    way: str = "start_anew"

    @property
    def decided(self) -> tuple[str, ...]:
        """The slots of its plan whose values it says: those that it decides itself."""
        if self.kept is None:
            return tuple(slot for slot, _ in self.plan.slots)
        return tuple(changed_slots(self.kept, self.plan))


def first_turn(plan: Plan, source: str | None = None) -> Continuation:
    """A turn that sees nothing before it; ``source``: its kernel, where that is not as the plan is rendered."""
    return Continuation((), plan, source, summarise(None, plan))


def fastest_of(shown: Sequence[Seen]) -> Seen | None:
    """The correct kernel with the highest speed as it was told; of equal ones the last."""
    correct = [s for s in shown if s.is_correct]
    return max(reversed(correct), key=lambda s: float(s.speed), default=None)


def go_on(
    rng: random.Random,
    task: Task,
    names: Mapping[str, str] | None,
    language: Language,
    shown: Sequence[Seen],
    ways: Ways,
    habits: Habits,
    *,
    quotes: bool = True,
) -> Continuation:
    """A turn after ``shown``, at least one, in a way drawn from those that are possible; anew where none has a share.

    Args:
        task: the plain one.
        names: by its tensors' names those that the prompt shows, where they are others.
        habits: how often a plan that is drawn, or changed, gets a mistake.
        quotes: whether the chain of thought repeats what was wrong, or only says that something was.
    """
    scene = _Scene(rng, task, names, language, shown, habits)
    possible = scene.ways()
    shares = {way: share for way, share in ways._asdict().items() if share and way in possible}
    (way,) = rng.choices(list(shares), weights=list(shares.values())) if shares else ("start_anew",)
    taken = possible[way]()
    return taken._replace(way=way, said=(*scene.said(quotes), *taken.said))


class _Scene:
    """What a turn has before it, and the ways on from there."""

    def __init__(
        self,
        rng: random.Random,
        task: Task,
        names: Mapping[str, str] | None,
        language: Language,
        shown: Sequence[Seen],
        habits: Habits,
    ) -> None:
        self._rng, self._task, self._names, self._language, self._habits = rng, task, names, language, habits
        self._last, self._fastest = shown[-1], fastest_of(shown)
        self._space = plan_space(task, language)

    def said(self, quotes: bool) -> tuple[str, str]:
        """How things stand, in words that can be copied from the feedback."""
        last = f"The last one: {_in_short(self._last.turn.feedback, quotes=quotes)}"
        if self._fastest is None:
            return last, "None is correct so far."
        which = "the last one" if self._fastest is self._last else "an earlier one"
        return last, f"The fastest so far: {self._fastest.speed}x, {which}."

    def ways(self) -> dict[str, Callable[[], Continuation]]:
        """Those that are possible; what each says is the decision alone."""
        last, fastest = self._last, self._fastest
        found: dict[str, Callable[[], Continuation]] = {"start_anew": self._anew}
        if last.plan:
            found["change_at_random"] = partial(self._changed_at_random, last.plan)
            if last.is_correct:
                found["repeat"] = partial(_as_it_was, last, last.plan, "I give the last one again.", "changed nothing.")
            elif not self._is_the_writers(last, last.plan):
                found["mend"] = partial(_mended, last, last.plan)
        if fastest and fastest.plan:
            found["change"] = partial(self._changed, fastest.plan, list(self._space), "")
            if fastest is not last:
                said, summary = "I go back to the fastest one.", "went back to the fastest."
                found["go_back"] = partial(_as_it_was, fastest, fastest.plan, said, summary)
            if usable := [hint for hint in hints(fastest.turn.feedback) if self._free(hint.slots)]:
                found["follow_profile"] = partial(self._following, fastest.plan, usable)
        return found

    def _anew(self) -> Continuation:
        plan = sample_plan(self._rng, self._task, self._language, self._habits)
        return Continuation(("I decide anew.",), plan, None, ANEW)

    def _changed_at_random(self, plan: Plan) -> Continuation:
        new = mutate_plan(self._rng, self._task, plan, self._habits)
        changed = changed_slots(plan, new)
        but = f" but for {', '.join(changed)}" if changed else ""
        return Continuation((f"I keep the last one's decisions{but}.",), new, None, summarise(plan, new), plan)

    def _following(self, plan: Plan, usable: Sequence[Hint]) -> Continuation:
        hint = self._rng.choice(usable)
        return self._changed(plan, hint.slots, f"{hint.said} ")

    def _changed(self, plan: Plan, slots: Sequence[str], reason: str) -> Continuation:
        """One of ``slots`` takes another value."""
        values = dict(plan.slots)
        slot = self._rng.choice(self._free(slots))
        values[slot] = self._rng.choice([v for v in self._space[slot] if v != values[slot]])
        new = plan.model_copy(update={"slots": tuple(values.items())})
        new = with_mistake(self._rng, self._task, new, self._habits)
        decided = f"{reason}I keep the fastest one's decisions but for {slot}."
        return Continuation((decided,), new, None, summarise(plan, new), plan)

    def _free(self, slots: Sequence[str]) -> list[str]:
        return [slot for slot in slots if len(self._space.get(slot, ())) > 1]

    def _is_the_writers(self, seen: Seen, plan: Plan) -> bool:
        """Whether a kernel is what the writer would write for its plan: then it knows no better one."""
        return seen.source is not None and render(self._task, plan, self._names).strip() == seen.source.strip()


def _mended(seen: Seen, plan: Plan) -> Continuation:
    assert seen.turn.outcome is not None
    said = "I keep the last one's decisions and write it right."
    return Continuation((said,), plan, None, f"mended the {_KINDS[seen.turn.outcome]}.", plan)


def _as_it_was(seen: Seen, plan: Plan, said: str, summary: str) -> Continuation:
    return Continuation((said,), plan, seen.source, summary, plan)


def _in_short(feedback: str, *, quotes: bool) -> str:
    """The first line; of a correct kernel's the first sentence; without quotes only what kind of error it is."""
    line = feedback.strip().partition("\n")[0]
    if match := _SPEED.match(line):
        return match.group()
    return line[:_MAX_SAID_CHARS].rstrip() if quotes else f"{line.partition(':')[0]}."
