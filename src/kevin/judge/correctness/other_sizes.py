"""A task at odd sizes near its own: a kernel that was made for one size, or drops a tail, is found out there.

Such a task is the reference with its inputs cut, or lengthened by what is drawn a second time, computed in float64
where it can be. Sizes that the reference does not take, because its parameters or arguments fix them, are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import zip_longest

from kevin.core.errors import TaskError
from kevin.core.types import Task, TaskSpec
from kevin.tasks.format import inspect_task

log = logging.getLogger(__name__)

_LEAST_SIZE = 4
_SIZED = """

import torch as _torch

_given_inputs = get_inputs


def _sized(drawn, again, shape):
    for axis, size in enumerate(shape):
        if drawn.shape[axis] != size:
            drawn = _torch.cat([drawn, again], axis).narrow(axis, 0, size)
    return drawn.contiguous()


def get_inputs():
    shapes = {shapes}
    both = zip(_given_inputs(), _given_inputs())
    return [_sized(x, y, shapes[i]) if i in shapes else x for i, (x, y) in enumerate(both)]
"""
_EXACT = """

import copy as _copy

import torch as _torch

_GivenModel = Model


def _as(value, to, instead):
    if isinstance(value, (list, tuple)):
        return [_as(v, to, instead) for v in value]
    return value.to(instead) if isinstance(value, _torch.Tensor) and value.dtype is to else value


class Model(_GivenModel):
    def forward(self, *inputs):
        exact = _copy.deepcopy(self).double()
        given = [_as(x, _torch.float32, _torch.float64) for x in inputs]
        return _as(_GivenModel.forward(exact, *given), _torch.float64, _torch.float32)
"""


def _longer(size: int) -> int:
    return 3 * size // 2 | 1


def _shorter(size: int) -> int:
    return 2 * size // 3 | 1


def _odd(size: int) -> int:
    return size - 1 - size % 2


def _others(spec: TaskSpec, *, longer: bool) -> list[dict[int, tuple[int, ...]]]:
    """Shapes of the inputs that are of another size, by position, those first that most references take."""
    shapes = {i: s.shape for i, s in enumerate(spec.inputs) if s.kind == "tensor" and s.shape}
    if not shapes or any(not s.dtype.startswith(("float", "bfloat")) for s in spec.inputs if s.kind == "tensor"):
        return []  # integers may be indices into what is cut
    first = shapes[min(shapes)]
    axes = list(dict.fromkeys((0, len(first) - 1, *range(1, len(first) - 1))))
    cut = [_along(axis, near, shapes) for near in (_shorter, _odd) for axis in axes]
    lengthened = [_along(axis, _longer, shapes) for axis in reversed(axes)] if longer else []
    return [each for pair in zip_longest(lengthened, cut) for each in pair if each]


def _along(axis: int, near: Callable[[int], int], shapes: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Those with the first one's size on an axis, with another there; empty where that is not another."""
    first = shapes[min(shapes)]
    size, from_end = first[axis], axis - len(first)
    if size < _LEAST_SIZE or near(size) == size:
        return {}
    found = {}
    for i, shape in shapes.items():
        at = axis if axis == 0 else from_end + len(shape)
        if 0 <= at < len(shape) and shape[at] == size:
            found[i] = (*shape[:at], near(size), *shape[at + 1 :])
    return found


def _named_as(spec: TaskSpec, other: TaskSpec) -> TaskSpec:
    """``other`` with the names of ``spec``, by which a launcher knows its arguments."""
    parts = ("inputs", "parameters", "outputs")
    pairs = {part: zip(getattr(other, part), getattr(spec, part), strict=True) for part in parts}
    named = {part: tuple(s.model_copy(update={"name": o.name}) for s, o in both) for part, both in pairs.items()}
    return TaskSpec(**named)


def other_sizes(task: Task, num: int, *, longer: bool = False) -> list[Task]:
    """``num`` tasks at most, inspected; fewer where the reference does not take so many other sizes.

    Args:
        longer: every other one is longer than the task, not shorter. A kernel that is compiled for its sizes may count
            on their not being exceeded: on threads of a block, on shared memory.
    """
    spec = task.spec or inspect_task(task.source, task.id)
    found: list[Task] = []
    for shapes in _others(spec, longer=longer):
        if len(found) == num:
            break
        name = f"{task.id} at {', '.join('x'.join(map(str, shape)) for shape in shapes.values())}"
        source = task.source + _SIZED.format(shapes=shapes)
        for text in (source + _EXACT, source):
            try:
                inspected = inspect_task(text, name)
            except TaskError as e:
                log.debug("%s: %s", name, e)
                continue
            found.append(task.model_copy(update={"id": name, "source": text, "spec": _named_as(spec, inspected)}))
            break
    return found
