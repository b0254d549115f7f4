"""Names of a restyled module: sizes, attributes, inputs, constants. No two things in one scope share a name."""

from __future__ import annotations

import random
import re

from kevin.tasks.operators import Dim
from kevin.tasks.ops import Trace
from kevin.tasks.styles import (
    AS_VALUE,
    ATTRIBUTES,
    COINED,
    COINED_INPUTS,
    CONSTANTS,
    INPUTS,
    LETTERS,
    LONG_INPUTS,
    SIZES,
    Style,
)

WORD = re.compile(r"(?<![\w.'])[A-Za-z_]\w*+(?!=[^=])")
"""A name in Python, but no attribute, string or keyword of a call."""
_ALIKE = ({"height", "width"}, {"rows", "inner", "cols"})


def _are_alike(one: str, other: str) -> bool:
    return any(one in sizes and other in sizes for sizes in _ALIKE)


def _free(name: str, taken: set[str], joint: str) -> str:
    """``name``, or with a number behind it one that is not ``taken``, which it is then."""
    base, number = name, 2
    while name in taken:
        name, number = f"{base}{joint}{number}", number + 1
    taken.add(name)
    return name


class Names:
    """The names of one module, drawn when they are asked for."""

    def __init__(self, rng: random.Random, style: Style, traced: Trace, sizes: dict[str, int]) -> None:
        self.rng, self.style = rng, style
        self._taken: set[str] = {"out", "self", "torch", "nn", "F", "math", "Model", "Tensor"}
        self._attributes: set[str] = {"training"}
        self.values = {**sizes, **{d.name: d.size for shape in traced.shapes for d in shape}}
        self.values = {name: size for name, size in self.values.items() if not name.isdigit()}
        self.sizes = self._of_sizes()
        self.inputs = self._of_inputs(traced)
        self.numbers = {self.inputs[s.name] for s in traced.spec.inputs if s.kind == "scalar"}
        """Inputs that are no tensors."""

    def free(self, name: str) -> str:
        """``name``, or one close to it, that stands for nothing else at module level or in a function."""
        return _free(name, self._taken, "_")

    def free_attribute(self, name: str) -> str:
        return _free(name, self._attributes, "")

    def _of_sizes(self) -> dict[str, str]:
        """By the inventory's name: the text that stands for a size."""
        family, named = self.style.sizes, {}
        shared = family != "literals" and self.rng.random() < 0.3
        for name, size in self.values.items():
            if family == "literals" or (family == "partly" and self.rng.random() < 0.5):
                named[name] = str(size)
                continue
            twin = next((n for n in named if shared and self.values[n] == size and _are_alike(n, name)), None)
            if twin and not named[twin].isdigit():
                named[name] = named[twin]
                continue
            text = name
            if family == "named":
                text = self.rng.choice(SIZES.get(name, (name,)))
            elif family == "letters":
                text = LETTERS.get(name, name)
            elif family == "capitals":
                text = name.upper()
            named[name] = self.free(text)
        return named

    def _of_inputs(self, traced: Trace) -> dict[str, str]:
        plain = [name for name, *_ in traced.inputs]
        kind = traced.steps[0].kind
        if self.style.inputs == "plain":
            wanted = plain
        elif self.style.inputs == "coined":
            wanted = self.rng.sample(COINED_INPUTS, len(plain))
        elif self.style.inputs == "long":
            wanted = list(LONG_INPUTS[: len(plain)])
        elif traced.steps[0].second and kind in ("contract", "loss"):
            usual = "product" if kind != "loss" else "loss"
            if traced.steps[0].third:
                usual = "attention" if kind == "contract" else "triplet"
            wanted = list(self._fitting(INPUTS[usual]))
            wanted += plain[len(wanted) :]
        else:
            further = [n for (n,) in INPUTS["further"]]
            wanted = [*self._fitting(INPUTS["single"]), *self.rng.sample(further, min(len(plain) - 1, len(further)))]
            wanted += plain[len(wanted) :]
        return {name: self.free(new) for name, new in zip(plain, wanted, strict=False)}

    def _fitting(self, choices: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
        free = [c for c in choices if not self._taken & set(c)]
        return self.rng.choice(free) if free else choices[0]

    def attribute(self, plain: str) -> str:
        """The name of an attribute that the inventory calls ``plain``."""
        plain = re.sub(r"_\d+$", "", plain)
        choices = ATTRIBUTES.get(plain, (plain, f"{plain}_layer"))
        match self.style.attributes:
            case "short":
                return self.free_attribute(self.rng.choice(choices))
            case "numbered":
                short = choices[0]
                number = 1
                while f"{short}{number}" in self._attributes:
                    number += 1
                return self.free_attribute(f"{short}{number}")
            case "coined":
                start, end = (self.rng.choice(part) for part in COINED)
                tail = self.rng.choice(("", "", "", "1", "_a", "0"))
                return self.free_attribute(f"{start}_{end}{tail}" if self.rng.random() < 0.7 else f"{end}{tail}")
            case "layers":
                number = 1 + sum(a.startswith("layer") for a in self._attributes)
                return self.free_attribute(f"layer{number}")
        return self.free_attribute(plain)

    def constant(self, operator: str, attribute: str) -> str:
        """The name of an argument that carries an operator's attribute."""
        usual = CONSTANTS.get((operator, attribute)) or (AS_VALUE.get(attribute, attribute),)
        name = self.rng.choice(usual)
        return self.free(name if name not in self._taken else f"{operator}_{attribute}")

    def text(self, source: str) -> str:
        """Source text with the module's own names of sizes."""
        return WORD.sub(lambda m: self.sizes.get(m.group(), m.group()), source)

    def shape(self, dims: tuple[Dim, ...]) -> str:
        """A shape as a tuple in the module's own names."""
        inner = ", ".join(self.sizes.get(d.name, str(d.size)) for d in dims)
        return f"({inner},)" if len(dims) == 1 else f"({inner})"
