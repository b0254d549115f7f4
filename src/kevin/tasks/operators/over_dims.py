"""Operators over dimensions: normalisations, reductions, running sums, losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kevin.tasks.operators import constructors
from kevin.tasks.operators.base import Attrs, Operator, Shape, reduced_dims, without_dims

_DIM: dict[str, int | float] = {"dim": -1}
_EPS: dict[str, int | float] = {"eps": 1e-5}
_RANKS = (2, 3, 4, 5)


def _reduction(function: str) -> Callable[[Shape, Attrs], str]:
    """Text of a reduction over one dimension or several, with or without ``keepdim``."""

    def write(x: Shape, attrs: Attrs) -> str:
        first, num = reduced_dims(x, attrs)
        dims = f"({', '.join(str(first + i) for i in range(num))})" if num > 1 else "{dim}"
        return f"torch.{function}({{x}}, dim={dims}{', keepdim=True' if attrs.get('keepdim') else ''})"

    return write


def _reductions() -> list[Operator]:
    many, one = ("num_dims", "keepdim"), ("keepdim",)
    table = (
        ("sum_dim", "sum", many),
        ("mean_dim", "mean", many),
        ("max_dim", "amax", many),
        ("min_dim", "amin", many),
        ("logsumexp", "logsumexp", many),
        ("prod_dim", "prod", one),
        ("argmax", "argmax", one),
        ("argmin", "argmin", one),
    )
    return [
        Operator(
            name,
            "reduce",
            f"torch.{function}({{x}}, dim={{dim}})",
            _DIM,
            _RANKS,
            without_dims,
            out_dtype="int64" if name.startswith("arg") else "float32",
            first_sample="1.0 + 0.1 * torch.randn({shape})" if name == "prod_dim" else "torch.randn({shape})",
            optional=optional,
            write=_reduction(function),
        )
        for name, function, optional in table
    ]


def _scans() -> list[Operator]:
    near_one = "1.0 + 0.01 * torch.randn({shape})"
    reverse = "torch.cumsum({x}.flip({dim}), dim={dim}).flip({dim})"
    exclusive = (
        "torch.cat((torch.zeros_like({x}.narrow({dim}, 0, 1)), "
        "torch.cumsum({x}.narrow({dim}, 0, {x}.size({dim}) - 1), dim={dim})), dim={dim})"
    )
    return [
        Operator("cumsum", "scan", "torch.cumsum({x}, dim={dim})", _DIM, _RANKS),
        Operator("reverse_cumsum", "scan", reverse, _DIM, _RANKS),
        Operator("exclusive_cumsum", "scan", exclusive, _DIM, _RANKS),
        Operator("cumprod", "scan", "torch.cumprod({x}, dim={dim})", _DIM, _RANKS, first_sample=near_one),
        Operator(
            "masked_cumsum",
            "scan",
            "torch.cumsum({x} * {second}, dim={dim})",
            _DIM,
            _RANKS,
            second=lambda x, out: ("mask", x),
            second_sample="torch.randint(0, 2, ({shape})).bool()",
            second_dtype="bool",
        ),
    ]


def _norms() -> list[Operator]:
    norm = "self.{name}({x})"
    plain = "F.layer_norm({x}, {x}.shape[-1:], eps={eps})"
    return [
        Operator("softmax", "row", "torch.softmax({x}, dim={dim})", _DIM, _RANKS),
        Operator("log_softmax", "row", "torch.log_softmax({x}, dim={dim})", _DIM, _RANKS),
        Operator("spatial_softmax", "row", "torch.softmax({x}.flatten(2), dim=2).view({x}.shape)", {}, (3, 4, 5)),
        Operator("layer_norm", "row", norm, {**_EPS, "num_dims": 1}, _RANKS, constructor=constructors.layer_norm),
        Operator("row_norm", "row", plain, _EPS, _RANKS),
        Operator("rms_norm", "row", "F.rms_norm({x}, {x}.shape[-1:], eps={eps})", _EPS, _RANKS),
        Operator(
            "rms_norm_dim",
            "row",
            "{x} / torch.sqrt(torch.mean({x} ** 2, dim={dim}, keepdim=True) + {eps})",
            {**_EPS, "dim": 1},
            _RANKS,
        ),
        Operator("l2_norm", "row", "{x} / torch.norm({x}, dim={dim}, keepdim=True)", _DIM, _RANKS),
        Operator("l1_norm", "row", "{x} / torch.mean(torch.abs({x}), dim={dim}, keepdim=True)", _DIM, _RANKS),
        Operator("frobenius_norm", "norm", "{x} / torch.norm({x})", {}, _RANKS),
        Operator("group_norm", "norm", norm, {"groups": 8, **_EPS}, _RANKS, constructor=constructors.group_norm),
        Operator("instance_norm", "norm", "F.instance_norm({x}, eps={eps})", _EPS, (3, 4, 5)),
        Operator("batch_norm", "norm", norm, _EPS, _RANKS, constructor=constructors.batch_norm, optional=("track",)),
    ]


def over_dims() -> list[Operator]:
    return [
        *_norms(),
        *_reductions(),
        Operator("global_avg_pool", "reduce", "torch.mean({x}, dim=(2, 3))", {}, (4,), lambda x, a, s: x[:2]),
        *_scans(),
    ]


_SCALED = "torch.randn({shape}) * (torch.rand(1) + 1.0)"
"""Else the expected loss alone would pass as the result."""
_SIGNS = "torch.randint(0, 2, ({shape})) * 2.0 - 1.0"
_HINGE = "torch.mean(torch.clamp(1.0 - {x} * {second}, min=0.0))"


def _target(x: Shape, out: Shape) -> tuple[str, Shape]:
    return "target", x


def losses() -> list[Operator]:
    """Of two matrices one number, or one a row."""
    loss = partial(Operator, kind="loss", ranks=(2,), result=lambda x, attrs, sizes: ())
    return [
        loss("mse_loss", expression="F.mse_loss({x}, {second})", second=_target, first_sample=_SCALED),
        loss("smooth_l1_loss", expression="F.smooth_l1_loss({x}, {second})", second=_target, first_sample=_SCALED),
        loss("hinge_loss", expression=_HINGE, second=_target, second_sample=_SIGNS, first_sample=_SCALED),
        loss(
            "hinge_loss_shared",
            expression=_HINGE,
            second=lambda x, out: ("target", x[-1:]),
            second_sample=_SIGNS.replace("({shape})", "({shape},)"),
            first_sample=_SCALED,
        ),
        loss(
            "cross_entropy",
            expression="F.cross_entropy({x}, {second})",
            second=lambda x, out: ("target", x[:1]),
            second_sample="torch.randint(0, {last}, ({shape},))",
            second_dtype="int64",
        ),
        loss(
            "cosine_similarity",
            expression="F.cosine_similarity({x}, {second}, dim=-1)",
            result=lambda x, attrs, sizes: x[:-1],
            second=lambda x, out: ("y", x),
        ),
        loss(
            "kl_div",
            expression="F.kl_div(torch.log({x}), {second}, reduction='batchmean')",
            second=_target,
            second_sample="torch.softmax(torch.randn({shape}), dim=-1)",
            first_sample="torch.softmax(torch.randn({shape}) * (torch.rand(1) + 1.0), dim=-1)",
        ),
        loss(
            "triplet_loss",
            expression="F.triplet_margin_loss({x}, {second}, {third}, margin={margin})",
            attrs={"margin": 1.0},
            second=lambda x, out: ("positive", x),
            third="negative",
            first_sample=_SCALED,
        ),
    ]
