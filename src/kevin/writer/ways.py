"""Ways in which a later turn goes on from the turns before it, drawn by shares.

Only what a later turn sees is used: kernels, and what was said of each. Which way pays is not looked at.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
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


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    complains: Callable[[re.Match[str]], bool]
    slots: tuple[str, ...]


def _is_low(match: re.Match[str]) -> bool:
    return float(match[1]) < _LOW_SHARE


def _always(match: re.Match[str]) -> bool:
    return True


_RULES = (
    _Rule(
        re.compile(r"It reaches (\S+) % of the memory bandwidth\."),
        _is_low,
        ("grid", "fusion", "passes", "rows", "threads"),
    ),
    _Rule(re.compile(r"It reaches (\S+) % of the arithmetic peak\."), _is_low, ("product", "order", "loop", "real")),
    _Rule(
        re.compile(r"Of the warps that a multiprocessor holds (\S+) % are active\."), _is_low, ("block_size", "rows")
    ),
    _Rule(re.compile(r"Warps wait for a barrier \d+%[^.]*\."), _always, ("rows", "block_size")),
    _Rule(re.compile(r"Warps wait for global memory \d+%[^.]*\."), _always, ("grid", "fusion", "product")),
    _Rule(re.compile(r"Warps wait for the arithmetic units \d+%[^.]*\."), _always, ("math", "real", "loop")),
    _Rule(
        re.compile(r"It uses \S+ registers a thread, \S+ bytes spilled\."),
        _always,
        ("product", "loop", "block_size"),
    ),
)


def hints(feedback: str) -> list[Hint]:
    """What a feedback's profile complains of, with the decisions that may help; empty without a profile."""
    found = ((rule, match) for rule in _RULES if (match := rule.pattern.search(feedback)))
    return [Hint(match.group(), rule.slots) for rule, match in found if rule.complains(match)]


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

    way: str
    said: tuple[str, ...]
    """Lines of its chain of thought."""
    plan: Plan
    source: str | None
    """The kernel, where it is that of an earlier turn to the letter."""
    summary: str
    kept: Plan | None = None
    """The plan of the turn that it goes on from; None where it starts anew."""

    @property
    def decided(self) -> tuple[str, ...]:
        """The slots of its plan whose values it says: those that it decides itself."""
        if self.kept is None:
            return tuple(slot for slot, _ in self.plan.slots)
        return tuple(changed_slots(self.kept, self.plan))


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
    scene = _Scene(rng, task, names, language, shown, habits, quotes=quotes)
    shares = {way: share for way, share in ways._asdict().items() if share and scene.is_possible(way)}
    (way,) = rng.choices(list(shares), weights=list(shares.values())) if shares else ("start_anew",)
    taken = scene.taken(way)
    return taken._replace(said=(*scene.said(), *taken.said))


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
        *,
        quotes: bool,
    ) -> None:
        self._quotes = quotes
        self._rng, self._task, self._names, self._language, self._habits = rng, task, names, language, habits
        self._last, self._fastest = shown[-1], fastest_of(shown)
        self._space = plan_space(task, language)
        self._hints = self._usable_hints() if self._fastest and self._fastest.plan else []

    def said(self) -> tuple[str, str]:
        """How things stand, in words that can be copied from the feedback."""
        last = f"The last one: {_in_short(self._last.turn.feedback, quotes=self._quotes)}"
        if self._fastest is None:
            return last, "None is correct so far."
        which = "the last one" if self._fastest is self._last else "an earlier one"
        return last, f"The fastest so far: {self._fastest.speed}x, {which}."

    def is_possible(self, way: str) -> bool:
        last, fastest = self._last, self._fastest
        match way:
            case "mend":
                return not last.is_correct and last.plan is not None and not self._is_the_writers(last)
            case "change":
                return fastest is not None and fastest.plan is not None
            case "go_back":
                return fastest is not None and fastest.plan is not None and fastest is not last
            case "follow_profile":
                return bool(self._hints)
            case "change_at_random":
                return last.plan is not None
            case "repeat":
                return last.is_correct and last.plan is not None
        return True

    def taken(self, way: str) -> Continuation:
        """``way`` taken, which must be possible; what it says is the decision alone."""
        last, fastest = self._last.plan, self._fastest.plan if self._fastest else None
        match way, last, fastest:
            case "mend", Plan(), _:
                assert self._last.turn.outcome is not None
                kind = _KINDS[self._last.turn.outcome]
                decided = "I keep the last one's decisions and write it right."
                return Continuation(way, (decided,), last, None, f"mended the {kind}.", last)
            case "change", _, Plan():
                return self._changed(way, fastest, list(self._space), "")
            case "follow_profile", _, Plan():
                hint = self._rng.choice(self._hints)
                return self._changed(way, fastest, hint.slots, f"{hint.said} ")
            case "go_back", _, Plan():
                assert self._fastest is not None
                summary = "went back to the fastest."
                said = ("I go back to the fastest one.",)
                return Continuation(way, said, fastest, self._fastest.source, summary, fastest)
            case "change_at_random", Plan(), _:
                plan = mutate_plan(self._rng, self._task, last, self._habits)
                changed = changed_slots(last, plan)
                but = f" but for {', '.join(changed)}" if changed else ""
                said = (f"I keep the last one's decisions{but}.",)
                return Continuation(way, said, plan, None, summarise(last, plan), last)
            case "repeat", Plan(), _:
                said = ("I give the last one again.",)
                return Continuation(way, said, last, self._last.source, summarise(last, last), last)
        plan = sample_plan(self._rng, self._task, self._language, self._habits)
        return Continuation(way, ("I decide anew.",), plan, None, ANEW)

    def _changed(self, way: str, plan: Plan, slots: Sequence[str], reason: str) -> Continuation:
        """One of ``slots`` takes another value."""
        values = dict(plan.slots)
        slot = self._rng.choice(self._free(slots))
        values[slot] = self._rng.choice([v for v in self._space[slot] if v != values[slot]])
        new = plan.model_copy(update={"slots": tuple(values.items())})
        new = with_mistake(self._rng, self._task, new, self._habits)
        decided = f"{reason}I keep the fastest one's decisions but for {slot}."
        return Continuation(way, (decided,), new, None, summarise(plan, new), plan)

    def _free(self, slots: Sequence[str]) -> list[str]:
        return [slot for slot in slots if len(self._space.get(slot, ())) > 1]

    def _usable_hints(self) -> list[Hint]:
        assert self._fastest is not None
        return [hint for hint in hints(self._fastest.turn.feedback) if self._free(hint.slots)]

    def _is_the_writers(self, seen: Seen) -> bool:
        """Whether a kernel is what the writer would write for its plan: then it knows no better one."""
        if seen.plan is None or seen.source is None:
            return False
        return render(self._task, seen.plan, self._names).strip() == seen.source.strip()


def _in_short(feedback: str, *, quotes: bool) -> str:
    """The first line; of a correct kernel's the first sentence; without quotes only what kind of error it is."""
    line = feedback.strip().partition("\n")[0]
    if match := _SPEED.match(line):
        return match.group()
    return line[:_MAX_SAID_CHARS].rstrip() if quotes else f"{line.partition(':')[0]}."
