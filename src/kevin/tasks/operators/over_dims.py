"""Normalisations, softmax, reductions and scans."""

from __future__ import annotations

from collections.abc import Callable

from kevin.tasks.operators import constructors
from kevin.tasks.operators.base import Attrs, Operator, Shape
from kevin.tasks.operators.shapes import reduced_dims, without_dims

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
