"""One module in many ways: the same computation with another source text, written the way other people write it.

The styles stand in `kevin.writer.modules.styles`; whole families of them are never trained on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from kevin.core.types import Task, TaskSpec, TensorSpec
from kevin.tasks.operators import names_of
from kevin.tasks.ops import Trace, sizes_of, trace
from kevin.writer.modules import prose
from kevin.writer.modules.body import write_forward
from kevin.writer.modules.definitions import Definition, Init
from kevin.writer.modules.styles import WORD, Names, Style, draw

_FACTOR = "(torch.rand(1) + 1.0)"
_TRIANGULAR = re.compile(r"(torch\.tri[ul])\((.*)\)")
_SYMMETRIC = re.compile(r"\(lambda a: \(a \+ a\.T\) / 2\)\((.*)\)")


class Styled(NamedTuple):
    """A task as somebody else would write it."""

    shown: Task
    """The same computation with another source text and the spec that belongs to it; of the user's origin, because
    sizes cannot be read off its text."""
    names: dict[str, str]
    """By the name in the plain task's spec the one in ``shown``'s, in the order of ``shown``'s."""


def as_it_is(task: Task) -> Styled:
    """One of our own tasks, which has a spec, under its own names."""
    assert task.spec is not None
    return Styled(task, {s.name: s.name for s in (*task.spec.inputs, *task.spec.parameters, *task.spec.outputs)})


def restyle(task: Task, rng: random.Random, *, held_out: bool = False) -> Styled:
    """``task`` in a style drawn anew; with ``held_out`` in one that is never trained on.

    Raises TaskError for a task that is not one of our own.
    """
    sizes = sizes_of(task.source)
    traced = trace(task.ops, sizes)
    style = draw(rng, held_out=held_out)
    names = Names(rng, style, traced, sizes)
    init = Init(names)
    forward = write_forward(traced, names, init)
    init.add_unused()
    source = _source(traced, names, init, forward)
    renamed = _renamed(init.definitions)
    spec = _spec(traced, {**names.inputs, **renamed})
    shown = task.model_copy(update={"source": source, "spec": spec, "origin": "user"})
    return Styled(shown, {**names.inputs, **renamed, "out": "out"})


def _renamed(definitions: Sequence[Definition]) -> dict[str, str]:
    """Parameters by their plain names, in PyTorch's order: the module's own first, then those of its submodules."""
    held = [pair for d in definitions for pair in d.holds]
    held.sort(key=lambda pair: not pair[1].is_parameter)
    tensors = [(start, made, plain) for start, made in held for plain, _ in made.parameters]
    tensors += [(start, made, plain) for start, made in held for plain, _ in made.buffers]
    return {plain: start + plain.removeprefix(made.attribute) for start, made, plain in tensors}


def _spec(traced: Trace, names: dict[str, str]) -> TaskSpec:
    plain = traced.spec
    known = {s.name: s for s in (*plain.inputs, *plain.parameters)}
    num_inputs = len(plain.inputs)

    def named(old: str) -> TensorSpec:
        return known[old].model_copy(update={"name": names[old]})

    order = list(names)
    return TaskSpec(
        inputs=tuple(named(n) for n in order[:num_inputs]),
        parameters=tuple(named(n) for n in order[num_inputs:]),
        outputs=plain.outputs,
    )


# --- text ---------------------------------------------------------------------------------------------------


def _source(traced: Trace, names: Names, init: Init, forward: list[str]) -> str:
    style, rng = names.style, names.rng
    words = prose.Words(names, traced, init)
    inputs = _get_inputs(traced, names, init, words)
    gives = f"    return [{', '.join(init.passed)}]"
    given = ["def get_init_inputs():", gives + words.after_init_inputs(bool(init.passed))]
    body = [*_class(names, init, forward, words)]
    constants = _constants(names, init, "\n".join([*inputs, *given]), words)
    blocks = [constants, body] if style.placed == "before" else [body, constants]
    gap = ["", ""] if rng.random() < 0.3 else [""]
    lines = _imports(style, rng, "\n".join(body))
    for block in (*blocks, inputs, given):
        if block:
            lines += [*gap, *block]
    return "\n".join(line.rstrip() if not line.strip() and not style.tabs else line for line in lines) + "\n"


def _imports(style: Style, rng: random.Random, body: str) -> list[str]:
    lines = ["import torch", rng.choice(("import torch.nn as nn", "import torch.nn as nn", "from torch import nn"))]
    if re.search(r"\bF\.", body) or rng.random() < 0.1:
        lines.append("import torch.nn.functional as F")
    if "math." in body:
        lines.insert(0 if rng.random() < 0.5 else len(lines), "import math")
    if style.hints == "tensor":
        lines.append("from torch import Tensor")
    return lines


def _class(names: Names, init: Init, forward: list[str], words: prose.Words) -> list[str]:
    style = names.style
    lines = ["class Model(nn.Module):", *_docstring(words.of_class(), "    ")]
    if init.definitions or init.arguments or init.kept or init.fixed or style.empty_init:
        parent = "super().__init__()" if style.short_super else "super(Model, self).__init__()"
        typed = style.hints in ("typed", "tensor")
        lines.append(f"    def __init__({init.signature(typed)}):")
        lines += _docstring(words.of_init(), "        ")
        lines += [f"        {line}" for line in (parent, *init.body())]
        lines.append(style.tabs)
    tensor = {"none": "", "typed": "torch.Tensor", "forward": "torch.Tensor", "tensor": "Tensor"}[style.hints]
    hinted = [f"{n}: {'float' if n in names.numbers else tensor}" if tensor else n for n in names.inputs.values()]
    result = f" -> {tensor}" if tensor else ""
    lines.append(f"    def forward({', '.join(['self', *hinted])}){result}:")
    lines += _docstring(words.of_forward(), "        ")
    return [*lines, *(f"        {line}" for line in forward)]


def _docstring(lines: list[str], indent: str) -> list[str]:
    """Quotes around the text; a single line may stand between them."""
    if not lines:
        return []
    if len(lines) == 1 and lines[0].startswith('"""'):
        return [indent + lines[0]]
    return [f'{indent}"""', *(indent + line if line else "" for line in lines), f'{indent}"""']


def _get_inputs(traced: Trace, names: Names, init: Init, words: prose.Words) -> list[str]:
    style, rng = names.style, names.rng
    drawn = []
    for plain, shape, _, sample in traced.inputs:
        text = sample.replace("torch.randn(", "torch.rand(") if style.rand else sample
        if len(shape) > 1:
            text = _shaped(text, names_of(shape), names, init)
        drawn.append((names.inputs[plain], names.text(text)))
    lines = ["def get_inputs():", *_docstring(words.of_get_inputs(), "    ")]
    if any(_FACTOR in text for _, text in drawn) and rng.random() < 0.5:
        factor = names.free("scale")
        lines.append(f"    {factor} = torch.rand(()) + 1.0")
        drawn = [(name, text.replace(_FACTOR, factor)) for name, text in drawn]
    if style.samples == "list":
        lines.append("    inputs = []")
        lines += [f"    inputs.append({text})" for _, text in drawn]
        return [*lines, "    return inputs"]
    if style.samples == "direct" or (style.samples == "input_shape" and rng.random() < 0.5):
        return [*lines, f"    return [{', '.join(text for _, text in drawn)}]"]
    for name, text in drawn:
        lines += [f"    {line}" for line in _sampled(name, text, apart=rng.random() < 0.5)]
    return [*lines, f"    return [{', '.join(name for name, _ in drawn)}]"]


def _sampled(name: str, text: str, *, apart: bool) -> list[str]:
    """An input, drawn and made triangular or symmetric in one line or in two."""
    if apart and (match := _TRIANGULAR.fullmatch(text)):
        return [f"{name} = {match[2]}", f"{name} = {match[1]}({name})"]
    if apart and (match := _SYMMETRIC.fullmatch(text)):
        return [f"{name} = {match[1]}", f"{name} = ({name} + {name}.T) / 2"]
    return [f"{name} = {text}"]


def _shaped(text: str, shape: str, names: Names, init: Init) -> str:
    """The sample with its shape as a tuple, or with all but the first size in a constant of their own."""
    if names.style.samples == "tuple":
        return re.sub(rf"(torch\.randn?)\({re.escape(shape)}\)", rf"\1(({shape}))", text)
    if names.style.samples == "input_shape" and names.style.sizes != "literals":
        first, _, rest = shape.partition(", ")
        value = names.text(f"({rest},)" if "," not in rest else f"({rest})")
        constant = next((n for n, v in init.constants.items() if v == value and "input" in n.lower()), None)
        if constant is None:
            constant = names.free("INPUT_SHAPE" if names.style.sizes == "capitals" else "input_shape")
            init.constants[constant] = value
        return text.replace(shape, f"{first}, *{constant}")
    return text


def _constants(names: Names, init: Init, used_in: str, words: prose.Words) -> list[str]:
    """The module-level constants that are used, sizes first."""
    style, rng = names.style, names.rng
    used = set(WORD.findall(used_in))
    shown = {n: v for n, v in init.constants.items() if n in used}
    used |= {word for value in shown.values() for word in WORD.findall(value)}
    sizes = {text: names.values[plain] for plain, text in names.sizes.items() if text in used}
    texts = {name: _size(value, style, rng) for name, value in sizes.items()}
    lines, waiting = [], list(texts)
    while waiting:
        together = rng.choice((2, 2, 3)) if style.pairs and rng.random() < 0.6 else 1
        some, waiting = waiting[:together], waiting[together:]
        values = [texts[name] for name in some]
        if len(set(values)) == 1 and len(some) > 1 and rng.random() < 0.5:
            lines.append(f"{' = '.join(some)} = {values[0]}")
        else:
            note = words.after_size(sizes[some[0]], values[0]) if len(some) == 1 else ""
            lines.append(f"{', '.join(some)} = {', '.join(values)}{note}")
    lines += [f"{name} = {value}" for name, value in shown.items()]
    return [*words.above_constants(), *lines] if lines else []


def _size(value: int, style: Style, rng: random.Random) -> str:
    if style.products and value >= 64 and value % 4 == 0 and rng.random() < 0.6:
        factor = rng.choice([f for f in (2, 4, 8, 16) if value % f == 0])
        return f"{value // factor} * {factor}"
    return str(value)
