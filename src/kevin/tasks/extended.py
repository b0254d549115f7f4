"""The wide inventory as tasks: single operators over many shapes, sequences like KernelBench's level 2."""

from __future__ import annotations

import random

from kevin.core.types import OpCall, Task
from kevin.tasks.catalog import Size
from kevin.tasks.drawn import draw
from kevin.tasks.operators import OPERATORS, Sizes
from kevin.tasks.ops import trace
from kevin.tasks.render import render

_ELEMENTS: dict[Size, tuple[int, int]] = {"cpu": (14, 18), "gpu": (16, 27)}
"""Powers of two between which the number of elements of the first input is drawn."""

NOT_ALONE = ("add_residual", "mul_residual", "residual_sub", "dropout")


def catalog_extended(size: Size, per_operator: int = 3, seed: int = 0) -> list[Task]:
    """Every operator alone, ``per_operator`` times over shapes, ranks and dimensions; ids ``l1/<operator>_<number>``.

    The same arguments give the same tasks; those of an operator do not depend on the other operators.
    """
    low, high = _ELEMENTS[size]
    tasks = []
    for name in OPERATORS:
        if name in NOT_ALONE:
            continue
        rng = random.Random(f"kevin extended catalog, {name}, {size}, seed {seed}")
        for number in range(1, per_operator + 1):
            op, sizes = draw(rng, name, int(2 ** rng.uniform(low, high)))
            tasks.append(_task(f"l1/{name}_{number}", name, [op], sizes))
    return tasks


def _task(task_id: str, name: str, ops: list[OpCall], sizes: Sizes) -> Task:
    level = 1 if len(ops) == 1 else 2
    origin = "catalog" if level == 1 else "composed"
    spec = trace(ops, sizes).spec
    return Task(id=task_id, level=level, name=name, source=render(ops, sizes), ops=tuple(ops), origin=origin, spec=spec)
