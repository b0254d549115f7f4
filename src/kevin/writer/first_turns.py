"""First turns for pretrained weights: modules in many styles and sizes, and kernels under their names.

The answer restates the module first, independent of its style, then says the decisions of its plan, then gives the
kernel. Later turns: `kevin.writer.later_turns`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from kevin.core import dialogue
from kevin.core.errors import TaskError
from kevin.core.types import Exchange, Language, OpCall, Task, TaskSpec, Transcript
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import Step, trace_task
from kevin.writer.evaluated import Evaluated
from kevin.writer.modules.sizes import vary_sizes
from kevin.writer.modules.styled import Styled, as_it_is, restyle
from kevin.writer.plan import FLAWLESS, Plan, render, sample_plan
from kevin.writer.transcripts import OPENING, assembled, in_rounds
from kevin.writer.ways import Continuation, first_turn

_OWN_SIZES_SHARE = 0.15
_PLAIN_SHARE = 0.08
_ATTEMPTS = 6


def first_transcripts(
    tasks: Sequence[Task],
    language: Language,
    num: int,
    seed: int,
    *,
    evaluated: Evaluated | None = None,
    held_out_styles: bool = False,
) -> Iterator[Transcript]:
    """``num`` transcripts over tasks drawn evenly; sizes, style and plan are drawn anew each time.

    The same arguments give the same transcripts.

    Args:
        evaluated: what no task may become when its sizes are drawn.
        held_out_styles: only styles that are never trained on, for an evaluation.

    Raises:
        TaskError: there is no task, or one is not our own.
    """
    rng = random.Random(f"kevin school, seed {seed}")
    for drawn in islice(in_rounds(rng, usable_tasks(tasks)), num):
        task, plan = _drawn(drawn, language, rng, evaluated)
        styled = styled_anew(task, rng, held_out=held_out_styles)
        conversation = dialogue.conversation(styled.shown, (), dialect="c_abi", language=language)
        text = answer(task, styled.names, first_turn(plan))
        yield Transcript(task_id=task.id, conversation=conversation, exchanges=(Exchange(turn=1, answers=(text,)),))


def usable_tasks(tasks: Sequence[Task]) -> list[Task]:
    """The tasks, as a list. Raises TaskError where one is not our own, or there is none."""
    if foreign := [t.id for t in tasks if not t.ops or t.origin not in ("catalog", "composed")]:
        raise TaskError(f"task {foreign[0]} is not one of our own: transcripts are of catalog and composed tasks only")
    if not tasks:
        raise TaskError("there is no task to write transcripts for")
    return list(tasks)


def _drawn(task: Task, language: Language, rng: random.Random, evaluated: Evaluated | None) -> tuple[Task, Plan]:
    """The task at sizes for which the writer knows a kernel, and a plan for it."""
    for _ in range(_ATTEMPTS):
        if rng.random() < _OWN_SIZES_SHARE:
            break
        varied = vary_sizes(task, rng)
        if evaluated and evaluated.holds(varied):
            continue
        try:
            plan = sample_plan(rng, varied, language, FLAWLESS)
            render(varied, plan)
        except TaskError:
            continue
        return varied, plan
    return task, sample_plan(rng, task, language, FLAWLESS)


def styled_anew(task: Task, rng: random.Random, *, held_out: bool) -> Styled:
    """The task in a style drawn anew; of those that are trained on the study's own is one."""
    if held_out or rng.random() >= _PLAIN_SHARE:
        return restyle(task, rng, held_out=held_out)
    return as_it_is(task)


def answer(task: Task, names: Mapping[str, str], turn: Continuation) -> str:
    """The full answer of a turn: chain of thought, kernel, summary.

    Args:
        task: the plain one.
        names: by its tensors' names those that the prompt shows.
    """
    assert task.spec is not None
    thought = [OPENING, *restated(trace_task(task).steps, task.spec, names), *turn.said]
    return assembled(thought, turn, turn.source or render(task, turn.plan, names))


def restated(steps: Sequence[Step], spec: TaskSpec, names: Mapping[str, str]) -> list[str]:
    """Lines such as ``conv2d of x (16, 3, 64, 64) with conv_weight (32, 3, 3, 3), stride 2 -> (16, 32, 31, 31)``.

    Args:
        spec: the plain task's.
        names: by its names those that the kernel is given.
    """
    shapes = {s.name: s.shape for s in (*spec.inputs, *spec.parameters) if s.kind == "tensor"}
    lines = []
    for i, step in enumerate(steps):
        read = f"{names['x']} {_shape(step.in_shape)}" if i == 0 else "it"
        tensors = [n for n in (step.second, step.third, *step.parameters) if n]
        further = [f"{names[n]} {_shape(shapes[n])}" if n in shapes else names[n] for n in tensors]
        further += [said for name, value in _attributes(step.op) if (said := _said(step, i, name, value, names))]
        given = f" with {', '.join(further)}" if further else ""
        target = "out " if i == len(steps) - 1 else ""
        lines.append(f"{step.op.name} of {read}{given} -> {target}{_shape(step.out_shape)}")
    return lines


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


_ORDER = ("kernel", "stride", "padding", "output_padding", "dilation", "groups")
_DEFAULTS = {"padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}
_SEEN_IN_SHAPES = ("out", "bias", "ndim", "axis", "view", "again", "track")
"""Attributes that are not said."""


def _attributes(op: OpCall) -> list[tuple[str, float]]:
    """Those of a window in one order, and all that it could have been given: copying is easier than leaving out."""
    given = {_base(name) for name in op.attrs}
    unsaid = {n: _DEFAULTS[n] for n in OPERATORS[op.name].optional if n in _DEFAULTS and n not in given}
    attributes = {**op.attrs, **unsaid}
    return sorted(attributes.items(), key=lambda pair: _ORDER.index(_base(pair[0])) if _base(pair[0]) in _ORDER else -1)


def _base(name: str) -> str:
    """``kernel`` of ``kernel_0``, which is that along one axis."""
    return re.sub(r"_\d$", "", name)


def _said(step: Step, at: int, name: str, value: float, names: Mapping[str, str]) -> str:
    """An attribute, empty where the shapes say it. A dimension counts from the front; results are those of lines."""
    if name in _SEEN_IN_SHAPES:
        return ""
    if name == "of":
        return "itself" if value == at else names["x"] if value == 0 else f"line {int(value)}"
    return f"{name} {int(value) % len(step.in_shape) if name == 'dim' else f'{value:g}'}"
