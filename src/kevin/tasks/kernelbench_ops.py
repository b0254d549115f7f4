"""What KernelBench's tasks compute, operator by operator: how far the inventory reaches, and what must stay unseen."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import yaml

from kevin.core.errors import ConfigError, TaskError
from kevin.core.types import Frozen, OpCall, Task, TaskSpec, TensorSpec
from kevin.tasks.operators import NAMES_BY_RANK, OPERATORS
from kevin.tasks.ops import parse_sequence, sequence, trace

_TABLE = "kernelbench_ops.yaml"
_ALIKE = (
    ("add_param", "sub_param", "bias_add"),
    ("scale", "div_scalar"),
    ("add_scalar", "sub_scalar"),
    ("linear", "matmul_weight"),
    ("adaptive_avg_pool", "global_avg_pool", "mean_dim"),
)
"""Names under which the same computation may come."""


class Row(Frozen):
    """One task of KernelBench: ``level2/12``, its operators, and why the inventory does not hold it, if so."""

    name: str
    ops: tuple[OpCall, ...]
    outside: str | None = None


@lru_cache(maxsize=1)
def kernelbench_rows() -> tuple[Row, ...]:
    """All 200 tasks of levels 1 and 2."""
    table = yaml.safe_load(files("kevin.tasks").joinpath(_TABLE).read_text("utf-8"))
    rows = []
    for name, entry in table.items():
        fields = {"ops": entry} if isinstance(entry, str) else entry
        rows.append(Row(name=name, ops=tuple(parse_sequence(fields["ops"])), outside=fields.get("outside")))
    return tuple(rows)


@lru_cache(maxsize=1)
def kernelbench_sequences() -> frozenset[tuple[str, ...]]:
    """Operator-name sequences of all of KernelBench's tasks, in every spelling: none may stand in training text."""
    spellings: set[tuple[str, ...]] = set()
    for row in kernelbench_rows():
        choices = [next((names for names in _ALIKE if op in names), (op,)) for op in sequence(row.ops)]
        spellings.update(itertools.product(*choices))
    return frozenset(spellings)


def kernelbench_row(task: Task) -> Row | None:
    """That of one of KernelBench's tasks; None for any other."""
    found = re.fullmatch(r"kb/(\d+)/(\d+)", task.id)
    return next((row for row in kernelbench_rows() if found and row.name == f"level{found[1]}/{found[2]}"), None)


def operators_of(task: Task) -> tuple[OpCall, ...]:
    """Of the study's own task, or of KernelBench's; none of any other."""
    row = kernelbench_row(task)
    return row.ops if row is not None else task.ops


def coverage(checkout: Path | None = None) -> dict[str, str | None]:
    """Each task of levels 1 and 2 by its name, with why it is outside the inventory, or None.

    With a checkout of KernelBench the traces are compared with its modules. Raises ConfigError for a folder that holds
    no KernelBench.
    """
    found = {row.name: row.outside for row in kernelbench_rows()}
    if checkout is not None:
        inside = [row for row in kernelbench_rows() if row.outside is None]
        found |= {row.name: difference(row, _module(checkout, row.name)) for row in inside}
    return found


def _module(checkout: Path, name: str) -> Path:
    level, number = name.split("/")
    for folder in (checkout / "KernelBench" / level, checkout / level):
        if found := sorted(folder.glob(f"{number}_*.py")):
            return found[0]
    raise ConfigError(f"{checkout}: no KernelBench/{level}/{number}_*.py there; name a checkout of KernelBench")


def difference(row: Row, module: Path) -> str | None:
    """Where the shapes worked out differ from those of the real module; None where they agree."""
    from kevin.tasks.format import inspect_task

    spec = inspect_task(module.read_text("utf-8"), row.name)
    try:
        ours = trace(row.ops, sizes_like(row.ops, spec)).spec
    except TaskError as e:
        return f"not traced: {e}"
    for what, mine, real in (
        ("inputs", ours.inputs, spec.inputs),
        ("parameters", ours.parameters, spec.parameters),
        ("outputs", ours.outputs, spec.outputs),
    ):
        shapes, real_shapes = _shapes(mine), _shapes(real)
        if what == "parameters":
            shapes, real_shapes = sorted(shapes), sorted(real_shapes)
        if shapes != real_shapes:
            return f"{what} {shapes} are {real_shapes} in the module"
    return None


def _shapes(specs: tuple[TensorSpec, ...]) -> list[tuple[int, ...]]:
    return [s.shape for s in specs]


def sizes_like(ops: tuple[OpCall, ...], spec: TaskSpec) -> dict[str, int]:
    """The sizes of a module: those of its first input and of its first product.

    Raises TaskError where it has no weight for the sequence's first product.
    """
    sizes = dict(zip(NAMES_BY_RANK[len(spec.inputs[0].shape)], spec.inputs[0].shape, strict=True))
    main = next((op for op in ops if OPERATORS[op.name].kind == "contract" and op.name != "depthwise_conv2d"), None)
    if main is None or OPERATORS[main.name].third:
        return sizes
    if OPERATORS[main.name].second:
        second = spec.inputs[1].shape
        by_rows = main.name in ("matmul_transposed_b", "matmul_transposed")
        return {**sizes, "cols": second[0] if by_rows else second[-1]}
    weight = _weight(main, spec)
    if main.name in ("linear", "matmul_weight"):
        return {**sizes, "out_features": weight[0]}
    is_transposed = main.name.startswith("conv_transpose")
    out = weight[1] * int(main.attrs.get("groups", 1)) if is_transposed else weight[0]
    return {**sizes, "out_channels": out}


def _weight(main: OpCall, spec: TaskSpec) -> tuple[int, ...]:
    """Shape of the first parameter that has the weight's rank: that of the pointwise one for two convolutions."""
    rank = 2 if main.name in ("linear", "matmul_weight") else len(spec.inputs[0].shape)
    named = [p.shape for p in spec.parameters if len(p.shape) == rank and ("weight" in p.name or rank == 2)]
    if not named:
        raise TaskError(f"the module has no weight of rank {rank} for {main.name}")
    return named[-1] if main.name == "conv2d_pointwise" else named[0]
