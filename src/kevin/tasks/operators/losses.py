"""Losses and similarities."""

from __future__ import annotations

from collections.abc import Callable

from kevin.tasks.operators.base import Attrs, Operator, Shape, Sizes

_SIGNS = "torch.randint(0, 2, ({shape})) * 2.0 - 1.0"
_SCALED = "torch.randn({shape}) * (torch.rand(1) + 1.0)"
"""Else the expected loss alone would pass as the result."""
_HINGE = "torch.mean(torch.clamp(1.0 - {x} * {second}, min=0.0))"


_SECOND = Callable[[Shape, Shape], tuple[str, Shape]]


def _scalar(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    return ()


def _mean(name: str, expression: str, second: _SECOND, sample: str = "torch.randn({shape})") -> Operator:
    """One number of two matrices."""
    return Operator(name, "loss", expression, {}, (2,), _scalar, second, sample, first_sample=_SCALED)


def losses() -> list[Operator]:
    target: _SECOND = lambda x, out: ("target", x)  # noqa: E731
    signs = _SIGNS.replace("({shape})", "({shape},)")
    return [
        _mean("mse_loss", "F.mse_loss({x}, {second})", target),
        _mean("smooth_l1_loss", "F.smooth_l1_loss({x}, {second})", target),
        _mean("hinge_loss", _HINGE, target, _SIGNS),
        _mean("hinge_loss_shared", _HINGE, lambda x, out: ("target", x[-1:]), signs),
        *_of_rows(),
    ]


def _of_rows() -> list[Operator]:
    """Something of each row first."""
    probabilities = "torch.softmax(torch.randn({shape}), dim=-1)"
    return [
        Operator(
            "cross_entropy",
            "loss",
            "F.cross_entropy({x}, {second})",
            {},
            (2,),
            _scalar,
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
            _scalar,
            lambda x, out: ("target", x),
            probabilities,
            first_sample="torch.softmax(torch.randn({shape}) * (torch.rand(1) + 1.0), dim=-1)",
        ),
        Operator(
            "triplet_loss",
            "loss",
            "F.triplet_margin_loss({x}, {second}, {third}, margin={margin})",
            {"margin": 1.0},
            (2,),
            _scalar,
            lambda x, out: ("positive", x),
            first_sample=_SCALED,
            third="negative",
        ),
    ]
