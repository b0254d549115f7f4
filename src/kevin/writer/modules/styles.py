"""Families of style: along each axis of how a module is written, the ways that people have, and names of all kinds.

A style is one way along each axis. The ways in `HELD_OUT` are drawn only on request, so that a model can be asked
whether it reads what it was never shown.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kevin.tasks.operators import Dim
from kevin.tasks.ops import Trace

SHOWN: dict[str, dict[str, float]] = {
    "calls": {"own": 2.0, "functional": 1.5, "module": 2.0, "method": 1.0, "mixed": 3.0},
    "attributes": {"own": 1.5, "short": 3.0, "numbered": 1.0, "coined": 1.5},
    "variables": {"reuse": 6.0, "out": 1.5, "fresh": 1.5, "nested": 1.5, "one_line": 0.7},
    "inputs": {"plain": 3.0, "named": 1.5, "coined": 0.5},
    "sizes": {"plain": 2.0, "named": 2.0, "letters": 1.0, "literals": 1.0, "partly": 0.5},
    "placed": {"before": 1.0, "after": 4.0},
    "init": {"sizes": 1.5, "arguments": 3.0, "defaults": 3.0, "literals": 1.0},
    "hints": {"none": 1.5, "typed": 1.0, "forward": 0.5},
    "docstring": {"none": 1.0, "line": 2.5, "google": 4.5, "bare": 1.5, "parameters": 0.7, "steps": 0.7},
    "comments": {"none": 3.0, "after": 1.0, "above": 1.0, "shapes": 0.5},
    "samples": {"names": 2.0, "direct": 2.0, "tuple": 0.5, "input_shape": 0.7},
}
"""By axis: the ways that are trained on, with their weights."""

HELD_OUT: dict[str, dict[str, float]] = {
    "calls": {"sequential": 1.0},
    "attributes": {"layers": 1.0},
    "variables": {"states": 1.0},
    "inputs": {"long": 1.0},
    "sizes": {"capitals": 1.0},
    "init": {"stored": 1.0},
    "hints": {"tensor": 1.0},
    "docstring": {"sphinx": 1.0, "numpy": 1.0},
    "comments": {"banner": 1.0},
    "samples": {"list": 1.0},
}
"""By axis: the ways that only `restyle(..., held_out=True)` shows."""

_HELD_OUT_SHARE = 0.6


@dataclass(frozen=True)
class Style:
    """One way along each axis, and small choices that belong to no family."""

    calls: str
    """Operators as the inventory has them, functions of torch.nn.functional, modules, methods, formulas, or any;
    ``sequential``: modules that follow each other stand in one nn.Sequential."""
    attributes: str
    """Names of attributes; ``coined`` ones have to be copied; ``layers``: layer1, layer2, ..."""
    variables: str
    """One variable that is assigned again, a new one for each step, nested calls; ``states``: state, state_1, ..."""
    inputs: str
    """Names of the inputs; ``long``: input_tensor, second_tensor, ..."""
    sizes: str
    """Names of the sizes, or numbers in their place, ``partly`` or all; ``capitals``: BATCH_SIZE."""
    placed: str
    """Whether constants stand before or after the class."""
    init: str
    """What __init__ takes: sizes, every number, numbers with defaults, or nothing; ``stored``: keeps all."""
    hints: str
    """Type hints; ``tensor``: Tensor imported by name."""
    docstring: str
    comments: str
    samples: str
    """How get_inputs draws tensors."""
    rand: bool
    """Inputs are uniform, not normal."""
    short_super: bool
    empty_init: bool
    """Write an __init__ that only calls its parent's."""
    returns_expression: bool
    keywords: float
    """Share of arguments written as keywords."""
    products: bool
    """Some sizes as products of two numbers."""
    pairs: bool
    """Neighbouring sizes assigned in one line."""
    tabs: str
    """What an empty line in the class holds."""


def draw(rng: random.Random, *, held_out: bool) -> Style:
    """A style to train on; with ``held_out`` one that has at least one way that is never trained on."""
    ways = {axis: _one(rng, weights) for axis, weights in SHOWN.items()}
    if held_out:
        axes = [axis for axis in HELD_OUT if rng.random() < _HELD_OUT_SHARE] or [rng.choice(list(HELD_OUT))]
        ways |= {axis: _one(rng, HELD_OUT[axis]) for axis in axes}
    return Style(
        **ways,
        rand=not held_out and rng.random() < 0.6,  # on values above zero a kernel without its ReLU would pass
        short_super=rng.random() < 0.3,
        empty_init=rng.random() < 0.7,
        returns_expression=rng.random() < 0.5,
        keywords=rng.choice((0.0, 0.0, 0.5, 1.0)),
        products=rng.random() < 0.15,
        pairs=rng.random() < 0.2,
        tabs=rng.choice(("", "", "", "    ")),
    )


def _one(rng: random.Random, weights: Mapping[str, float]) -> str:
    return rng.choices(list(weights), weights=list(weights.values()))[0]


# --- names --------------------------------------------------------------------------------------------------

SIZES: dict[str, tuple[str, ...]] = {
    "batch_size": ("batch", "batch_size", "num_samples", "bs", "n"),
    "dim": ("dim", "features", "num_features", "hidden_dim", "hidden_size", "width", "embed_dim", "dim1"),
    "channels": ("channels", "num_channels", "features", "num_features", "c", "in_channels"),
    "in_channels": ("in_channels", "input_channels", "in_ch", "c_in"),
    "out_channels": ("out_channels", "output_channels", "out_ch", "num_filters", "c_out"),
    "length": ("length", "seq_len", "sequence_length", "signal_length", "input_length", "dim1"),
    "depth": ("depth", "frames", "dim0", "d"),
    "height": ("height", "h", "dim1", "image_height", "height_in"),
    "width": ("width", "w", "dim2", "image_width", "width_in"),
    "in_features": ("in_features", "input_size", "input_dim", "in_dim", "in_size"),
    "out_features": ("out_features", "hidden_size", "output_size", "output_dim", "out_dim"),
    "rows": ("rows", "num_rows", "m", "height"),
    "inner": ("inner", "inner_dim", "k", "depth"),
    "cols": ("cols", "num_cols", "n", "width"),
    "heads": ("heads", "num_heads", "groups"),
    "classes": ("num_classes", "classes", "vocab_size", "n_classes"),
}
"""By the inventory's name of a size: what others call it."""

LETTERS = {
    "batch_size": "B",
    "dim": "D",
    "channels": "C",
    "in_channels": "C_in",
    "out_channels": "C_out",
    "length": "L",
    "depth": "D",
    "height": "H",
    "width": "W",
    "in_features": "K",
    "out_features": "N",
    "rows": "M",
    "inner": "K",
    "cols": "N",
    "classes": "C",
}

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "linear": ("linear", "fc", "gemm", "matmul", "proj", "dense", "lin", "mm", "project"),
    "conv1d": ("conv", "conv1d", "conv_layer"),
    "conv2d": ("conv", "conv2d", "conv_layer"),
    "conv3d": ("conv", "conv3d", "conv_layer"),
    "depthwise_conv2d": ("conv", "depthwise", "dw_conv", "conv2d"),
    "conv2d_pointwise": ("conv", "pointwise", "pw_conv", "conv1x1", "conv2d"),
    "layer_norm": ("ln", "norm", "layer_norm", "layernorm"),
    "group_norm": ("gn", "norm", "group_norm"),
    "batch_norm": ("bn", "norm", "batch_norm"),
    "instance_norm": ("inorm", "norm", "instance_norm", "in_norm"),
    "rms_norm": ("norm", "rms", "rmsnorm"),
    "bias": ("bias", "bias", "bias", "add_value", "shift", "beta", "offset", "constant"),
    "scale": ("scale", "scale", "gamma", "multiplier", "gain", "scale_factor", "scaling_factor", "factor"),
    "limit": ("limit", "bound", "ceiling", "threshold", "max_value"),
    "weight": ("weight", "w", "matrix", "weights"),
    **{f"conv_transpose{n}d": ("conv_transpose", "deconv", "conv", "up", f"conv_transpose{n}d") for n in (1, 2, 3)},
    "relu": ("relu", "act", "activation", "relu"),
    **{
        n: (n, n, "act", "activation", "nonlinearity")
        for n in ("leaky_relu", "sigmoid", "tanh", "gelu", "silu", "softplus", "elu", "selu", "mish", "hardswish")
    },
    "hardtanh": ("hardtanh", "clip", "act", "hard_tanh"),
    "softmax": ("softmax", "sm", "softmax"),
    **{f"{k}_pool{n}d": (f"{k}_pool", f"{k}pool", "pool", f"{k}_pool{n}d") for k in ("max", "avg") for n in (1, 2, 3)},
    "global_avg_pool": ("global_avg_pool", "gap", "avgpool", "pool"),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "cross_entropy", "hinge_loss"), ("loss", "criterion", "loss_fn")),
    "cosine_similarity": ("similarity", "cos", "cosine"),
}
"""By the inventory's name of an attribute: what others call it. Learned tensors are called as constants
are, too: which of the two it is stands in ``__init__``, not in the name."""

CONSTANTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("scale", "c"): ("scaling_factor", "scale_factor", "multiplier", "scale", "factor", "multiply_value", "alpha"),
    ("add_scalar", "c"): ("add_value", "constant", "offset", "shift", "value"),
    ("clamp", "min"): ("clamp_min", "min_value", "low", "lower"),
    ("clamp", "max"): ("clamp_max", "max_value", "high", "upper"),
    ("hardtanh", "min"): ("hardtanh_min", "min_val", "low"),
    ("hardtanh", "max"): ("hardtanh_max", "max_val", "high"),
    ("leaky_relu", "slope"): ("negative_slope", "slope", "leak"),
    ("elu", "alpha"): ("alpha", "elu_alpha"),
    ("sub_scalar", "c"): ("subtract_value", "offset", "constant", "shift"),
    ("div_scalar", "c"): ("divisor", "divide_by", "denominator"),
    ("min_scalar", "c"): ("max_value", "limit", "constant"),
    ("max_scalar", "c"): ("min_value", "floor", "constant"),
    ("clamp_min", "min"): ("min_value", "clamp_min", "low"),
    ("dropout", "p"): ("dropout_p", "p", "drop_rate"),
}
"""By operator and attribute: the name of an argument that carries it."""

AS_VALUE = {"c": "value", "slope": "negative_slope", "kernel": "kernel_size", "groups": "num_groups"}
"""Names of arguments for attributes of all other operators."""

INPUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "product": (
        ("A", "B"),
        ("A", "B"),
        ("a", "b"),
        ("x", "y"),
        ("x", "weight"),
        ("lhs", "rhs"),
        ("X", "W"),
        ("mat1", "mat2"),
    ),
    "loss": (
        ("predictions", "targets"),
        ("predictions", "targets"),
        ("pred", "target"),
        ("logits", "labels"),
        ("y_pred", "y_true"),
        ("input", "target"),
        ("a", "b"),
        ("output", "label"),
        ("x", "y"),
    ),
    "triplet": (("anchor", "positive", "negative"), ("a", "p", "n"), ("query", "pos", "neg")),
    "attention": (("Q", "K", "V"), ("q", "k", "v"), ("query", "key", "value")),
    "single": (("x",), ("x",), ("input",), ("inp",), ("input_tensor",), ("data",), ("X",), ("a",), ("A",), ("feats",)),
    "further": (("residual",), ("y",), ("other",), ("skip",), ("b",), ("z",), ("addend",), ("gate",), ("add_input",)),
}
"""Names of the inputs: pairs of a product and of a loss, a single one, and what further operators read."""

COINED = (
    ("main", "first", "input", "inner", "pre", "post", "base", "top", "local", "shared", "mixed", "core", "aux", "my"),
    ("op", "map", "part", "unit", "stage", "head", "cell", "path", "bank", "kern", "mix", "proj", "stem", "gate"),
)
"""First and second parts of names that mean nothing."""
COINED_INPUTS = (
    "src",
    "t",
    "u",
    "v",
    "tokens",
    "signal",
    "img",
    "batch_x",
    "vals",
    "arr",
    "state_in",
    "q",
    "p0",
    "sample",
)

LONG_INPUTS = ("input_tensor", "second_tensor", "third_tensor", "fourth_tensor", "fifth_tensor", "sixth_tensor")


WORD = re.compile(r"(?<![\w.'])[A-Za-z_]\w*+(?!=[^=])")
"""A name in Python, but no attribute, string or keyword of a call."""
_ALIKE = ({"height", "width"}, {"rows", "inner", "cols"})


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
            alike = next((sizes for sizes in _ALIKE if name in sizes), set())
            twin = next((n for n in named if shared and self.values[n] == size and n in alike), None)
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
