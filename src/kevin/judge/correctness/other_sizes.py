"""A task at odd sizes near its own: a kernel that was made for one size, or drops a tail, is found out there.

Such a task is the reference with its inputs cut, computed in float64 where it can be. Sizes that the reference does not
take, because its parameters or arguments fix them, are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kevin.core.errors import TaskError
from kevin.core.types import Task, TaskSpec
from kevin.tasks.format import inspect_task

log = logging.getLogger(__name__)

_LEAST_SIZE = 4
_CUT = """

_given_inputs = get_inputs


def get_inputs():
    cut = {cut}
    return [x[tuple(slice(n) for n in cut[i])].contiguous() if i in cut else x for i, x in enumerate(_given_inputs())]
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


def _cuts(spec: TaskSpec) -> Iterator[dict[int, tuple[int, ...]]]:
    """Shapes of the inputs that are cut, by position, those first that most references take."""
    shapes = {i: s.shape for i, s in enumerate(spec.inputs) if s.kind == "tensor" and s.shape}
    if not shapes or any(not s.dtype.startswith(("float", "bfloat")) for s in spec.inputs if s.kind == "tensor"):
        return  # integers may be indices into what is cut
    first = shapes[min(shapes)]
    for near in (lambda n: 2 * n // 3 | 1, lambda n: n - 1 - n % 2):
        for axis in dict.fromkeys((0, len(first) - 1, *range(1, len(first) - 1))):
            size = first[axis]
            if size < _LEAST_SIZE or near(size) == size:
                continue
            from_end = axis - len(first)
            cut = {}
            for i, shape in shapes.items():
                at = axis if axis == 0 else from_end + len(shape)
                if 0 <= at < len(shape) and shape[at] == size:
                    cut[i] = (*shape[:at], near(size), *shape[at + 1 :])
            yield cut


def _named_as(spec: TaskSpec, other: TaskSpec) -> TaskSpec:
    """``other`` with the names of ``spec``, by which a launcher knows its arguments."""
    parts = ("inputs", "parameters", "outputs")
    pairs = {part: zip(getattr(other, part), getattr(spec, part), strict=True) for part in parts}
    named = {part: tuple(s.model_copy(update={"name": o.name}) for s, o in both) for part, both in pairs.items()}
    return TaskSpec(**named)


def other_sizes(task: Task, num: int) -> list[Task]:
    """``num`` tasks at most, inspected; fewer where the reference does not take so many other sizes."""
    spec = task.spec or inspect_task(task.source, task.id)
    found: list[Task] = []
    for cut in _cuts(spec):
        if len(found) == num:
            break
        name = f"{task.id} at {', '.join('x'.join(map(str, shape)) for shape in cut.values())}"
        source = task.source + _CUT.format(cut=cut)
        for text in (source + _EXACT, source):
            try:
                inspected = inspect_task(text, name)
            except TaskError as e:
                log.debug("%s: %s", name, e)
                continue
            found.append(task.model_copy(update={"id": name, "source": text, "spec": _named_as(spec, inspected)}))
            break
    return found
