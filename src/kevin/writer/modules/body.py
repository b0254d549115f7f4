"""The ``forward`` of a restyled module: one spelling an operator, and how the lines hang together."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import NamedTuple

from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import Step, Trace
from kevin.writer.modules import prose
from kevin.writer.modules.definitions import Init, number
from kevin.writer.modules.spellings import Spelling, spellings
from kevin.writer.modules.styles import Names

_MAX_LINE = 100
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
    residual: int | None = None
    """The earlier result that it reads; 0 is the input."""


def write_forward(traced: Trace, names: Names, init: Init) -> list[str]:
    """The lines of ``forward``, without indentation; what they need is added to ``init``."""
    chosen = [_chosen(traced, i, names) for i in range(len(traced.steps))]
    attributes = _defined(traced, chosen, names, init)
    calls = [_call(traced, i, s, attributes[i], names, init) for i, s in enumerate(chosen)]
    if names.style.calls == "sequential":
        are_modules = [s.expression == _MODULE_CALL for s in chosen]
        calls = _contained(calls, are_modules, _wanted(traced), attributes, names, init)
    writer = _Lines(names, traced)
    for call in calls:
        writer.add(call)
    return writer.finished()


def _wanted(traced: Trace) -> set[int]:
    """Results that a later step reads; 0 is the input."""
    return {int(s.op.attrs["of"]) for s in traced.steps if s.kind == "residual"}


def _chosen(traced: Trace, at: int, names: Names) -> Spelling:
    """A spelling that the style likes; the inventory's where it likes none."""
    step = traced.steps[at]
    operator = OPERATORS[step.op.name]
    own = operator.write(traced.shapes[at], step.op.attrs) if operator.write else operator.expression
    ways = spellings(step.op.name, own.replace("F.{name}(", f"F.{step.op.name}("), len(step.in_shape))
    if names.style.calls == "mixed":
        return names.rng.choice(ways)
    kind = "module" if names.style.calls == "sequential" else names.style.calls
    liked = [way for way in ways if way.kind == kind]
    return names.rng.choice(liked or [way for way in ways if way.kind == "own"])


def _defined(traced: Trace, chosen: list[Spelling], names: Names, init: Init) -> list[str]:
    """Add what the spellings need in ``__init__``; the attribute of each step that has one."""
    by_plain: dict[str, str] = {}
    attributes = []
    for at, (step, spelling, constructor) in enumerate(zip(traced.steps, chosen, traced.constructors, strict=True)):
        if spelling.module:
            values = {key: number(value) for key, value in _attrs(step, names).items()}
            channels = traced.shapes[at][1].name if len(traced.shapes[at]) > 1 else ""
            name = names.attribute(step.op.name)
            init.add(name, spelling.module.format(**values, channels=channels), None)
        elif constructor:
            name = by_plain[constructor.attribute] = names.attribute(constructor.attribute)
            init.add(name, constructor.text, constructor)
        else:  # an attribute may be used a second time
            name = by_plain.get(step.attribute, "")
        attributes.append(name)
    return attributes


def _attrs(step: Step, names: Names) -> dict[str, int | float]:
    """The operator's attributes; a dimension may be counted from the other end."""
    attrs = dict(step.op.attrs)
    if "dim" in attrs and attrs["dim"] < 0 and names.rng.random() < 0.6:
        attrs["dim"] += len(step.in_shape)
    return attrs


def _call(traced: Trace, at: int, spelling: Spelling, attribute: str, names: Names, init: Init) -> _Call:
    step = traced.steps[at]
    wanted = set(_FIELD.findall(spelling.expression + (spelling.first or "")))
    attrs = _attrs(step, names)
    fields = {a: init.constant(step.op.name, a, v) for a, v in attrs.items() if a in wanted}
    fields |= {"x": "{x}", "residual": "{residual}", "name": attribute or step.op.name}
    fields |= {"second": names.inputs.get(step.second or "", ""), "third": names.inputs.get(step.third or "", "")}
    if "h" in wanted:
        fields["h"] = names.free(names.rng.choice(_HELPERS.get(step.op.name, ("t", "tmp", "u"))))

    def filled(text: str) -> str:
        text = text.format(**fields).replace("+ -", "- ").replace("- -", "+ ")
        return re.sub(rf"self\.{step.attribute}\b", f"self.{attribute}", text) if step.attribute else text

    helper = (fields["h"], filled(spelling.first)) if spelling.first else None
    kept = int(step.op.attrs["of"]) if step.kind == "residual" else None
    return _Call(at, at, filled(spelling.expression), helper, kept)


def _contained(
    calls: list[_Call],
    are_modules: list[bool],
    wanted: set[int],
    attributes: list[str],
    names: Names,
    init: Init,
) -> list[_Call]:
    """The longest run of modules that follow each other as one nn.Sequential."""
    runs: list[list[int]] = [[]]
    for i, is_module in enumerate(are_modules):
        if is_module:
            runs[-1].append(i)
        if not is_module or i + 1 in wanted:
            runs.append([])
    longest = max(runs, key=len)
    if len(longest) < 2:
        return calls
    name = names.free_attribute(names.rng.choice(("net", "layers", "block", "seq")))
    init.contain(name, [attributes[i] for i in longest])
    first, last = longest[0], longest[-1]
    return [*calls[:first], _Call(first, last, f"self.{name}({{x}})"), *calls[last + 1 :]]


@lru_cache(maxsize=4096)
def _is_atom(template: str) -> bool:
    """Whether what the template gives can be called, indexed or multiplied without parentheses."""
    node = ast.parse(template.replace("{x}", "x").replace("{residual}", "r"), mode="eval").body
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
        self._wanted = _wanted(traced)
        self._results: dict[int, str] = {}
        self._numbered = names.rng.choice(("{n}{i}", "{op}_out", "h{i}", "y{i}"))

    def add(self, call: _Call) -> None:
        if not self._is_name and (call.expression.count("{x}") != 1 or call.helper or not self._nests(call)):
            self._assign()
        if call.helper:
            self._lines.append(f"{call.helper[0]} = {_put(call.helper[1], self._now, True)}")
        if call.first_step == 0:
            self._keep(0)
        expression = call.expression
        if call.residual is not None:
            expression = expression.replace("{residual}", self._results[call.residual])
        self._now = _put(expression, self._now, self._is_atom)
        self._is_atom, self._is_name = _is_atom(expression), False
        self._waiting += range(call.first_step, call.last_step + 1)
        self._keep(call.last_step + 1)

    def _keep(self, result: int) -> None:
        """Store a result that a later step reads, where its variable does not stay as it is."""
        if result not in self._wanted:
            return
        if not self._is_name:
            self._assign()
        if self._stays(self._now):
            self._results[result] = self._now
            return
        name = self._names.free(self._names.rng.choice(("identity", "residual", "original", "saved", "original_x")))
        copied = self._names.rng.choice(("", "", "", ".clone()", ".clone().detach()"))
        self._lines.append(f"{name} = {self._now}{copied}")
        self._results[result] = name

    def _stays(self, variable: str) -> bool:
        family = self._names.style.variables
        if family in ("fresh", "states"):
            return True
        return family == "out" and variable != self._out

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
