"""Sequences of operators worked out without torch: shapes, inputs, parameters, and the text of their module.

A task is a sequence of operators: the first reads the input ``x``, every further one the result so far. The
operators stand in `kevin.tasks.operators`.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kevin.core.errors import TaskError
from kevin.core.types import DType, Frozen, OpCall, Task, TaskSpec, TensorSpec
from kevin.tasks.operators import OPERATORS, Constructor, Dim, Kind, Operator, Shape, Sizes, names_of
from kevin.tasks.operators.base import broadcast


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
    third: str | None = None
    attribute: str = ""
    """Name of its module or parameter in the reference, where it has one."""


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
            inputs=tuple(
                TensorSpec(name=n, shape=_ints(s), dtype=d, kind="scalar" if d == "float64" else "tensor")
                for n, s, d, _ in self.inputs
            ),
            parameters=tuple(
                TensorSpec(name=n, shape=_ints(s), dtype="float32")
                for n, s in (*(p for c in made for p in c.parameters), *(b for c in made for b in c.buffers))
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
    known = (*operator.attrs, *operator.optional)
    if unknown := sorted(set(attrs) - set(known)):
        raise TaskError(f"operator {name} has no attribute {', '.join(unknown)}; it has {sorted(known)}")
    return OpCall(name=name, attrs={**operator.attrs, **attrs})


def parse_sequence(text: str) -> list[OpCall]:
    """Operators written as ``conv2d kernel=5 padding=1 | relu | scale c=0.5``. Raises TaskError for an unknown one."""
    ops = []
    for part in text.split("|"):
        name, *pairs = part.split()
        try:
            given = dict(pair.split("=") for pair in pairs)
            values = {key: float(value) if set(value) & set(".e") else int(value) for key, value in given.items()}
        except ValueError:
            raise TaskError(
                f"{part.strip()!r}: write an operator as its name and attributes, e.g. scale c=2.0"
            ) from None
        ops.append(call(name, **values))
    return ops


def trace(ops: Sequence[OpCall], sizes: Sizes) -> Trace:
    """Work out a sequence from its sizes: ``out_*`` and ``cols`` are of results, all others, in order, make up ``x``.

    Raises TaskError for an empty sequence, a rank that an operator does not accept, or a result that is not there yet.
    """
    if not ops:
        raise TaskError("an operator sequence needs at least one operator")
    x: Shape = tuple(Dim(n, s) for n, s in sizes.items() if n != "cols" and not n.startswith("out_"))
    sample = OPERATORS[call(ops[0].name).name].first_sample
    walk = _Walk([x], [("x", x, "float32", sample.format(shape=names_of(x)))], {d.name: d.size for d in x})
    steps = tuple(walk.advance(call(op.name, **op.attrs), sequence(ops), sizes) for op in ops)
    out_dtype = OPERATORS[ops[-1].name].out_dtype
    return Trace(steps, tuple(walk.shapes), tuple(walk.inputs), tuple(walk.constructors), out_dtype)


@dataclass
class _Walk:
    """What the operators so far have brought."""

    shapes: list[Shape]
    inputs: list[tuple[str, Shape, DType, str]]
    known: dict[str, int]
    """Sizes of all named dimensions."""
    constructors: list[Constructor | None] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)

    def advance(self, op: OpCall, names: tuple[str, ...], sizes: Sizes) -> Step:
        operator, x = OPERATORS[op.name], self.shapes[-1]
        if len(x) not in operator.ranks:
            raise TaskError(f"{op.name} accepts tensors of rank {operator.ranks}, not {len(x)}, in {names}")
        if operator.kind == "residual":
            of = int(op.attrs["of"])
            if not 0 <= of < len(self.shapes):
                raise TaskError(f"{op.name} of result {of}: only {len(self.shapes)} are there before it, in {names}")
            out = broadcast(x, self.shapes[of])
        else:
            out = self._renamed(operator.result(x, op.attrs, sizes))
        second, third = self._inputs_of(operator, op, x, out)
        attribute, parameters = self._constructed(operator, op, x, out)
        self.shapes.append(out)
        return Step(
            op=op,
            kind=operator.kind,
            in_shape=_ints(x),
            out_shape=_ints(out),
            second=second,
            third=third,
            parameters=parameters,
            attribute=attribute,
        )

    def _renamed(self, out: Shape) -> Shape:
        """No name twice for different sizes."""
        dims = []
        for d in out:
            name, base = d.name, re.sub(r"_\d+$", "", d.name)
            for i in itertools.count(2):
                if (d.size == 1 and name == "1") or self.known.setdefault(name, d.size) == d.size:
                    break
                name = f"{base}_{i}"
            dims.append(Dim(name, d.size))
        return tuple(dims)

    def _inputs_of(self, operator: Operator, op: OpCall, x: Shape, out: Shape) -> tuple[str | None, str | None]:
        if operator.second is None:
            return None, None
        if op.attrs.get("again"):
            if len(self.inputs) < 2:
                raise TaskError(f"{op.name} reads the second input again, but there is none before it")
            return self.inputs[-1][0], None
        usual, shape = operator.second(x, out)
        last = x[-1].name if x else ""
        sample = operator.second_sample.format(shape=names_of(shape), last=last)
        taken = {name for name, *_ in self.inputs}
        others = (f"{usual}_{i}" for i in itertools.count(2))
        second = next(n for n in itertools.chain((usual, "z"), others) if n not in taken)
        self.inputs.append((second, shape, operator.second_dtype, sample))
        if operator.third:
            self.inputs.append((operator.third, shape, operator.second_dtype, sample))
        return second, operator.third

    def _constructed(self, operator: Operator, op: OpCall, x: Shape, out: Shape) -> tuple[str, tuple[str, ...]]:
        """The module's attribute, and the parameters' names in the spec."""
        if operator.constructor is None:
            self.constructors.append(None)
            return "", ()
        if op.attrs.get("again"):
            made = next((c for c in reversed(self.constructors) if c and c.is_parameter), None)
            self.constructors.append(None)
            if made is None:
                raise TaskError(f"{op.name} uses a parameter again, but there is none before it")
            return made.attribute, tuple(n for n, _ in made.parameters)
        made = operator.constructor(x, out, op.attrs)
        num = sum(re.sub(r"_\d+$", "", a) == made.attribute for a in self.attributes)
        if num:
            made = _called(made, f"{made.attribute}_{num + 1}")
        self.attributes.append(made.attribute)
        self.constructors.append(made)
        return made.attribute, tuple(n for n, _ in made.parameters)


def _called(made: Constructor, attribute: str) -> Constructor:
    """The same under another name."""

    def named(tensors: tuple[tuple[str, Shape], ...]) -> tuple[tuple[str, Shape], ...]:
        return tuple((attribute + n.removeprefix(made.attribute), s) for n, s in tensors)

    return made._replace(attribute=attribute, parameters=named(made.parameters), buffers=named(made.buffers))


def expression(step: Step, shape: Shape, x: str, residual: str | None = None) -> str:
    """A step as source text in PyTorch.

    Args:
        shape: what it reads, with names.
        x: how the result so far is called.
        residual: how the earlier result is called that it reads.
    """
    operator = OPERATORS[step.op.name]
    text = operator.write(shape, step.op.attrs) if operator.write else operator.expression
    fields = {**step.op.attrs, "x": x, "second": step.second, "third": step.third, "residual": residual}
    return text.format(**fields, name=step.attribute or step.op.name)


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


# --- text -------------------------------------------------------------------------------------------------------


def _forward(traced: Trace) -> list[str]:
    """One line a step; a result that a later step reads is kept under a name of its own."""
    wanted = sorted({int(s.op.attrs["of"]) for s in traced.steps if s.kind == "residual" and s.op.attrs["of"]})
    kept = {of: "residual" if i == 1 else f"residual_{i}" for i, of in enumerate(wanted, 1)}
    lines = []
    x = "x"
    for i, step in enumerate(traced.steps):
        residual = kept.get(int(step.op.attrs["of"]), "x") if step.kind == "residual" else None
        lines.append(f"        out = {expression(step, traced.shapes[i], x, residual)}")
        x = "out"
        if i + 1 in kept:
            lines.append(f"        {kept[i + 1]} = out")
    return lines


def _constants(traced: Trace, sizes: Sizes, text: str) -> list[str]:
    """The given sizes, then derived ones that the text uses."""
    named = (d for shape in traced.shapes for d in shape if not d.name.isdigit())
    derived = {d.name: d.size for d in named if d.name not in sizes}
    return [
        *(f"{name} = {size}" for name, size in sizes.items()),
        *(f"{name} = {size}" for name, size in derived.items() if name in text),
    ]


def render_module(ops: Sequence[OpCall], sizes: Sizes) -> str:
    """Source of a module in KernelBench's format. Raises TaskError as `trace` does."""
    traced = trace(ops, sizes)
    constructors = [c for c in traced.constructors if c]
    init_args = list(dict.fromkeys(name for c in constructors for name in c.sizes))
    body = []
    if constructors:
        body += [f"    def __init__({', '.join(['self', *init_args])}):", "        super().__init__()"]
        body += [f"        self.{c.attribute} = {c.text}" for c in constructors]
        body.append("")
    body += [
        f"    def forward({', '.join(['self', *(name for name, *_ in traced.inputs)])}):",
        *_forward(traced),
        "        return out",
    ]
    inputs = [
        "def get_inputs():",
        *(f"    {name} = {sample}" for name, _, _, sample in traced.inputs),
        f"    return [{', '.join(name for name, *_ in traced.inputs)}]",
        "",
        "def get_init_inputs():",
        f"    return [{', '.join(init_args)}]",
    ]
    imports = ["import torch", "import torch.nn as nn"]
    if any("F." in line for line in body):
        imports.append("import torch.nn.functional as F")
    constants = _constants(traced, sizes, "\n".join(body + inputs))
    lines = [*imports, "", *constants, "", "class Model(nn.Module):", *body, "", *inputs]
    return "\n".join(lines) + "\n"


def own_task(task_id: str, ops: Sequence[OpCall], sizes: Sizes, flaws: tuple[str, ...] = ()) -> Task:
    """These operators as one of our own tasks, with its spec. Raises TaskError as `trace` does."""
    return Task(
        id=task_id,
        level=1 if len(ops) == 1 else 2,
        name="_".join(sequence(ops)),
        source=render_module(ops, sizes),
        ops=tuple(ops),
        origin="catalog" if len(ops) == 1 else "composed",
        flaws=flaws,
        spec=trace(ops, sizes).spec,
    )


def trace_task(task: Task) -> Trace:
    """`trace` of an own task, from its operators and the sizes in its source. Raises TaskError for others."""
    return trace(task.ops, sizes_of(task.source))
