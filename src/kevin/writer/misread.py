"""Modules read wrongly: another computation on the same tensors, for kernels that are right but not asked for."""

from __future__ import annotations

import random

from kevin.core.errors import TaskError
from kevin.core.types import OpCall, Task
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import call, sizes_of, trace
from kevin.tasks.render import render
from kevin.writer.restate import SEEN_IN_SHAPES

_ATTEMPTS = 40
_FACTORS = (0.5, 2.0, 3.0)
"""Of a constant that is misread."""
_EDITS = ("left out", "added", "taken for another", "misnumbered", "misnumbered")
"""Numbers are what a small model misreads most."""
_NOT_MISNUMBERED = (*SEEN_IN_SHAPES, "eps", "keepdim")
_ADDED = sorted(
    name for name, o in OPERATORS.items() if o.kind == "elementwise" and o.constructor is None and name != "dropout"
)


def misread(task: Task, rng: random.Random) -> Task | None:
    """``task`` with an operator left out, added, taken for another, or with another number; None where nothing fits.

    Inputs, parameters and the result's shape are the same, so that a kernel for one has the other's signature.
    """
    sizes = sizes_of(task.source)
    for _ in range(_ATTEMPTS):
        ops = _edited(rng.choice(_EDITS), list(task.ops), rng)
        try:
            traced = trace(ops, sizes)
            if tuple(s.op for s in traced.steps) == task.ops or traced.spec != task.spec:
                continue
            return task.model_copy(
                update={"ops": tuple(s.op for s in traced.steps), "source": render(ops, sizes), "spec": traced.spec}
            )
        except (TaskError, LookupError, ValueError, ZeroDivisionError):
            continue
    return None


def _edited(how: str, ops: list[OpCall], rng: random.Random) -> list[OpCall]:
    i = rng.randrange(len(ops))
    before, op, after = ops[:i], ops[i], ops[i + 1 :]
    match how:
        case "left out":
            return [*before, *after]
        case "added":
            pair = [op, call(rng.choice(_ADDED))]
            return [*before, *rng.sample(pair, 2), *after]
        case "taken for another":
            kind = OPERATORS[op.name].kind
            other = OPERATORS[rng.choice(sorted(n for n, o in OPERATORS.items() if o.kind == kind))]
            common = {name: op.attrs[name] for name in other.attrs if name in op.attrs}
            return [*before, call(other.name, **common), *after]
    names = [name for name in op.attrs if name not in _NOT_MISNUMBERED]
    if not names:
        return ops
    name = rng.choice(names)
    value = op.attrs[name]
    number = value + rng.choice((-1, 1)) if isinstance(value, int) else value * rng.choice(_FACTORS)
    return [*before, OpCall(name=op.name, attrs={**op.attrs, name: number}), *after]
