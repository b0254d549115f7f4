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
    "leaky_relu": "LeakyReLU",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "gelu": "GELU",
    "silu": "SiLU",
    "selu": "SELU",
    "elu": "ELU",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "mish": "Mish",
    "hardtanh": "Hardtanh",
    "hardswish": "Hardswish",
    "hardsigmoid": "Hardsigmoid",
    "softmax": "Softmax",
    "log_softmax": "LogSoftmax",
    "mse_loss": "MSELoss",
    "smooth_l1_loss": "SmoothL1Loss",
    "cross_entropy": "CrossEntropyLoss",
    "cosine_similarity": "CosineSimilarity",
    "kl_div": "KLDivLoss",
    "triplet_margin_loss": "TripletMarginLoss",
    **{f"max_pool{n}d": f"MaxPool{n}d" for n in (1, 2, 3)},
    **{f"avg_pool{n}d": f"AvgPool{n}d" for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": f"AdaptiveAvgPool{n}d" for n in (1, 2, 3)},
}
"""Function -> class of torch.nn with the same further arguments."""

_CONVS = ("Conv1d", "Conv2d", "Conv3d")
_TRANSPOSED = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
_POOLS = ("MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d")
_BATCH_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
_NORMS = (*_BATCH_NORMS, "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")

ARGUMENTS = {
    "Linear": ("in_features", "out_features", "bias"),
    **dict.fromkeys(
        _CONVS, ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias")
    ),
    **dict.fromkeys(
        _TRANSPOSED,
        ("in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding", "groups", "bias"),
    ),
    "LayerNorm": ("normalized_shape", "eps"),
    "RMSNorm": ("normalized_shape", "eps"),
    "GroupNorm": ("num_groups", "num_channels", "eps"),
    **dict.fromkeys(_NORMS, ("num_features", "eps", "momentum")),
    **dict.fromkeys(_POOLS, ("kernel_size", "stride", "padding")),
    "LeakyReLU": ("negative_slope",),
    "ELU": ("alpha",),
    "Hardtanh": ("min_val", "max_val"),
    "Softmax": ("dim",),
    "LogSoftmax": ("dim",),
    "Dropout": ("p",),
}
"""Names of the positional arguments of the classes of torch.nn."""

DEFAULTS = {
    "Linear": (("bias", "True"),),
    **dict.fromkeys(_CONVS, (("stride", "1"), ("padding", "0"), ("dilation", "1"), ("groups", "1"), ("bias", "True"))),
    **dict.fromkeys(
        _TRANSPOSED, (("stride", "1"), ("padding", "0"), ("output_padding", "0"), ("groups", "1"), ("bias", "True"))
    ),
    **dict.fromkeys(_POOLS, (("padding", "0"),)),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d"), (("padding", "0"), ("dilation", "1"))),
    **dict.fromkeys(_BATCH_NORMS, (("momentum", "0.1"),)),
}
"""Keyword arguments that may be written out with the value they have anyway."""

LEFT_OUT = {
    **{(kind, "eps"): "1e-5" for kind in (*_NORMS, "LayerNorm", "GroupNorm")},
    ("LeakyReLU", "negative_slope"): "0.01",
    ("ELU", "alpha"): "1.0",
    ("Hardtanh", "min_val"): "-1.0",
    ("Hardtanh", "max_val"): "1.0",
    ("TripletMarginLoss", "margin"): "1.0",
}
"""By class and keyword: values that need not be written."""

_FORMULAS: dict[str, tuple[str, ...]] = {
    "relu": ("F.relu({x})", "torch.clamp({x}, min=0)", "torch.maximum({x}, torch.zeros_like({x}))"),
    "leaky_relu": (
        "torch.where({x} > 0, {x}, {slope} * {x})",
        "F.leaky_relu({x}, {slope})",
        "torch.maximum({x}, {slope} * {x})",
    ),
    "sigmoid": ("1 / (1 + torch.exp(-{x}))", "F.sigmoid({x})"),
    "tanh": ("F.tanh({x})",),
    "gelu": ("0.5 * {x} * (1.0 + torch.erf({x} / math.sqrt(2.0)))",),
    "silu": (
        "{x} * torch.sigmoid({x})",
        "torch.sigmoid({x}) * {x}",
        "{h} = torch.sigmoid({x}); {x} * {h}",
        "{x} * {x}.sigmoid()",
    ),
    "softplus": ("torch.log1p(torch.exp(-torch.abs({x}))) + torch.relu({x})",),
    "elu": ("F.elu({x}, {alpha})", "F.elu({x}, alpha={alpha})"),
    "hardtanh": (
        "torch.clamp({x}, min={min}, max={max})",
        "torch.clamp({x}, {min}, {max})",
        "F.hardtanh({x}, {min}, {max})",
    ),
    "hardswish": (
        "{x} * torch.clamp({x} + 3, 0, 6) / 6",
        "{x} * F.relu6({x} + 3) / 6",
        "{x} * F.hardsigmoid({x})",
        "{x} * torch.clamp({x} / 6 + 0.5, 0, 1)",
    ),
    "softsign": ("{x} / (1 + torch.abs({x}))", "{x} / (1 + {x}.abs())", "{h} = 1 + torch.abs({x}); {x} / {h}"),
    "mish": (
        "{x} * torch.tanh(F.softplus({x}))",
        "torch.tanh(F.softplus({x})) * {x}",
        "{h} = F.softplus({x}); {x} * torch.tanh({h})",
        "torch.multiply(torch.tanh(F.softplus({x})), {x})",
    ),
    "scale": ("{c} * {x}", "torch.mul({x}, {c})", "{x}.mul({c})"),
    "add_scalar": ("{c} + {x}", "torch.add({x}, {c})"),
    "clamp": ("torch.clamp({x}, {min}, {max})", "{x}.clamp(min={min}, max={max})", "{x}.clamp({min}, {max})"),
    "add_input": ("torch.add({x}, {second})", "{second} + {x}"),
    "mul_input": ("torch.mul({x}, {second})", "{second} * {x}"),
    "softmax": (
        "F.softmax({x}, dim={dim})",
        "F.softmax({x}, {dim})",
        "{h} = torch.exp({x} - torch.amax({x}, dim={dim}, keepdim=True)); {h} / {h}.sum(dim={dim}, keepdim=True)",
    ),
    "log_softmax": ("F.log_softmax({x}, dim={dim})", "{x} - torch.logsumexp({x}, dim={dim}, keepdim=True)"),
    "rms_norm": (
        "{h} = torch.sqrt(torch.mean({x} ** 2, dim=-1, keepdim=True) + {eps}); {x} / {h}",
        "{h} = torch.rsqrt({x}.pow(2).mean(dim=-1, keepdim=True) + {eps}); {x} * {h}",
        "{x} / torch.sqrt(torch.mean({x} * {x}, dim=-1, keepdim=True) + {eps})",
    ),
    "l2_norm": (
        "{h} = torch.norm({x}, p=2, dim={dim}, keepdim=True); {x} / {h}",
        "{x} / {x}.norm(dim={dim}, keepdim=True)",
        "F.normalize({x}, dim={dim}, eps=0.0)",
        "{h} = torch.sqrt(torch.sum({x} ** 2, dim={dim}, keepdim=True)); {x} / {h}",
    ),
    "sum_dim": ("{x}.sum({dim})", "torch.sum({x}, {dim})"),
    "mean_dim": ("{x}.mean({dim})", "torch.mean({x}, {dim})"),
    "max_dim": ("{x}.max(dim={dim})[0]", "{x}.max({dim}).values"),
    "min_dim": ("{x}.min(dim={dim})[0]", "{x}.min({dim}).values"),
    "argmax": ("torch.argmax({x}, {dim})", "torch.max({x}, dim={dim})[1]"),
    "global_avg_pool": (
        "{x}.mean(dim=(2, 3))",
        "{x}.mean(dim=[2, 3])",
        "torch.mean({x}, dim=[2, 3])",
        "F.adaptive_avg_pool2d({x}, 1).flatten(1)",
        "{x}.mean(-1).mean(-1)",
    ),
    "cumsum": ("torch.cumsum({x}, {dim})",),
    "reverse_cumsum": (
        "torch.flip(torch.cumsum(torch.flip({x}, [{dim}]), dim={dim}), [{dim}])",
        "{h} = {x}.flip({dim}); torch.cumsum({h}, dim={dim}).flip({dim})",
    ),
    "matmul": ("{x} @ {second}", "torch.mm({x}, {second})", "torch.einsum('ij,jk->ik', {x}, {second})"),
    "matmul_batched": ("torch.bmm({x}, {second})", "{x} @ {second}"),
    "matmul_transposed_b": (
        "{x} @ {second}.T",
        "torch.matmul({x}, {second}.t())",
        "torch.matmul({x}, {second}.transpose(0, 1))",
        "F.linear({x}, {second})",
    ),
    "matvec": ("{x} @ {second}", "torch.mv({x}, {second})"),
    "mse_loss": (
        "torch.mean(({x} - {second}) ** 2)",
        "(({x} - {second}) ** 2).mean()",
        "{h} = {x} - {second}; torch.mean({h} * {h})",
    ),
    "hinge_loss": ("torch.mean(torch.clamp(1 - {x} * {second}, min=0))", "torch.relu(1 - {x} * {second}).mean()"),
    "new_gelu": (
        "F.gelu({x}, approximate='tanh')",
        "0.5 * {x} * (1 + torch.tanh(math.sqrt(2 / math.pi) * ({x} + 0.044715 * {x} ** 3)))",
        "{h} = math.sqrt(2.0 / math.pi) * ({x} + 0.044715 * {x}.pow(3)); 0.5 * {x} * (1.0 + torch.tanh({h}))",
    ),
    "selu": ("F.selu({x})",),
    "hardsigmoid": ("torch.clamp({x} / 6 + 0.5, 0, 1)", "F.relu6({x} + 3) / 6"),
    "abs": ("{x}.abs()",),
    "square": ("{x} ** 2", "{x} * {x}", "{x}.pow(2)", "torch.pow({x}, 2)"),
    "sub_scalar": ("torch.sub({x}, {c})", "{x}.sub({c})"),
    "div_scalar": ("torch.div({x}, {c})", "{x}.div({c})"),
    "clamp_min": ("{x}.clamp(min={min})", "torch.clamp_min({x}, {min})"),
    "min_scalar": (
        "torch.min({x}, torch.tensor({c}, device={x}.device))",
        "torch.clamp({x}, max={c})",
        "{x}.clamp(max={c})",
    ),
    "max_scalar": ("torch.clamp({x}, min={c})", "{x}.clamp(min={c})"),
    "add_residual": ("{residual} + {x}", "torch.add({x}, {residual})"),
    "mul_residual": ("{residual} * {x}", "torch.mul({x}, {residual})"),
    "matmul_shared": ("{x} @ {second}", "torch.einsum('...ij,jk->...ik', {x}, {second})"),
    "matmul_symmetric": ("{x} @ {second}", "torch.mm({x}, {second})"),
    "matmul_transposed_a": ("{x}.T @ {second}", "torch.matmul({x}.t(), {second})"),
    "matmul_transposed": ("{x}.T @ {second}.T", "torch.matmul({x}.t(), {second}.t())"),
    "matmul_upper_triangular": ("torch.triu({x} @ {second})", "torch.matmul({x}, {second}).triu()"),
    "matmul_lower_triangular": ("torch.tril({x} @ {second})", "torch.matmul({x}, {second}).tril()"),
    "matmul_diagonal": ("torch.diag({x}) @ {second}", "{x}[:, None] * {second}"),
    "matmul_weight": ("{x} @ self.{name}.T", "F.linear({x}, self.{name})"),
    "rms_norm_dim": (
        "{h} = torch.sqrt(torch.mean({x} ** 2, dim={dim}, keepdim=True) + {eps}); {x} / {h}",
        "{x} * torch.rsqrt({x}.pow(2).mean(dim={dim}, keepdim=True) + {eps})",
    ),
    "l1_norm": (
        "{h} = torch.mean(torch.abs({x}), dim={dim}, keepdim=True); {x} / {h}",
        "{x} / {x}.abs().mean(dim={dim}, keepdim=True)",
    ),
    "frobenius_norm": ("{h} = torch.norm({x}, p='fro'); {x} / {h}", "{x} / {x}.norm()"),
    "exclusive_cumsum": ("torch.cumsum({x}, dim={dim}) - {x}", "{x}.cumsum(dim={dim}) - {x}"),
    "masked_cumsum": ("({x} * {second}).cumsum(dim={dim})", "torch.cumsum({second} * {x}, {dim})"),
    "kl_div": (
        "F.kl_div({x}.log(), {second}, reduction='batchmean')",
        "{h} = torch.log({x}); F.kl_div({h}, {second}, reduction='batchmean')",
    ),
    "cosine_similarity": ("F.cosine_similarity({x}, {second}, dim=1)",),
}
"""By operator: expressions, some behind what is stored in ``{h}`` before."""

_MODULES = {
    "global_avg_pool": ("self.{name}({x}).flatten(1)", "nn.AdaptiveAvgPool2d((1, 1))"),
    "instance_norm": ("self.{name}({x})", "nn.InstanceNorm{axes}d({channels}, eps={eps})"),
    "kl_div": ("self.{name}(torch.log({x}), {second})", "nn.KLDivLoss(reduction='batchmean')"),
}
"""By operator: a call, and the module that is called."""

_EINSUM_LETTERS = (("abij", "k", "l"), ("nhwd", "c", "e"), ("bsth", "d", "m"))
"""Of the dimensions that stay, as many as there are; of the one that is summed over; of the new one."""

_CALL = re.compile(r"(torch|F)\.(\w+)\(\{x\}((?:, (?:[^()]|\([^()]*\))*)?)\)")
_POOL = re.compile(r"(F\.\w+_pool1d)\(\{x\}(.*)\)")
_DIMS = re.compile(r"dim=\((\d[\d, ]*)\)")
_TOP = re.compile(r"torch\.a(max|min)\(\{x\}, dim=\{dim\}(.*)\)")


@lru_cache(maxsize=4096)
def spellings(name: str, own: str, rank: int) -> tuple[Spelling, ...]:
    """Every way to write the operator on a tensor of this rank, its own first.

    Args:
        own: its expression for these attributes: what stands in the table is right for the plain one only.
    """
    found = [Spelling("own", own)]
    if own == OPERATORS[name].expression.replace("F.{name}(", f"F.{name}("):
        for formula in _FORMULAS.get(name, ()):
            helper, _, text = formula.rpartition("; ")
            found.append(Spelling("formula", text, helper.removeprefix("{h} = ") or None))
        if name in _MODULES:
            text, module = _MODULES[name]
            found.append(Spelling("module", text, module=module.replace("{axes}", str(rank - 2))))
    if match := _CALL.fullmatch(own):
        found += _derived(match[1], match[2], match[3].removeprefix(", "))
    if match := _TOP.fullmatch(own):
        call = f"torch.{match[1]}({{x}}, dim={{dim}}{match[2]})"
        found += [Spelling("formula", f"{call}{value}") for value in ("[0]", ".values")]
    if own.startswith("torch.m") and "imum({x}, self." in own:
        found.append(Spelling("formula", own.replace("imum(", "(", 1)))
    if name == "matmul_shared":
        found += [
            Spelling("formula", f"torch.einsum('{a}{k},{k}{n}->{a}{n}', {{x}}, {{second}})")
            for letters, k, n in _EINSUM_LETTERS
            for a in (letters[: rank - 1],)
        ]
    if rank == 2 and (match := _POOL.fullmatch(own)):
        found.append(Spelling("formula", f"{match[1]}({{x}}.unsqueeze(1){match[2]}).squeeze(1)"))
    for spelling in tuple(found):
        if listed := _DIMS.sub(r"dim=[\1]", spelling.expression):
            found.append(spelling._replace(expression=listed))
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
        others = [part for part in ("{second}", "{third}") if part in rest]
        further = rest
        for part in others:
            further = further.removeprefix(part).removeprefix(", ")
        if "{x}" not in further and "{second}" not in further:
            call = f"self.{{name}}({', '.join(['{x}', *others])})"
            found.append(Spelling("module", call, module=f"nn.{MODULES[function]}({further})"))
            if function.startswith("adaptive"):
                sizes = ", ".join(["{size}"] * int(function[-2]))
                found.append(Spelling("module", call, module=f"nn.{MODULES[function]}(({sizes}))"))
    return found
