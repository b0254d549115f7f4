"""The wide inventory as tasks: single operators over many shapes, sequences like KernelBench's level 2."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Literal

from kevin.core.errors import TaskError
from kevin.core.types import OpCall, Task
from kevin.tasks.catalog import Size
from kevin.tasks.drawn import draw
from kevin.tasks.drawn_sequence import draw_sequence
from kevin.tasks.kernelbench_ops import kernelbench_sequences
from kevin.tasks.operators import OPERATORS, Sizes
from kevin.tasks.ops import sequence, trace
from kevin.tasks.render import render

_ELEMENTS: dict[Size, tuple[int, int]] = {"cpu": (14, 18), "gpu": (16, 27)}
"""Powers of two between which the number of elements of the first input is drawn."""

_COMPOSED_ELEMENTS: dict[Size, tuple[int, int]] = {"cpu": (11, 15), "gpu": (16, 24)}
_MAX_ATTEMPTS_PER_TASK = 500

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


def compose_general(
    num: int, seed: int, size: Size, exclude: Collection[tuple[str, ...]] = frozenset()
) -> Iterator[Task]:
    """``num`` tasks of a main operator and one to five others around it, one after the other, no sequence twice.

    Sequences and attributes come from the whole inventory, sizes from small to those of KernelBench (``gpu``). The
    same arguments give the same tasks.

    Args:
        exclude: operator-name sequences that must not come up; those of KernelBench's tasks never do.

    Raises:
        TaskError: so many are asked for that no new sequence is found.
    """
    rng = random.Random(f"kevin general level 2, {size}, seed {seed}")
    low, high = _COMPOSED_ELEMENTS[size]
    seen = {*exclude, *kernelbench_sequences()}
    for index in range(1, num + 1):
        for _ in range(_MAX_ATTEMPTS_PER_TASK):
            ops, sizes = draw_sequence(rng, int(2 ** rng.uniform(low, high)))
            if len(ops) > 1 and sequence(ops) not in seen:
                break
        else:
            raise TaskError(f"no new operator sequence found after {index - 1} of {num}; ask for fewer tasks")
        seen.add(sequence(ops))
        name = "_".join(sequence(ops))
        yield _task(f"l2/g{index:04d}_{name}", name, ops, sizes)


def _task(task_id: str, name: str, ops: list[OpCall], sizes: Sizes) -> Task:
    level = 1 if len(ops) == 1 else 2
    origin: Literal["catalog", "composed"] = "catalog" if level == 1 else "composed"
    spec = trace(ops, sizes).spec
    return Task(id=task_id, level=level, name=name, source=render(ops, sizes), ops=tuple(ops), origin=origin, spec=spec)
