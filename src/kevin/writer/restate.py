"""What a module computes, in one normalised line an operator: names of the pointers, shapes in numbers, no style."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import dropwhile, islice, takewhile

from kevin.core.fences import THINK_CLOSE
from kevin.core.types import OpCall, TaskSpec
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import Step

RIGHT = "It read the module right."
"""What is said of a restatement that is as it should be."""
NEARLY = "It took a shape or a tensor for another."
"""Of one whose operators and numbers are right."""
_COMPUTED = "his is computed:"
"""How the line ends above those that restate the module, whatever it opens with."""
_ATTRIBUTE = re.compile(r"(?:with |, )([a-z_0-9]+ -?[\d.e+-]+)(?=, | with |$)")


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


def readings(completion: str) -> list[str]:
    """The lines of an answer that restate the module, as they stand there; none where it restates nothing."""
    thought = completion.partition(THINK_CLOSE)[0].split("\n")
    lines = dropwhile(lambda line: not line.endswith(_COMPUTED), thought)
    return list(takewhile(lambda line: " -> " in line, islice(lines, 1, None)))


def compared(read: Sequence[str], right: Sequence[str]) -> str:
    """In a sentence, the first thing in which a module was misread; operators go before shapes and tensors.

    Args:
        read: what was restated.
        right: what is to be.
    """
    was, is_ = [_briefly(line) for line in read], [_briefly(line) for line in right]
    for kind, i, _, j, _ in SequenceMatcher(None, was, is_, autojunk=False).get_opcodes():
        if kind == "insert":
            return f"It left out {', '.join(is_[j])}."
        if kind == "delete":
            return f"It computed {', '.join(was[i])}, which is not there."
        if kind == "replace":
            return _mistaken(was[i], is_[j])
    return RIGHT if list(read) == list(right) else NEARLY


def _mistaken(was: tuple[str, ...], right: tuple[str, ...]) -> str:
    if was[0] != right[0]:
        return f"It took {', '.join(right)} for {', '.join(was)}."
    missing, added = [a for a in right if a not in was], [a for a in was if a not in right]
    match bool(missing), bool(added):
        case True, True:
            return f"In {was[0]} it took {', '.join(missing)} for {', '.join(added)}."
        case True, False:
            return f"In {was[0]} it left out {', '.join(missing)}."
    return f"In {was[0]} it put in {', '.join(added)}."


def _briefly(line: str) -> tuple[str, ...]:
    """The operator of a line and its numbers, no tensors and shapes: ``conv2d``, ``kernel 3``, ``stride 2``."""
    name, _, rest = line.partition(" of ")
    return (name, *_ATTRIBUTE.findall(rest.rpartition(" -> ")[0]))
