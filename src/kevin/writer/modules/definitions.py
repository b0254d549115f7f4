"""What stands in ``__init__`` of a restyled module: its arguments, attributes, and the parameters that they hold."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from kevin.tasks.operators import Constructor
from kevin.writer.modules.spellings import ARGUMENTS, DEFAULTS, LEFT_OUT
from kevin.writer.modules.styles import WORD, Names

_PARAMETER = re.compile(r"nn\.Parameter\((torch\.\w+)\((.+)\)\)")
_OTHER_DEFAULTS = {
    **dict.fromkeys(("stride", "dilation", "groups", "dim"), "1"),
    **dict.fromkeys(("padding", "output_padding"), "0"),
    "kernel_size": "3",
    "bias": "False",
    "eps": "1e-5",
    "negative_slope": "0.01",
    "alpha": "1.0",
}
"""Defaults of arguments that are given another value all the same."""
_WITH_CONSTANTS = ("arguments", "defaults", "stored")
_UNUSED_OF_WINDOWS = ("groups", "groups", "dilation", "stride", "padding", "output_padding")


class Argument(NamedTuple):
    """One argument of ``__init__``."""

    name: str
    hint: str
    value: str | None
    """What get_init_inputs gives for it, in the module's own names; None: it is left at its default."""
    default: str | None = None
    """It need not be the value."""


class Definition(NamedTuple):
    """``self.<name> = <text>``."""

    name: str
    text: str
    holds: tuple[tuple[str, Constructor], ...] = ()
    """The inventory's constructors whose parameters it holds, each with what its parameters' names begin with."""


class _Call(NamedTuple):
    function: str
    arguments: tuple[tuple[str | None, str], ...]
    """Keyword and text of each."""


@lru_cache(maxsize=4096)
def _parsed(text: str) -> _Call:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call), text

    def source(n: ast.expr) -> str:
        return text[n.col_offset : n.end_col_offset]

    keywords = [(k.arg, source(k.value)) for k in node.keywords]
    return _Call(source(node.func), (*((None, source(a)) for a in node.args), *keywords))


def number(value: float) -> str:
    """A constant as people write it."""
    return re.sub(r"e-0?", "e-", repr(value))


def _hint(text: str) -> str:
    if text in ("True", "False"):
        return "bool"
    return "tuple" if text.startswith("(") else "int" if re.fullmatch(r"-?\d+|None", text) else "float"


def _repeated(text: str, axes: int) -> str:
    """One size of a window said for each axis."""
    return f"({', '.join([text] * axes)}{',' if axes == 1 else ''})"


@dataclass
class Init:
    """The constructor of one module under construction."""

    names: Names
    arguments: list[Argument] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    """Attributes in which arguments are kept, by argument."""
    fixed: dict[str, str] = field(default_factory=dict)
    """Attributes that are numbers, written in ``__init__``."""
    constants: dict[str, str] = field(default_factory=dict)
    """Module-level constants beside the sizes: values by name."""
    _by_key: dict[str, str] = field(default_factory=dict)

    def add(self, attribute: str, text: str, constructor: Constructor | None) -> None:
        """``self.<attribute>``, from text in the inventory's names."""
        holds = ((attribute, constructor),) if constructor else ()
        self.definitions.append(Definition(attribute, self._written(attribute, text), holds))

    def contain(self, name: str, attributes: list[str]) -> None:
        """Put the modules of these attributes, in order, into one nn.Sequential."""
        inside = [d for d in self.definitions if d.name in attributes]
        holds = tuple((f"{name}_{i}", made) for i, d in enumerate(inside) for _, made in d.holds)
        at = self.definitions.index(inside[0])
        parts = "".join(f"\n            {d.text}," for d in inside)
        self.definitions = [d for d in self.definitions if d not in inside]
        self.definitions.insert(at, Definition(name, f"nn.Sequential({parts}\n        )", holds))

    def constant(self, operator: str, attribute: str, value: float) -> str:
        """The text of an operator's attribute in ``forward``: a number, or ``self.<name>``."""
        style, rng = self.names.style, self.names.rng
        if style.init not in _WITH_CONSTANTS and rng.random() < 0.2:
            name = self.names.free_attribute(self.names.constant(operator, attribute))
            self.fixed[name] = number(value)
            return f"self.{name}"
        if style.init not in _WITH_CONSTANTS or rng.random() < 0.3:
            return number(value)
        name = self._constant_argument(self.names.constant(operator, attribute), number(value))
        self.kept[name] = self.names.free_attribute(name)
        return f"self.{self.kept[name]}"

    def _constant_argument(self, name: str, text: str, keyword: str | None = None) -> str:
        """A new argument with a constant value."""
        style, rng = self.names.style, self.names.rng
        default = None
        if style.init == "defaults" and (text == "None" or rng.random() < 0.75):
            default = text
            if text == "None" or rng.random() < 0.6:
                self.arguments.append(Argument(name, _hint(text), None, default))
                return name
            if not text.startswith("("):
                default = _OTHER_DEFAULTS.get(keyword or name, text)
        self.arguments.append(Argument(name, _hint(text), self._passed(name, text), default))
        return name

    def _passed(self, name: str, value: str) -> str:
        """What is given for an argument: its value, or a module-level constant that holds that."""
        style = self.names.style
        if style.sizes == "literals" or self.names.rng.random() >= 0.7:
            return value
        constant = self.names.free(name.upper()) if style.sizes == "capitals" else name
        self.constants[constant] = value
        return constant

    def _size_argument(self, size: str, keyword: str | None) -> str:
        """The argument that carries a size."""
        if size not in self._by_key:
            style, rng = self.names.style, self.names.rng
            named = self.names.sizes[size]
            by_keyword = style.sizes in ("letters", "capitals") or named.isdigit() or rng.random() < 0.3
            name = (keyword or size) if by_keyword else named
            known = {a.name for a in self.arguments}
            name = next(n for n in (name, size, f"{size}_", f"{size}__") if n not in known)
            self.arguments.append(Argument(name, "int", named))
            self._by_key[size] = name
        return self._by_key[size]

    def _constant_name(self, attribute: str, keyword: str, kind: str) -> str:
        """Of an argument for one constant of a constructor; a pool's may say whose it is in any case."""
        if "Pool" in kind and self.names.rng.random() < 0.6:
            return self.names.free(f"{self.names.rng.choice(('pool', attribute))}_{keyword}")
        known = {a.name for a in self.arguments}
        return self.names.free(keyword if keyword not in known else f"{attribute}_{keyword}")

    def _value(self, attribute: str, keyword: str | None, text: str, kind: str = "") -> str:
        """An argument of a constructor of class ``kind`` as it stands in ``__init__``."""
        style, rng = self.names.style, self.names.rng
        sizes = [word for word in WORD.findall(text) if word in self.names.values]
        if style.init == "literals":
            return WORD.sub(lambda m: str(self.names.values.get(m.group(), m.group())), text)
        if text in sizes:
            return self._size_argument(text, keyword)
        if sizes:
            if style.init in _WITH_CONSTANTS and keyword and rng.random() < 0.6:
                return self._tuple_argument(attribute, keyword, text)
            return WORD.sub(lambda m: self._size_argument(m.group(), None) if m.group() in sizes else m.group(), text)
        if keyword and style.init in _WITH_CONSTANTS and not text.startswith("'") and rng.random() < 0.75:
            return self._constant_argument(self._constant_name(attribute, keyword, kind), text, keyword)
        return text

    def _tuple_argument(self, attribute: str, keyword: str, text: str) -> str:
        """A shape that is passed in one piece."""
        name = self.names.free(keyword if keyword != "shape" else f"{attribute}_shape")
        if not text.startswith("("):
            text = f"({text},)" if "," not in text else f"({text})"
        self.arguments.append(Argument(name, "tuple", self._passed(name, self.names.text(text))))
        return name

    def _parameter_shape(self, attribute: str, text: str) -> str:
        if self.names.style.init in _WITH_CONSTANTS and self.names.rng.random() < 0.6:
            return self._tuple_argument(attribute, "shape", text)
        return self._value(attribute, None, text)

    def _written(self, attribute: str, text: str) -> str:
        if match := _PARAMETER.fullmatch(text):
            if match[2] == "()" and self.names.rng.random() < 0.5:
                value = number(self.names.rng.choice((0.5, 1.0, 2.0, -0.5, 0.1)))
                if self.names.style.init in _WITH_CONSTANTS:
                    value = self._constant_argument(self.names.free(f"{attribute}_value"), value)
                return f"nn.Parameter(torch.tensor({value}))"
            shape = self._parameter_shape(attribute, match[2])
            if self.names.style.rand and self.names.rng.random() < 0.3:  # never where kernels are judged by the result
                return f"nn.Parameter(torch.{self.names.rng.choice(('ones', 'rand', 'zeros'))}({shape}))"
            return f"nn.Parameter({match[1]}({shape}))"
        call = _parsed(text)
        kind = call.function.rpartition(".")[2]
        usual = ARGUMENTS.get(kind, ())
        given = [(k or (usual[i] if i < len(usual) else None), v) for i, (k, v) in enumerate(call.arguments)]
        given += self._spelled_defaults(kind, [k for k, _ in given])
        given = [(k, v) for k, v in self._without_stride(kind, given) if not self._is_left_out(kind, k, v)]
        written = [(k, self._value(attribute, k, v, kind)) for k, v in given]
        if "Conv" in kind and dict(given)["kernel_size"].isdigit() and self.names.rng.random() < 0.15:
            axes = int(kind[-2])
            written = [(k, _repeated(v, axes) if k == "kernel_size" else v) for k, v in written]
        function = call.function.replace("nn.", "torch.nn.") if self.names.rng.random() < 0.05 else call.function
        return f"{function}({self._joined(usual, written)})"

    def _is_left_out(self, kind: str, keyword: str | None, text: str) -> bool:
        usual = LEFT_OUT.get((kind, keyword or ""))
        return usual is not None and float(usual) == float(text) and self.names.rng.random() < 0.6

    def _without_stride(self, kind: str, given: list[tuple[str | None, str]]) -> list[tuple[str | None, str]]:
        """A pool's stride is left out, or None, where it is that of its window."""
        stride = dict(given).get("stride")
        if "Pool" not in kind or stride is None or stride != dict(given).get("kernel_size"):
            return given
        way = self.names.rng.random()
        if way < 0.4:
            return [(k, v) for k, v in given if k != "stride"]
        as_none = way < 0.7 and self.names.style.init == "defaults"
        return [(k, "None" if k == "stride" and as_none else v) for k, v in given]

    def _spelled_defaults(self, kind: str, keywords: list[str | None]) -> list[tuple[str | None, str]]:
        """Some of the arguments that are left at their defaults."""
        style, rng = self.names.style, self.names.rng
        share = {"defaults": 0.75, "arguments": 0.4}.get(style.init, 0.1)
        if rng.random() > share:
            return []
        each = 1.0 if style.init == "defaults" and rng.random() < 0.5 else 0.6
        return [(k, v) for k, v in DEFAULTS.get(kind, ()) if k not in keywords and rng.random() < each]

    def _joined(self, usual: tuple[str, ...], arguments: list[tuple[str | None, str]]) -> str:
        """Arguments by position as far as they can be and the style wants it."""
        style, rng = self.names.style, self.names.rng
        forced = max((i + 1 for i, (k, _) in enumerate(arguments) if k is None), default=0)
        positional = forced
        for i, (keyword, _) in enumerate(arguments):
            if i < forced:
                continue
            if i >= len(usual) or usual[i] != keyword or rng.random() < (style.keywords if i < 3 else 0.7):
                break
            positional += 1
        return ", ".join(v if i < positional or k is None else f"{k}={v}" for i, (k, v) in enumerate(arguments))

    # --- text ------------------------------------------------------------------------------------------------

    @property
    def ordered(self) -> list[Argument]:
        """Arguments as ``__init__`` takes them: without a default, with one, left at it."""
        return sorted(self.arguments, key=lambda a: (a.default is not None) + (a.value is None))

    @property
    def passed(self) -> list[str]:
        """What get_init_inputs gives."""
        return [a.value for a in self.ordered if a.value is not None]

    def add_unused(self) -> None:
        """Arguments that nothing reads: one of no meaning, one that is called like a parameter, or like an option of a
        window that is left at its default."""
        style, rng = self.names.style, self.names.rng
        if style.init not in _WITH_CONSTANTS:
            return
        if rng.random() < 0.04:
            self._constant_argument(self.names.free(rng.choice(("num_classes", "version"))), "10")
        learned = [d.name for d in self.definitions if d.text.startswith("nn.Parameter")]
        if learned and style.init != "stored" and rng.random() < 0.2:
            name = rng.choice(learned)
            if name not in {a.name for a in self.arguments} and self.names.free(name) == name:
                self._constant_argument(name, number(rng.choice((0.5, 1.0, 2.0, 0.1))))
        if any("Conv" in d.text for d in self.definitions) and rng.random() < 0.3:
            name = rng.choice(_UNUSED_OF_WINDOWS)
            if name not in {a.name for a in self.arguments} and self.names.free(name) == name:
                self._constant_argument(name, str(rng.choice((1, 2, 4, 8))))

    def signature(self, typed: bool) -> str:
        shown = ["self"]
        for a in self.ordered:
            hinted = f"{a.name}: {a.hint}" if typed else a.name
            equals = " = " if typed else "="
            shown.append(hinted if a.default is None else f"{hinted}{equals}{a.default}")
        return ", ".join(shown)

    def body(self) -> list[str]:
        """Lines after the call of the parent's constructor."""
        if self.names.style.init != "stored":
            lines = [f"self.{kept} = {name}" for name, kept in self.kept.items()]
            lines += [f"self.{name} = {text}" for name, text in self.fixed.items()]
            return [*lines, *(f"self.{d.name} = {d.text}" for d in self.definitions)]
        kept = {a.name: self.kept.get(a.name) or self.names.free_attribute(a.name) for a in self.arguments}
        lines = [f"self.{kept[a.name]} = {a.name}" for a in self.ordered]

        def stored(text: str) -> str:
            return WORD.sub(lambda m: f"self.{kept[m.group()]}" if m.group() in kept else m.group(), text)

        return [*lines, *(f"self.{d.name} = {stored(d.text)}" for d in self.definitions)]
