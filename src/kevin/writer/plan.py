"""Plans: what a kernel for a task shall be, drawn without any preference for the good; and the kernel of a plan."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kevin.core.errors import TaskError
from kevin.core.types import Frozen, Language, OpCall, Task
from kevin.tasks.ops import Step, sizes_of, trace
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.elementwise import is_pointwise
from kevin.writer.kernels.program import program
from kevin.writer.kernels.space import Space, space

SWAPPED = "swapped_ops"
"""The one mistake that is made before any line is written: two operators in the wrong order."""

COMPILE_ERRORS = ("undeclared_name", "missing_semicolon", "missing_include", "wrong_type")


class Habits(NamedTuple):
    """How a writer of transcripts decides."""

    careful_one_in: int = 2
    """One kernel in so many is written with care; the others quickly."""
    plain_share: float = 0.0
    """Share of decisions that are taken the plainest way; the rest is drawn evenly from all ways."""
    careful_mistakes: float = 0.1
    """Probability of a mistake in a kernel that is written with care."""
    quick_mistakes: float = 0.8
    """Probability of a mistake in one that is written quickly."""


EVEN = Habits()
FLAWLESS = Habits(careful_one_in=1, careful_mistakes=0.0)


class Plan(Frozen):
    """An assignment of every slot, and the mistake that is made, if any."""

    language: Language
    slots: tuple[tuple[str, str], ...]
    mistake: str | None = None
    care: str = "careful"


def plan_space(task: Task, language: Language) -> Space:
    """Slots and their values for a task. Raises TaskError for a task that is not one of our own."""
    return space(_steps(task), language)


def _steps(task: Task) -> tuple[Step, ...]:
    if task.spec is None or task.origin not in ("catalog", "composed"):
        raise TaskError(f"task {task.id}: the kernel writer writes for catalog and composed tasks only")
    return _traced(task.source, tuple((op.name, *op.attrs.items()) for op in task.ops))


@lru_cache(maxsize=4096)
def _traced(source: str, ops: tuple[tuple[Any, ...], ...]) -> tuple[Step, ...]:
    return trace([OpCall(name=name, attrs=dict(attrs)) for name, *attrs in ops], sizes_of(source)).steps


def _swappable(steps: Sequence[Step]) -> int | None:
    """The first of two neighbouring element-wise operators after the main one."""
    pairs = range(1, len(steps) - 1)
    return next((i for i in pairs if _can_swap(steps[i], steps[i + 1])), None)


def _can_swap(a: Step, b: Step) -> bool:
    return all(is_pointwise(s) and s.kind != "residual" for s in (a, b)) and a.op != b.op


def _program(task: Task, plan: Plan) -> Code:
    assert task.spec is not None
    steps = list(_steps(task))
    if plan.mistake == SWAPPED and (i := _swappable(steps)) is not None:
        steps[i], steps[i + 1] = steps[i + 1], steps[i]
    return program(task.spec, steps, dict(plan.slots), plan.language)


def mistakes_of(task: Task, plan: Plan) -> tuple[str, ...]:
    """Mistakes that a kernel of this plan can hold."""
    swapped = (SWAPPED,) if _swappable(_steps(task)) is not None else ()
    return _program(task, without_mistake(plan)).mistakes() + swapped


def without_mistake(plan: Plan) -> Plan:
    return plan.model_copy(update={"mistake": None})


def render(task: Task, plan: Plan, names: Mapping[str, str] | None = None) -> str:
    """The kernel's source. Raises ValueError for a mistake that this plan cannot make.

    ``names``: what the tensors are called in place of their names in the task's spec, in the order of the signature
    (`kevin.writer.modules.styled.Styled.names`).
    """
    if names is not None and task.spec is not None:
        order = list(names)
        parameters = sorted(task.spec.parameters, key=lambda s: order.index(s.name))
        task = task.model_copy(update={"spec": task.spec.model_copy(update={"parameters": tuple(parameters)})})
    text = _program(task, plan).text(None if plan.mistake == SWAPPED else plan.mistake)
    return text if names is None else renamed(text, names)


def enumerate_plans(task: Task, language: Language) -> Iterator[Plan]:
    """Every plan without a mistake, in a fixed order."""
    space = plan_space(task, language)
    for values in itertools.product(*space.values()):
        yield Plan(language=language, slots=tuple(zip(space, values, strict=True)))


def sample_plan(rng: random.Random, task: Task, language: Language, habits: Habits = EVEN) -> Plan:
    """A plan with every slot drawn anew, by default uniformly."""
    slots = tuple((slot, _drawn(rng, values, habits)) for slot, values in plan_space(task, language).items())
    return with_mistake(rng, task, Plan(language=language, slots=slots), habits)


def _drawn(rng: random.Random, values: Sequence[str], habits: Habits) -> str:
    plainly = habits.plain_share > 0 and rng.random() < habits.plain_share
    return values[0] if plainly else rng.choice(values)


def mutate_plan(rng: random.Random, task: Task, plan: Plan, habits: Habits = EVEN) -> Plan:
    """The plan with one to three slots drawn anew, and its care and mistake too: neither better nor worse."""
    space = plan_space(task, plan.language)
    drawn = set(rng.sample(list(space), k=min(rng.randint(1, 3), len(space))))
    slots = tuple((slot, _drawn(rng, space[slot], habits) if slot in drawn else value) for slot, value in plan.slots)
    return with_mistake(rng, task, Plan(language=plan.language, slots=slots), habits)


def with_mistake(rng: random.Random, task: Task, plan: Plan, habits: Habits) -> Plan:
    """The plan with its care, and a mistake or none, drawn anew."""
    care = "careful" if rng.randrange(habits.careful_one_in) == 0 else "quick"
    share = habits.careful_mistakes if care == "careful" else habits.quick_mistakes
    mistake = rng.choice(mistakes_of(task, plan)) if rng.random() < share else None
    return plan.model_copy(update={"care": care, "mistake": mistake})


def changed_slots(before: Plan, plan: Plan) -> list[str]:
    """Decisions that are not as in the plan before."""
    old = dict(before.slots)
    return [slot for slot, value in plan.slots if old.get(slot) != value]


def summarise(before: Plan | None, plan: Plan) -> str:
    """What changed since the plan before."""
    if before is None:
        return "first version."
    changed = changed_slots(before, plan)
    return f"changed {', '.join(changed)}." if changed else "changed nothing."


# --- names of tensors -------------------------------------------------------------------------------------------

_WORD = re.compile(r'"[^"\n]*"|(?<![\w.\"])[A-Za-z_]\w*')
"""Strings go as they are: those of asm statements have letters of their own."""
_CONSTANT = re.compile(r"(\w+?)_(d\d+|size)")
_MACRO = "#define PRAGMA("
"""Its argument is no tensor."""


def renamed(text: str, names: Mapping[str, str]) -> str:
    """``text`` with every tensor and its constants under the new name; variables that stand in the way give way.

    Args:
        names: by the name in ``text`` the new one.
    """
    words = set(_WORD.findall(text))
    new: dict[str, str] = {}
    for word in words:
        match = _CONSTANT.fullmatch(word)
        if word in names:
            new[word] = names[word]
        elif match and match[1] in names:
            new[word] = f"{names[match[1]]}_{match[2]}"
    given = set(new.values()) | set(names.values())
    for word in words - new.keys():
        if word in given:
            new[word] = _free(word, words | given)
    lines = (
        line if line.startswith(_MACRO) else _WORD.sub(lambda m: new.get(m.group(), m.group()), line)
        for line in text.split("\n")
    )
    return "\n".join(lines)


def _free(word: str, taken: set[str]) -> str:
    while word in taken:
        word += "_"
    return word
