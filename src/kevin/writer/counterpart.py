"""KernelBench's tasks as the writer knows them: the own task that computes the same, and the names of its tensors."""

from __future__ import annotations

import re

from kevin.core.errors import TaskError
from kevin.core.types import Task, TaskSpec, TensorSpec
from kevin.tasks.kernelbench_ops import kernelbench_rows, sizes_like
from kevin.tasks.ops import Trace, trace
from kevin.tasks.render import render
from kevin.tasks.styled import Styled


def counterpart(task: Task) -> Styled | None:
    """``task`` as the restyled form of an own one (``plain``); None for one that the inventory does not hold.

    Parameters are told apart by shape and by the last part of their names; the module's own come first in both.
    """
    found = re.fullmatch(r"kb/(\d+)/(\d+)", task.id)
    row = next((r for r in kernelbench_rows() if found and r.name == f"level{found[1]}/{found[2]}"), None)
    if row is None or row.outside is not None or task.spec is None:
        return None
    try:
        sizes = sizes_like(row.ops, task.spec)
        traced = trace(row.ops, sizes)
        names = _names(traced, task.spec)
    except TaskError:
        return None
    plain = task.model_copy(
        update={"source": render(row.ops, sizes), "ops": row.ops, "origin": "composed", "spec": traced.spec}
    )
    return Styled(plain, names)


def _names(traced: Trace, real: TaskSpec) -> dict[str, str]:
    """By the plain names the real ones, in the real order. Raises TaskError where a parameter has no like."""
    plain = traced.spec
    own = {name for c in traced.constructors if c and c.is_parameter for name, _ in c.parameters}
    names = {p.name: r.name for p, r in zip(plain.inputs, real.inputs, strict=True)}
    left = list(plain.parameters)
    for wanted in real.parameters:
        alike = [p for p in left if p.shape == wanted.shape]
        if not alike:
            raise TaskError(f"nothing is like the parameter {wanted.name}")
        alike.sort(key=lambda p: (p.name not in own, _last(p) != _last(wanted)))
        left.remove(alike[0])
        names[alike[0].name] = wanted.name
    return {**names, plain.outputs[0].name: real.outputs[0].name}


def _last(spec: TensorSpec) -> str:
    """``weight`` of ``conv_weight``."""
    return spec.name.rpartition("_")[2]
