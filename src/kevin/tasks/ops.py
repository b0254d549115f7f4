"""Sequences of operators worked out without torch: shapes, inputs, parameters.

A task is a sequence of operators: the first reads the input ``x``, every further one the result so far. The
operators stand in `kevin.tasks.operators`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from kevin.core.errors import TaskError
from kevin.core.types import DType, Frozen, OpCall, TaskSpec, TensorSpec
from kevin.tasks.operators import OPERATORS, Constructor, Dim, Kind, Shape, Sizes, names_of


def _of_x(size: str) -> bool:
    """Sizes named ``out_*`` and ``cols`` belong to a result; all others, in order, make up ``x``."""
    return size != "cols" and not size.startswith("out_")


class Step(Frozen):
    """One operator of a task with its shapes; for those who write kernels."""

    op: OpCall
    """With every attribute filled in."""
    kind: Kind
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    second: str | None = None
    """Name of the second input that it reads."""
    parameters: tuple[str, ...] = ()
    """Names in the task's spec of the parameters that it reads, in the order weight, bias."""


@dataclass(frozen=True)
class Trace:
    """A sequence worked out: shapes with names, inputs, constructors."""

    steps: tuple[Step, ...]
    shapes: tuple[Shape, ...]
    """Shape before the first operator, then after each."""
    inputs: tuple[tuple[str, Shape, DType, str], ...]
    """Name, shape, dtype and the expression that draws it."""
    constructors: tuple[Constructor | None, ...]
    out_dtype: DType

    @property
    def spec(self) -> TaskSpec:
        """The same that `kevin.tasks.format.inspect_task` reads off the module by running it."""
        made = [c for c in self.constructors if c]
        made.sort(key=lambda c: not c.is_parameter)
        return TaskSpec(
            inputs=tuple(TensorSpec(name=n, shape=_ints(s), dtype=d) for n, s, d, _ in self.inputs),
            parameters=tuple(
                TensorSpec(name=n, shape=_ints(s), dtype="float32") for c in made for n, s in c.parameters
            ),
            outputs=(TensorSpec(name="out", shape=_ints(self.shapes[-1]), dtype=self.out_dtype),),
        )


def _ints(shape: Shape) -> tuple[int, ...]:
    return tuple(d.size for d in shape)


def call(name: str, **attrs: int | float) -> OpCall:
    """An operator with its attributes, defaults filled in. Raises TaskError for an unknown one."""
    operator = OPERATORS.get(name)
    if operator is None:
        raise TaskError(f"no operator {name!r}; there are {', '.join(OPERATORS)}")
    if unknown := sorted(set(attrs) - set(operator.attrs)):
        raise TaskError(f"operator {name} has no attribute {', '.join(unknown)}; it has {sorted(operator.attrs)}")
    return OpCall(name=name, attrs={**operator.attrs, **attrs})


def trace(ops: Sequence[OpCall], sizes: Sizes) -> Trace:
    """Work out a sequence from its sizes: the dimensions of ``x`` in order, then those of the first result.

    Raises TaskError for an empty sequence, a repeated operator, or a rank that an operator does not accept.
    """
    if not ops:
        raise TaskError("an operator sequence needs at least one operator")
    if len({op.name for op in ops}) < len(ops):
        raise TaskError(f"an operator stands twice in {sequence(ops)}")
    x: Shape = tuple(Dim(n, s) for n, s in sizes.items() if _of_x(n))
    shapes = [x]
    sample = OPERATORS[call(ops[0].name).name].first_sample
    inputs: list[tuple[str, Shape, DType, str]] = [("x", x, "float32", sample.format(shape=names_of(x)))]
    steps: list[Step] = []
    constructors: list[Constructor | None] = []
    for op in ops:
        op = call(op.name, **op.attrs)  # noqa: PLW2901
        operator = OPERATORS[op.name]
        if len(x) not in operator.ranks:
            raise TaskError(f"{op.name} accepts tensors of rank {operator.ranks}, not {len(x)}, in {sequence(ops)}")
        out = operator.result(x, op.attrs, sizes)
        second = None
        if operator.second:
            usual, shape = operator.second(x, out)
            second = next(n for n in (usual, "z") if n not in {name for name, *_ in inputs})
            sample = operator.second_sample.format(shape=names_of(shape), last=x[-1].name)
            inputs.append((second, shape, operator.second_dtype, sample))
        constructor = operator.constructor(x, out, op.attrs) if operator.constructor else None
        constructors.append(constructor)
        steps.append(
            Step(
                op=op,
                kind=operator.kind,
                in_shape=_ints(x),
                out_shape=_ints(out),
                second=second,
                parameters=tuple(n for n, _ in constructor.parameters) if constructor else (),
            )
        )
        shapes.append(out)
        x = out
    return Trace(tuple(steps), tuple(shapes), tuple(inputs), tuple(constructors), OPERATORS[ops[-1].name].out_dtype)


def sequence(ops: Sequence[OpCall]) -> tuple[str, ...]:
    """The names of a sequence: what two tasks must not share."""
    return tuple(op.name for op in ops)


def sizes_of(source: str) -> dict[str, int]:
    """The module-level integer constants of a rendered module, in order."""
    return {
        node.targets[0].id: node.value.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
    }
