"""The ``forward`` of a restyled module: one spelling an operator, and how the lines hang together."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import NamedTuple

from kevin.tasks import prose
from kevin.tasks.definitions import Init, number
from kevin.tasks.naming import Names
from kevin.tasks.ops import Step, Trace
from kevin.tasks.spellings import Spelling, spellings

_MAX_LINE = 100
_PREFERRED = {
    "own": ("own",),
    "functional": ("functional", "own"),
    "module": ("module", "own"),
    "sequential": ("module", "own"),
    "method": ("method", "own"),
}
_MODULE_CALL = "self.{name}({x})"
_FIELD = re.compile(r"\{(\w+)\}")
_HELPERS = {
    "rms_norm": ("rms", "scale", "denom"),
    "l2_norm": ("norm", "length", "l2"),
    "softmax": ("e", "exps", "shifted"),
    "mse_loss": ("diff", "err", "delta"),
    "silu": ("gate", "sig"),
}
_OUTS = ("out", "y", "h", "result", "output", "z")


class _Call(NamedTuple):
    """One expression of ``forward`` with everything filled in but ``{x}``."""

    first_step: int
    last_step: int
    expression: str
    helper: tuple[str, str] | None = None
    """A variable and its expression."""


def write_forward(traced: Trace, names: Names, init: Init) -> list[str]:
    """The lines of ``forward``, without indentation; what they need is added to ``init``."""
    chosen = [_chosen(step, names) for step in traced.steps]
    attributes = [_define(traced, i, s, names, init) for i, s in enumerate(chosen)]
    calls = [_call(traced, i, s, attributes[i], names, init) for i, s in enumerate(chosen)]
    if names.style.calls == "sequential":
        are_modules = [s.expression == _MODULE_CALL for s in chosen]
        calls = _contained(calls, are_modules, attributes, names, init)
    writer = _Lines(names, traced)
    for call in calls:
        writer.add(call)
    return writer.finished()


def _chosen(step: Step, names: Names) -> Spelling:
    """A spelling that the style likes; the inventory's where it likes none."""
    ways = spellings(step.op.name, len(step.in_shape))
    if names.style.calls == "mixed":
        return names.rng.choice(ways)
    for kind in _PREFERRED[names.style.calls]:
        if fitting := [w for w in ways if w.kind == kind]:
            return names.rng.choice(fitting)
    return ways[0]


def _define(traced: Trace, at: int, spelling: Spelling, names: Names, init: Init) -> str | None:
    """Add what the spelling needs in ``__init__``; the attribute's name."""
    constructor, step = traced.constructors[at], traced.steps[at]
    if spelling.module:
        values = {key: number(value) for key, value in _attrs(step, names).items()}
        channels = traced.shapes[at][1].name if len(traced.shapes[at]) > 1 else ""
        name = names.attribute(step.op.name)
        init.add(name, spelling.module.format(**values, channels=channels), None)
        return name
    if constructor:
        name = names.attribute(constructor.attribute)
        init.add(name, constructor.text, constructor)
        return name
    return None


def _attrs(step: Step, names: Names) -> dict[str, int | float]:
    """The operator's attributes; a dimension may be counted from the other end."""
    attrs = dict(step.op.attrs)
    if "dim" in attrs and attrs["dim"] < 0 and names.rng.random() < 0.6:
        attrs["dim"] += len(step.in_shape)
    return attrs


def _call(traced: Trace, at: int, spelling: Spelling, attribute: str | None, names: Names, init: Init) -> _Call:
    step, constructor = traced.steps[at], traced.constructors[at]
    wanted = set(_FIELD.findall(spelling.expression + (spelling.first or "")))
    attrs = _attrs(step, names)
    fields = {a: init.constant(step.op.name, a, v) for a, v in attrs.items() if a in wanted}
    fields |= {"x": "{x}", "second": names.inputs.get(step.second or "", ""), "name": attribute or step.op.name}
    if "h" in wanted:
        fields["h"] = names.free(names.rng.choice(_HELPERS.get(step.op.name, ("t", "tmp", "u"))))

    def filled(text: str) -> str:
        text = text.format(**fields).replace("+ -", "- ")
        return text if not constructor else re.sub(rf"self\.{constructor.attribute}\b", f"self.{attribute}", text)

    helper = (fields["h"], filled(spelling.first)) if spelling.first else None
    return _Call(at, at, filled(spelling.expression), helper)


def _contained(
    calls: list[_Call], are_modules: list[bool], attributes: list[str | None], names: Names, init: Init
) -> list[_Call]:
    """The longest run of modules that follow each other as one nn.Sequential."""
    runs: list[list[int]] = [[]]
    for i, is_module in enumerate(are_modules):
        if is_module:
            runs[-1].append(i)
        else:
            runs.append([])
    longest = max(runs, key=len)
    if len(longest) < 2:
        return calls
    name = names.free_attribute(names.rng.choice(("net", "layers", "block", "seq")))
    init.contain(name, [attributes[i] or "" for i in longest])
    first, last = longest[0], longest[-1]
    return [*calls[:first], _Call(first, last, f"self.{name}({{x}})"), *calls[last + 1 :]]


@lru_cache(maxsize=4096)
def _is_atom(template: str) -> bool:
    """Whether what the template gives can be called, indexed or multiplied without parentheses."""
    node = ast.parse(template.format(x="x"), mode="eval").body
    return isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript)


def _put(template: str, x: str, is_atom: bool) -> str:
    """``x`` in the template's place, in parentheses where it needs them."""
    if is_atom:
        return template.replace("{x}", x)
    alone = re.sub(r"(?<=[(])\{x\}(?=[,)])", lambda _: x, template)
    return alone.replace("{x}", f"({x})")


class _Lines:
    """The lines so far, and the expression that is not assigned yet."""

    def __init__(self, names: Names, traced: Trace) -> None:
        self._names, self._traced = names, traced
        self._lines: list[str] = []
        self._now, self._is_atom, self._is_name = names.inputs["x"], True, True
        self._waiting: list[int] = []
        self._num = 0
        free = [n for n in _OUTS if n not in names.inputs.values()]
        self._out = names.rng.choice(free)
        self._numbered = names.rng.choice(("{n}{i}", "{op}_out", "h{i}", "y{i}"))

    def add(self, call: _Call) -> None:
        if not self._is_name and (call.expression.count("{x}") != 1 or call.helper or not self._nests(call)):
            self._assign()
        if call.helper:
            self._lines.append(f"{call.helper[0]} = {_put(call.helper[1], self._now, True)}")
        self._now = _put(call.expression, self._now, self._is_atom)
        self._is_atom, self._is_name = _is_atom(call.expression), False
        self._waiting += range(call.first_step, call.last_step + 1)

    def _nests(self, call: _Call) -> bool:
        family = self._names.style.variables
        if len(self._now) + len(call.expression) > _MAX_LINE:
            return False
        return family == "one_line" or (family == "nested" and self._names.rng.random() < 0.6)

    def _variable(self) -> str:
        match self._names.style.variables:
            case "out":
                return self._out
            case "fresh":
                op = self._traced.steps[self._waiting[-1]].op.name
                self._num += 1
                name = self._numbered.format(n=self._names.inputs["x"], i=self._num, op=op)
                return self._names.free(name)
            case "states":
                self._num += 1
                return self._names.free("state" if self._num == 1 else f"state_{self._num}")
        return self._names.inputs["x"]

    def _assign(self) -> None:
        name = self._variable()
        self._add_line(f"{name} = {self._now}")
        self._now, self._is_atom, self._is_name = name, True, True

    def _add_line(self, text: str) -> None:
        family, rng = self._names.style.comments, self._names.rng
        last = self._traced.steps[self._waiting[-1]].op.name
        match family:
            case "after":
                text += f"{rng.choice(('  ', ' '))}# {prose.remark(rng, last)}" if rng.random() < 0.8 else ""
            case "above" if rng.random() < 0.8:
                self._lines.append(f"# {prose.remark(rng, last)}")
            case "shapes":
                text += f"  # {self._names.shape(self._traced.shapes[self._waiting[-1] + 1])}"
            case "banner":
                self._lines.append(f"# ===== {self._waiting[-1] + 1}: {last.replace('_', ' ')} =====")
        self._lines.append(text)
        self._waiting = []

    def finished(self) -> list[str]:
        """All lines with the return."""
        if self._names.style.returns_expression or self._names.style.variables == "one_line":
            self._add_line(f"return {self._now}")
            return self._lines
        self._assign()
        return [*self._lines, f"return {self._now}"]
