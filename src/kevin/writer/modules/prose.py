"""Docstrings and comments of a restyled module, in our own words."""

from __future__ import annotations

import random

from kevin.tasks.operators import OPERATORS, Shape
from kevin.tasks.ops import Step, Trace
from kevin.writer.modules.definitions import Argument, Init
from kevin.writer.modules.styles import Names

PHRASES: dict[str, tuple[str, ...]] = {
    "linear": ("a linear layer", "a fully connected layer", "a gemm", "a matrix product with learned weights"),
    "matmul": ("a matrix product", "a matrix multiplication", "the product of two matrices"),
    "matmul_batched": ("a batched matrix product", "a batch of matrix products"),
    "matmul_transposed_b": ("a matrix product with the second factor transposed", "A times B transposed"),
    "matvec": ("a matrix-vector product", "a product of a matrix and a vector"),
    "conv1d": ("a 1D convolution", "a convolution along the length"),
    "conv2d": ("a 2D convolution", "a convolution over the image"),
    "conv3d": ("a 3D convolution", "a convolution over the volume"),
    "depthwise_conv2d": ("a depthwise 2D convolution", "a depthwise convolution"),
    "conv2d_pointwise": ("a pointwise 2D convolution", "a 1x1 convolution"),
    "relu": ("ReLU", "a ReLU activation", "rectification"),
    "leaky_relu": ("LeakyReLU", "a leaky ReLU"),
    "sigmoid": ("sigmoid", "a sigmoid activation", "the logistic function"),
    "tanh": ("tanh", "a hyperbolic tangent", "a Tanh activation"),
    "gelu": ("GELU", "a GELU activation"),
    "silu": ("Swish", "SiLU", "a Swish activation"),
    "softplus": ("Softplus", "a softplus activation"),
    "elu": ("ELU", "an ELU activation"),
    "hardtanh": ("HardTanh", "a hard tanh"),
    "hardswish": ("HardSwish", "a hard swish"),
    "softsign": ("Softsign", "a softsign activation"),
    "mish": ("Mish", "a Mish activation"),
    "scale": ("scaling", "multiplication by a constant", "a scaling by a fixed factor"),
    "add_scalar": ("addition of a constant", "a constant shift"),
    "clamp": ("clamping", "clamping to a range", "a clamp"),
    "bias_add": ("a bias add", "addition of a learned bias", "a bias"),
    "add_input": ("addition of a second tensor", "a residual add"),
    "mul_input": ("multiplication by a second tensor", "an elementwise product with a second tensor"),
    "softmax": ("softmax", "a softmax"),
    "log_softmax": ("log-softmax", "a log softmax"),
    "layer_norm": ("layer normalization", "LayerNorm"),
    "group_norm": ("group normalization", "GroupNorm"),
    "batch_norm": ("batch normalization", "BatchNorm"),
    "instance_norm": ("instance normalization", "InstanceNorm"),
    "rms_norm": ("RMS normalization", "RMSNorm"),
    "l2_norm": ("L2 normalization", "scaling to unit length"),
    "sum_dim": ("a sum over one dimension", "a sum reduction"),
    "mean_dim": ("a mean over one dimension", "a mean reduction", "averaging"),
    "max_dim": ("a maximum over one dimension", "a max reduction"),
    "argmax": ("argmax", "the index of the maximum"),
    "global_avg_pool": ("global average pooling", "a mean over the image"),
    "cumsum": ("a cumulative sum", "a running sum"),
    "reverse_cumsum": ("a reversed cumulative sum", "a running sum from the end"),
    "mse_loss": ("a mean squared error", "the MSE loss"),
    "smooth_l1_loss": ("a smooth L1 loss", "a Huber loss"),
    "hinge_loss": ("a hinge loss",),
    "cross_entropy": ("a cross entropy loss", "cross entropy"),
    **{f"conv_transpose{n}d": (f"a {n}D transposed convolution", f"a {n}D deconvolution") for n in (1, 2, 3)},
    **{f"max_pool{n}d": (f"{n}D max pooling", "max pooling", "a max pool") for n in (1, 2, 3)},
    **{f"avg_pool{n}d": (f"{n}D average pooling", "average pooling", "an average pool") for n in (1, 2, 3)},
    "adaptive_avg_pool": ("adaptive average pooling", "a global mean of each channel"),
    "selu": ("SELU", "a SELU activation"),
    "hardsigmoid": ("hard sigmoid", "a HardSigmoid"),
    "new_gelu": ("GELU in its tanh form", "the tanh approximation of GELU"),
    "sub_scalar": ("subtraction of a constant", "a subtraction"),
    "div_scalar": ("division by a constant", "a division"),
    "min_scalar": ("a minimum with a constant", "a cap"),
    "max_scalar": ("a maximum with a constant", "a floor"),
    "clamp_min": ("a lower clamp", "clamping from below"),
    "add_param": ("addition of a learned tensor", "a bias add"),
    "sub_param": ("subtraction of a learned tensor", "a learned shift"),
    "mul_param": ("multiplication by a learned tensor", "a learned scale"),
    "add_residual": ("a residual connection", "a skip connection"),
    "mul_residual": ("multiplication by an earlier result", "a gate"),
    "matmul_weight": ("a product with a weight matrix", "a gemm"),
    "min_dim": ("a minimum over one dimension", "a min reduction"),
    "logsumexp": ("LogSumExp", "a log-sum-exp"),
    "prod_dim": ("a product over one dimension",),
    "exclusive_cumsum": ("an exclusive cumulative sum", "a running sum that leaves out the element itself"),
    "masked_cumsum": ("a masked cumulative sum",),
    "cumprod": ("a cumulative product", "a running product"),
    "frobenius_norm": ("normalization by the Frobenius norm",),
    "kl_div": ("the KL divergence", "a Kullback-Leibler loss"),
    "triplet_loss": ("a triplet loss", "a triplet margin loss"),
    "attention": ("scaled dot product attention", "attention of queries over keys"),
    "scale_input": ("multiplication by a number", "scaling by a number that is passed in"),
    "dropout": ("dropout, off at inference",),
    "cosine_similarity": ("cosine similarity", "a cosine similarity of rows"),
    "matmul_shared": ("a matrix product", "products of many matrices with one", "a tensor times a matrix"),
    "matmul_transposed_a": ("a matrix product", "a matrix product with the first factor transposed"),
    "matmul_transposed": ("a matrix product", "a matrix product of two transposed factors"),
    "matmul_symmetric": ("a matrix product", "a product of symmetric matrices"),
    "matmul_upper_triangular": ("a matrix product", "a product of upper triangular matrices"),
    "matmul_lower_triangular": ("a matrix product", "a product of lower triangular matrices"),
    "matmul_diagonal": ("a product with a diagonal matrix", "a matrix product", "a factor for each row"),
    "hinge_loss_shared": ("a hinge loss",),
    "abs": ("the absolute value", "magnitudes", "abs"),
    "square": ("squares", "an elementwise square", "squaring"),
    "min_param": ("a minimum with a learned tensor", "a learned cap"),
    "residual_sub": ("a difference to an earlier result", "subtraction of what was found", "a subtraction"),
    "spatial_softmax": ("a softmax over the image", "a softmax over all positions"),
    "row_norm": ("layer normalization", "normalization of each row", "a standardization of rows"),
    "rms_norm_dim": ("RMS normalization", "RMSNorm"),
    "l1_norm": ("L1 normalization", "division by the mean magnitude"),
    "argmin": ("argmin", "the index of the minimum"),
}
"""By operator, in words that people use: prose with the inventory's own names would be read in place of the code."""

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "in_channels": ("input channels", "channels that come in", "how many channels x has"),
    "out_channels": ("output channels", "how many filters there are", "channels of the result"),
    "kernel_size": (
        *("window size", "side of the window", "how far the window reaches along each axis"),
        *("side of the square window", "size of the square filter", "height and width of the filter"),
    ),
    "stride": ("step of the window", "stride", "how far the window moves each time"),
    "padding": ("zeros on each side", "padding", "how many zeros go around the input"),
    "output_padding": ("extra size on one side of the result", "output padding"),
    "dilation": ("gap inside the window", "dilation", "distance of neighbouring taps"),
    "groups": ("groups of channels", "channel groups that do not mix"),
    "in_features": ("size of an input row", "input width", "length of the vectors that come in"),
    "out_features": ("size of an output row", "output width", "length of the vectors that go out"),
    "bias": ("whether a bias is learned", "adds a bias", "if true, a learned bias is added"),
    "eps": ("keeps the division finite", "small constant", "tiny value inside the square root"),
    "dim": ("the dimension to work on", "axis", "which axis is meant"),
    "num_groups": ("how many groups of channels", "groups"),
    "num_features": ("channels to normalize", "feature count", "how many channels get statistics"),
    "normalized_shape": ("what is normalized", "trailing shape", "sizes over which statistics are taken"),
    "negative_slope": ("slope below zero", "negative slope", "factor for values under zero"),
}

_OPENINGS = (
    "Simple model that computes {}.",
    "Simple module: {}.",
    "Model that runs {}.",
    "A model computing {}.",
    "Computes {}.",
    "A small network with {}.",
    "This module performs {} on its input.",
    "Module made of {}.",
    "Performs {} in one forward pass.",
    "Does {}, nothing else.",
    "A model which applies {}.",
    "Reference for {}.",
    "{}.",
)
_KINDS = ("standard", "plain", "common", "square", "symmetric", "asymmetric", "regular")
_WINDOWS = (
    *("with a square window", "over square images", "with a square kernel", "on square inputs, square kernel"),
    *("with an asymmetric kernel", "over an asymmetric input", "with sides that differ", "on inputs of any sides"),
    *("with windows of equal sides", "(asymmetric input, square kernel)", "(square input)", "in its standard form"),
)
"""Beside convolutions and pools: words for shapes, some of which name operators elsewhere."""
_ASIDES = (
    *("Square inputs are usual.", "The input need not be square.", "Asymmetric inputs work too."),
    *("Scaling is left to the caller.", "No activation follows.", "Nothing is added to the result."),
    *("Negative inputs are fine.", "Absolute sizes do not matter.", "No mean is taken over the batch."),
    *("The sum of all sizes is small.", "There is no bias by default.", "One batch at a time."),
    *("Takes inputs of at most this size.", "The least size is one.", "Meant for large inputs."),
)
"""What a module is not: operators that are named and not computed."""
_ASIDE_SHARE = 0.15
_ALIKE = (
    ("scale", "mul_param", "mul_input", "mul_residual", "scale_input"),
    ("sub_scalar", "sub_param", "residual_sub"),
    ("add_scalar", "add_param", "bias_add", "add_input", "add_residual"),
    ("min_scalar", "min_param", "min_dim"),
    ("max_scalar", "max_dim", "clamp_min"),
    ("global_avg_pool", "adaptive_avg_pool", "mean_dim"),
)
_NO_WORDS = frozenset({"dim"})
"""Of operators' names: those that say what is read, not what is done."""
_LOOSE_SHARE = 0.2
"""Of operators that prose calls by the name of one akin to them: people are vague, or wrong, and the code decides."""
_FORWARD = (
    "Forward pass.",
    "Runs {}.",
    "Computes {}.",
    "Apply {}.",
    "Returns the result of {}.",
    "Runs the model on a batch.",
    "Performs {} on the inputs.",
)
_INIT = ("Sets up the layers.", "Builds {}.", "Create the module.", "Prepares {}.", "Constructor.")
_TENSOR = (
    "input",
    "input of shape {}",
    "tensor, shape {}",
    "a tensor, {}",
    "the input, shape {}",
    "shape {}",
    "what the model works on, laid out as {}",
    "tensor that holds the data, its shape is {}",
    "the batch to run on, with shape {}",
)
_RESULT = (
    "result of shape {}",
    "tensor, shape {}",
    "the output, {}",
    "output, shape {}",
    "a tensor of shape {}",
    "what comes out, laid out as {}",
    "the result of all steps, with shape {}",
    "tensor that holds the result, its shape is {}",
)
_VAGUE = {
    1: ("(N,)", "(batch,)"),
    2: ("(N, D)", "(batch, features)", "(M, N)", "(batch, *)", "any size", "(*, last)"),
    3: ("(N, C, L)", "(batch, channels, length)", "(batch, *, last)", "any size", "(B, S, D)"),
    4: ("(N, C, H, W)", "(batch, channels, height, width)", "(B, C, *)", "any size"),
    5: ("(N, C, D, H, W)", "(batch, channels, depth, height, width)", "(B, C, *)"),
}
"""By rank: shapes in words that are nobody's constants."""
_REMARKS = ("{}", "apply {}", "{}", "then {}", "{} step", "now {}")
_SIZE_NOTES = ("number of samples", "kept large on purpose", "change for other sizes")


def phrase(rng: random.Random, operator: str) -> str:
    """An operator as a noun."""
    return rng.choice(PHRASES[operator])


def akin(operator: str) -> tuple[str, ...]:
    """Others that one word serves for, as "scaling" does; else those of its kind, if there are any those that share a
    word of its name: ``matmul`` for ``matmul_batched``.
    """
    if alike := next((group for group in _ALIKE if operator in group), None):
        return tuple(name for name in alike if name != operator)
    words = set(operator.split("_")) - _NO_WORDS
    same = [n for n, o in OPERATORS.items() if o.kind == OPERATORS[operator].kind and n != operator]
    return tuple(n for n in same if words & set(n.split("_"))) or tuple(same) or (operator,)


def remark(rng: random.Random, operator: str) -> str:
    """A comment beside the operator's line."""
    noun = phrase(rng, operator)
    for article in ("a ", "an ", "the "):
        noun = noun.removeprefix(article)
    text = rng.choice(_REMARKS).format(noun)
    return text[0].upper() + text[1:] if rng.random() < 0.4 else text


class Words:
    """The prose of one module."""

    def __init__(self, names: Names, traced: Trace, init: Init) -> None:
        self._rng, self._names, self._traced, self._init = names.rng, names, traced, init
        self._family = names.style.docstring
        self._nouns = [self._noun(s) for s in traced.steps]

    def _noun(self, step: Step) -> str:
        rng, operator = self._rng, step.op.name
        if rng.random() < _LOOSE_SHARE:
            operator = rng.choice(akin(operator))
        noun = phrase(rng, operator)
        if step.kind not in ("contract", "pool") or len(step.in_shape) < 3:
            return noun
        if rng.random() < 0.3:
            article, space, rest = noun.partition(" ")
            kind = rng.choice(_KINDS)
            new = "an" if kind[0] in "aeiou" else "a"
            noun = f"{new} {kind} {rest}" if space and article in ("a", "an") else f"{kind} {noun}"
        return f"{noun} {rng.choice(_WINDOWS)}" if rng.random() < 0.3 else noun

    def _all(self) -> str:
        """The operators as one noun."""
        *others, last = self._nouns
        if not others:
            return last
        link = self._rng.choice((" and ", " and then ", ", followed by ", ", then "))
        return ", ".join(others) + link + last

    def _sentence(self, choices: tuple[str, ...]) -> str:
        text = self._rng.choice(choices).format(self._all())
        return text[0].upper() + text[1:]

    def _shape(self, dims: Shape) -> str:
        vague = _VAGUE.get(len(dims))
        return self._rng.choice(vague) if vague and self._rng.random() < 0.3 else self._names.shape(dims)

    def of_class(self) -> list[str]:
        family, rng = self._family, self._rng
        if family == "none" or (family in ("google", "bare") and rng.random() < 0.1):
            return []
        sentence = self._sentence(_OPENINGS)
        if rng.random() < _ASIDE_SHARE:
            sentence = f"{sentence.rstrip('.')}. {rng.choice(_ASIDES)}"
        if family == "steps" and len(self._nouns) > 1:
            head = rng.choice(("The model does, in this order:", "Steps:", "A sequence of operations:"))
            bullet = rng.choice(("{}. ", "{}) ", "- "))
            return [head, *(bullet.format(i) + n for i, n in enumerate(self._nouns, 1))]
        arguments = self._init.ordered
        if family == "parameters":
            return [sentence, "", "Parameters:", *(self._described(arguments) or ["    None"])]
        if family in ("google", "bare") and arguments and rng.random() < 0.4:
            return [sentence, "", "Args:", *self._described(arguments)]
        if family == "numpy" and arguments:
            return [sentence, "", "Parameters", "----------", *self._numpy(arguments)]
        if family == "sphinx":
            return [sentence, *(["", *self._fields(arguments)] if arguments else [])]
        if family == "line" and rng.random() < 0.3:
            return [f'"""{sentence}"""']
        return [sentence]

    def of_init(self) -> list[str]:
        family, arguments = self._family, self._init.ordered
        if family not in ("google", "bare") or not arguments or self._rng.random() < 0.5:
            return []
        return [self._sentence(_INIT), "", "Args:", *self._described(arguments)]

    def of_forward(self) -> list[str]:
        family, rng = self._family, self._rng
        if family in ("none", "line", "steps") and rng.random() < 0.9:
            return []
        shapes = {self._names.inputs[n]: self._shape(s) for n, s, *_ in self._traced.inputs}
        given = {n: rng.choice(_TENSOR).format(s) for n, s in shapes.items()}
        given |= {n: rng.choice(("a number", "the factor", "plain number")) for n in self._names.numbers}
        hints = {n: "float" if n in self._names.numbers else "torch.Tensor" for n in given}
        result = rng.choice(_RESULT).format(self._shape(self._traced.shapes[-1]))
        sentence = self._sentence(_FORWARD)
        if family == "sphinx":
            return [sentence, "", *(f":param {n}: {t}" for n, t in given.items()), f":return: {result}"]
        if family == "numpy":
            parameters = [line for n, t in given.items() for line in (f"{n} : {hints[n]}", f"    {t}")]
            returns = ["Returns", "-------", "torch.Tensor", f"    {result}"]
            return [sentence, "", "Parameters", "----------", *parameters, "", *returns]
        if family not in ("google", "bare", "parameters"):
            return [f'"""{sentence}"""']
        typed = family == "google"
        arguments = [f"    {n}{f' ({hints[n]})' if typed else ''}: {self._cased(t)}" for n, t in given.items()]
        returned = f"    torch.Tensor: {self._cased(result)}" if family == "google" else f"    {self._cased(result)}"
        head = [sentence, ""] if rng.random() < 0.8 else []
        between = [""] if rng.random() < 0.8 else []
        return [*head, "Args:", *arguments, *between, "Returns:", returned]

    def of_get_inputs(self) -> list[str]:
        if self._family == "none" or self._rng.random() < 0.93:
            return []
        return ['"""' + self._rng.choice(("Random inputs.", "Draws the inputs of forward.", "Test data.")) + '"""']

    def after_init_inputs(self, any_passed: bool) -> str:
        if self._rng.random() < 0.75:
            return ""
        return "  # " + self._rng.choice(
            ("as __init__ takes them",) if any_passed else ("nothing to pass", "no arguments")
        )

    def above_constants(self) -> list[str]:
        heads = ("# sizes", "# Configuration", "# test sizes", "# Hyperparameters", "# shapes")
        return [self._rng.choice(heads)] if self._rng.random() < 0.2 else []

    def after_size(self, size: int, text: str) -> str:
        if "*" in text and self._rng.random() < 0.3:
            return f"  # {size}"
        return f"  # {self._rng.choice(_SIZE_NOTES)}" if self._rng.random() < 0.03 else ""

    def _cased(self, text: str) -> str:
        text = text + self._rng.choice((".", "", "."))
        return text[0].upper() + text[1:]

    def _meaning(self, argument: Argument) -> str:
        usual = ARGUMENTS.get(argument.name) or (argument.name.replace("_", " "),)
        return self._rng.choice(usual)

    def _described(self, arguments: list[Argument]) -> list[str]:
        lines = []
        for a in arguments:
            kind = f"{a.hint}, optional" if a.default is not None and self._rng.random() < 0.7 else a.hint
            hint = "" if self._family == "bare" else f" ({kind})"
            said = self._rng.choice((" Default: {}", " defaults to {}", " (default {})")).format(a.default)
            default = said if a.default is not None and self._rng.random() < 0.6 else ""
            lines.append(f"    {a.name}{hint}: {self._cased(self._meaning(a))}{default}")
        return lines

    def _numpy(self, arguments: list[Argument]) -> list[str]:
        return [line for a in arguments for line in (f"{a.name} : {a.hint}", f"    {self._meaning(a)}")]

    def _fields(self, arguments: list[Argument]) -> list[str]:
        return [f":param {a.name}: {self._meaning(a)}" for a in arguments]
