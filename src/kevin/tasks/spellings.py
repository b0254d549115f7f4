"""Ways to write one operator in PyTorch, beyond the inventory's own.

What can be is derived from an operator's own expression, so that it holds for every operator; formulas that people
write out by hand stand in a table by operator name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kevin.tasks.operators import OPERATORS


class Spelling(NamedTuple):
    """``{x}``, ``{second}`` and attributes as in `Operator.expression`; ``{h}`` is a variable of its own."""

    kind: str
    """own, functional, method, module or formula."""
    expression: str
    first: str | None = None
    """An expression that is stored in ``{h}`` before."""
    module: str | None = None
    """What the attribute ``self.{name}`` is made of."""


METHODS = (
    *("relu", "sigmoid", "tanh", "softmax", "log_softmax", "logsumexp", "clamp", "abs", "exp", "log", "sqrt", "rsqrt"),
    *("sum", "mean", "amax", "amin", "argmax", "argmin", "prod", "cumsum", "cumprod", "flip", "pow", "square", "neg"),
    "matmul",
)
"""Functions of torch that are methods of a tensor with the same arguments."""

MODULES = {
    "relu": "ReLU",
    "relu6": "ReLU6",
    "leaky_relu": "LeakyReLU",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "gelu": "GELU",
    "silu": "SiLU",
    "selu": "SELU",
    "celu": "CELU",
    "elu": "ELU",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "mish": "Mish",
    "hardtanh": "Hardtanh",
    "hardswish": "Hardswish",
    "hardsigmoid": "Hardsigmoid",
    "logsigmoid": "LogSigmoid",
    "tanhshrink": "Tanhshrink",
    "softshrink": "Softshrink",
    "hardshrink": "Hardshrink",
    "softmax": "Softmax",
    "log_softmax": "LogSoftmax",
    "max_pool1d": "MaxPool1d",
    "max_pool2d": "MaxPool2d",
    "max_pool3d": "MaxPool3d",
    "avg_pool1d": "AvgPool1d",
    "avg_pool2d": "AvgPool2d",
    "avg_pool3d": "AvgPool3d",
    "mse_loss": "MSELoss",
    "smooth_l1_loss": "SmoothL1Loss",
    "l1_loss": "L1Loss",
    "cross_entropy": "CrossEntropyLoss",
    "cosine_similarity": "CosineSimilarity",
    "kl_div": "KLDivLoss",
    "huber_loss": "HuberLoss",
}
"""Function -> class of torch.nn with the same further arguments."""

ARGUMENTS = {
    "Linear": ("in_features", "out_features", "bias"),
    **dict.fromkeys(
        ("Conv1d", "Conv2d", "Conv3d"),
        ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias"),
    ),
    **dict.fromkeys(
        ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        ("in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding", "groups", "bias"),
    ),
    "LayerNorm": ("normalized_shape", "eps"),
    "RMSNorm": ("normalized_shape", "eps"),
    "GroupNorm": ("num_groups", "num_channels", "eps"),
    **dict.fromkeys(
        (f"{kind}Norm{n}d" for kind in ("Batch", "Instance") for n in (1, 2, 3)), ("num_features", "eps", "momentum")
    ),
    **dict.fromkeys(
        (f"{kind}Pool{n}d" for kind in ("Max", "Avg") for n in (1, 2, 3)), ("kernel_size", "stride", "padding")
    ),
    "LeakyReLU": ("negative_slope",),
    "ELU": ("alpha",),
    "Hardtanh": ("min_val", "max_val"),
    "Softmax": ("dim",),
    "LogSoftmax": ("dim",),
    "Dropout": ("p",),
}
"""Names of the positional arguments of the classes of torch.nn."""

_CONV_DEFAULTS = (("stride", "1"), ("padding", "0"), ("dilation", "1"), ("groups", "1"), ("bias", "True"))
DEFAULTS = {
    "Linear": (("bias", "True"),),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), _CONV_DEFAULTS),
    **dict.fromkeys((f"{kind}Pool{n}d" for kind in ("Max", "Avg") for n in (1, 2, 3)), (("padding", "0"),)),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d"), (("padding", "0"), ("dilation", "1"))),
    **dict.fromkeys(("LayerNorm", "GroupNorm"), (("eps", "1e-5"),)),
}
"""Keyword arguments that may be written out with the value they have anyway."""

_FORMULAS: dict[str, tuple[tuple[str, str | None], ...]] = {
    "relu": (
        ("F.relu({x})", None),
        ("torch.clamp({x}, min=0)", None),
        ("torch.maximum({x}, torch.zeros_like({x}))", None),
    ),
    "leaky_relu": (
        ("torch.where({x} > 0, {x}, {slope} * {x})", None),
        ("F.leaky_relu({x}, {slope})", None),
        ("torch.maximum({x}, {slope} * {x})", None),
    ),
    "sigmoid": (("1 / (1 + torch.exp(-{x}))", None), ("F.sigmoid({x})", None)),
    "tanh": (("F.tanh({x})", None),),
    "gelu": (("0.5 * {x} * (1.0 + torch.erf({x} / math.sqrt(2.0)))", None),),
    "silu": (
        ("{x} * torch.sigmoid({x})", None),
        ("torch.sigmoid({x}) * {x}", None),
        ("{x} * {h}", "torch.sigmoid({x})"),
        ("{x} * {x}.sigmoid()", None),
    ),
    "softplus": (("torch.log1p(torch.exp(-torch.abs({x}))) + torch.relu({x})", None),),
    "elu": (("F.elu({x}, {alpha})", None), ("F.elu({x}, alpha={alpha})", None)),
    "hardtanh": (
        ("torch.clamp({x}, min={min}, max={max})", None),
        ("torch.clamp({x}, {min}, {max})", None),
        ("F.hardtanh({x}, {min}, {max})", None),
    ),
    "hardswish": (
        ("{x} * torch.clamp({x} + 3, 0, 6) / 6", None),
        ("{x} * F.relu6({x} + 3) / 6", None),
        ("{x} * F.hardsigmoid({x})", None),
    ),
    "softsign": (
        ("{x} / (1 + torch.abs({x}))", None),
        ("{x} / (1 + {x}.abs())", None),
        ("{x} / {h}", "1 + torch.abs({x})"),
    ),
    "mish": (
        ("{x} * torch.tanh(F.softplus({x}))", None),
        ("torch.tanh(F.softplus({x})) * {x}", None),
        ("{x} * torch.tanh({h})", "F.softplus({x})"),
    ),
    "scale": (("{c} * {x}", None), ("torch.mul({x}, {c})", None), ("{x}.mul({c})", None)),
    "add_scalar": (("{c} + {x}", None), ("torch.add({x}, {c})", None)),
    "clamp": (
        ("torch.clamp({x}, {min}, {max})", None),
        ("{x}.clamp(min={min}, max={max})", None),
        ("{x}.clamp({min}, {max})", None),
    ),
    "add_input": (("torch.add({x}, {second})", None), ("{second} + {x}", None)),
    "mul_input": (("torch.mul({x}, {second})", None), ("{second} * {x}", None)),
    "softmax": (
        ("F.softmax({x}, dim={dim})", None),
        ("F.softmax({x}, {dim})", None),
        ("{h} / {h}.sum(dim={dim}, keepdim=True)", "torch.exp({x} - torch.amax({x}, dim={dim}, keepdim=True))"),
    ),
    "log_softmax": (
        ("F.log_softmax({x}, dim={dim})", None),
        ("{x} - torch.logsumexp({x}, dim={dim}, keepdim=True)", None),
    ),
    "rms_norm": (
        ("{x} / {h}", "torch.sqrt(torch.mean({x} ** 2, dim=-1, keepdim=True) + {eps})"),
        ("{x} * {h}", "torch.rsqrt({x}.pow(2).mean(dim=-1, keepdim=True) + {eps})"),
        ("{x} / torch.sqrt(torch.mean({x} * {x}, dim=-1, keepdim=True) + {eps})", None),
    ),
    "l2_norm": (
        ("{x} / {h}", "torch.norm({x}, p=2, dim={dim}, keepdim=True)"),
        ("{x} / {x}.norm(dim={dim}, keepdim=True)", None),
        ("F.normalize({x}, dim={dim}, eps=0.0)", None),
        ("{x} / {h}", "torch.sqrt(torch.sum({x} ** 2, dim={dim}, keepdim=True))"),
    ),
    "sum_dim": (("{x}.sum({dim})", None), ("torch.sum({x}, {dim})", None)),
    "mean_dim": (("{x}.mean({dim})", None), ("torch.mean({x}, {dim})", None)),
    "max_dim": (
        ("torch.max({x}, dim={dim})[0]", None),
        ("torch.max({x}, dim={dim}).values", None),
        ("{x}.max(dim={dim})[0]", None),
    ),
    "argmax": (("torch.argmax({x}, {dim})", None), ("torch.max({x}, dim={dim})[1]", None)),
    "global_avg_pool": (
        ("{x}.mean(dim=(2, 3))", None),
        ("{x}.mean(dim=[2, 3])", None),
        ("torch.mean({x}, dim=[2, 3])", None),
        ("F.adaptive_avg_pool2d({x}, 1).flatten(1)", None),
        ("{x}.mean(-1).mean(-1)", None),
    ),
    "cumsum": (("torch.cumsum({x}, {dim})", None),),
    "reverse_cumsum": (
        ("torch.flip(torch.cumsum(torch.flip({x}, [{dim}]), dim={dim}), [{dim}])", None),
        ("torch.cumsum({h}, dim={dim}).flip({dim})", "{x}.flip({dim})"),
    ),
    "matmul": (("{x} @ {second}", None), ("torch.mm({x}, {second})", None)),
    "matmul_batched": (("torch.bmm({x}, {second})", None), ("{x} @ {second}", None)),
    "matmul_transposed_b": (
        ("{x} @ {second}.T", None),
        ("torch.matmul({x}, {second}.t())", None),
        ("torch.matmul({x}, {second}.transpose(0, 1))", None),
        ("F.linear({x}, {second})", None),
    ),
    "matvec": (("{x} @ {second}", None), ("torch.mv({x}, {second})", None)),
    "mse_loss": (
        ("torch.mean(({x} - {second}) ** 2)", None),
        ("(({x} - {second}) ** 2).mean()", None),
        ("torch.mean({h} * {h})", "{x} - {second}"),
    ),
    "hinge_loss": (
        ("torch.mean(torch.clamp(1 - {x} * {second}, min=0))", None),
        ("torch.relu(1 - {x} * {second}).mean()", None),
    ),
    "cosine_similarity": (("F.cosine_similarity({x}, {second}, dim=1)", None),),
}
"""By operator: expressions, each with what is stored in ``{h}`` before."""

_MODULE_OF = {
    "global_avg_pool": ("nn.AdaptiveAvgPool2d((1, 1))", "self.{name}({x}).flatten(1)"),
}
"""Modules that need more than a call."""

_CALL = re.compile(r"(torch|F)\.(\w+)\(\{x\}((?:, [^()]*)?)\)")
_LOSS_ARGUMENT = "{second}"


@lru_cache(maxsize=1024)
def spellings(name: str, rank: int) -> tuple[Spelling, ...]:
    """Every way to write the operator on a tensor of this rank, the inventory's own first."""
    own = OPERATORS[name].expression
    found = [Spelling("own", own)]
    found += [Spelling("formula", text, first) for text, first in _FORMULAS.get(name, ())]
    if match := _CALL.fullmatch(own):
        found += _derived(match[1], match[2], match[3].removeprefix(", "))
    if name in _MODULE_OF:
        module, text = _MODULE_OF[name]
        found.append(Spelling("module", text, module=module))
    if name == "instance_norm":
        found.append(
            Spelling("module", "self.{name}({x})", module=f"nn.InstanceNorm{rank - 2}d({{channels}}, eps={{eps}})")
        )
    for spelling in tuple(found):
        if "F." in spelling.expression + (spelling.first or ""):
            for prefix in ("torch.nn.functional.", "nn.functional."):
                first = spelling.first and spelling.first.replace("F.", prefix)
                found.append(Spelling("functional", spelling.expression.replace("F.", prefix), first))
    return tuple(dict.fromkeys(found))


def _derived(room: str, function: str, rest: str) -> list[Spelling]:
    """A method or a module in place of a function of ``{x}``."""
    found = []
    if room == "torch" and function in METHODS:
        found.append(Spelling("method", f"{{x}}.{function}({rest})"))
    if function in MODULES:
        second = _LOSS_ARGUMENT if rest.startswith(_LOSS_ARGUMENT) else ""
        further = rest.removeprefix(_LOSS_ARGUMENT).removeprefix(", ")
        if "{x}" not in further and _LOSS_ARGUMENT not in further:
            call = f"self.{{name}}({{x}}{', ' + second if second else ''})"
            found.append(Spelling("module", call, module=f"nn.{MODULES[function]}({further})"))
    return found
