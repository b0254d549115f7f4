"""Losses and similarities."""

from __future__ import annotations

from collections.abc import Callable

from kevin.tasks.operators.base import Attrs, Operator, Shape, Sizes

_SIGNS = "torch.randint(0, 2, ({shape})) * 2.0 - 1.0"
_SCALED = "torch.randn({shape}) * (torch.rand(1) + 1.0)"
"""Else the expected loss alone would pass as the result."""
_HINGE = "torch.mean(torch.clamp(1.0 - {x} * {second}, min=0.0))"


def losses() -> list[Operator]:
    scalar: Callable[[Shape, Attrs, Sizes], Shape] = lambda x, attrs, sizes: ()  # noqa: E731
    target: Callable[[Shape, Shape], tuple[str, Shape]] = lambda x, out: ("target", x)  # noqa: E731
    probabilities = "torch.softmax(torch.randn({shape}), dim=-1)"
    triplet = "F.triplet_margin_loss({x}, {second}, {third}, margin={margin})"
    return [
        Operator("mse_loss", "loss", "F.mse_loss({x}, {second})", {}, (2,), scalar, target, first_sample=_SCALED),
        Operator(
            "smooth_l1_loss",
            "loss",
            "F.smooth_l1_loss({x}, {second})",
            {},
            (2,),
            scalar,
            target,
            first_sample=_SCALED,
        ),
        Operator("hinge_loss", "loss", _HINGE, {}, (2,), scalar, target, _SIGNS, first_sample=_SCALED),
        Operator(
            "hinge_loss_shared",
            "loss",
            _HINGE,
            {},
            (2,),
            scalar,
            lambda x, out: ("target", x[-1:]),
            "torch.randint(0, 2, ({shape},)) * 2.0 - 1.0",
            first_sample=_SCALED,
        ),
        Operator(
            "cross_entropy",
            "loss",
            "F.cross_entropy({x}, {second})",
            {},
            (2,),
            scalar,
            lambda x, out: ("target", x[:1]),
            "torch.randint(0, {last}, ({shape},))",
            "int64",
        ),
        Operator(
            "cosine_similarity",
            "loss",
            "F.cosine_similarity({x}, {second}, dim=-1)",
            {},
            (2,),
            lambda x, a, s: x[:-1],
            lambda x, out: ("y", x),
        ),
        Operator(
            "kl_div",
            "loss",
            "F.kl_div(torch.log({x}), {second}, reduction='batchmean')",
            {},
            (2,),
            scalar,
            target,
            probabilities,
            first_sample="torch.softmax(torch.randn({shape}) * (torch.rand(1) + 1.0), dim=-1)",
        ),
        Operator(
            "triplet_loss",
            "loss",
            triplet,
            {"margin": 1.0},
            (2,),
            scalar,
            lambda x, out: ("positive", x),
            first_sample=_SCALED,
            third="negative",
        ),
    ]
