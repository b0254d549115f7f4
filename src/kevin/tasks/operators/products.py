"""Matrix products of every layout."""

from __future__ import annotations

from collections.abc import Callable

from kevin.tasks.operators import constructors
from kevin.tasks.operators.base import Attrs, Dim, Operator, Shape, Sizes, to_last

_PRODUCT = "torch.matmul({x}, {second})"
_cols = to_last("cols")


def _turned(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    """The first matrix is read by columns."""
    return (x[1], Dim("cols", sizes["cols"]))


def _w(x: Shape, out: Shape) -> tuple[str, Shape]:
    return "w", (*x[:-2], x[-1], out[-1])


def _two(
    name: str,
    text: str,
    second: Callable[[Shape, Shape], tuple[str, Shape]],
    *,
    ranks: tuple[int, ...] = (2,),
    result: Callable[[Shape, Attrs, Sizes], Shape] = _cols,
    first_sample: str = "torch.randn({shape})",
    second_sample: str = "torch.randn({shape})",
) -> Operator:
    return Operator(
        name,
        "contract",
        text,
        {},
        ranks,
        result,
        second,
        second_sample,
        first_sample=first_sample,
    )


def products() -> list[Operator]:
    return [*_plain(), *_with_parameters(), *_laid_out(), *_shaped(), _ATTENTION]


_ATTENTION = Operator(
    "attention",
    "contract",
    "F.scaled_dot_product_attention({x}, {second}, {third})",
    ranks=(4,),
    second=lambda x, out: ("keys", x),
    third="values",
)


def _plain() -> list[Operator]:
    return [
        _two("matmul", _PRODUCT, _w),
        _two("matmul_batched", _PRODUCT, _w, ranks=(3,)),
        _two("matvec", _PRODUCT, lambda x, out: ("w", x[-1:]), result=lambda x, a, s: x[:-1]),
        _two("matmul_shared", _PRODUCT, lambda x, out: ("w", (x[-1], out[-1])), ranks=(3, 4)),
    ]


def _with_parameters() -> list[Operator]:
    return [
        Operator(
            "linear",
            "contract",
            "self.{name}({x})",
            {},
            (2, 3, 4),
            to_last("out_features"),
            constructor=constructors.linear,
            optional=("bias", "out"),
        ),
        Operator(
            "matmul_weight",
            "contract",
            "torch.matmul({x}, self.{name}.T)",
            {},
            (2, 3),
            to_last("out_features"),
            constructor=constructors.weight,
        ),
    ]


def _laid_out() -> list[Operator]:
    """Either matrix read by columns."""
    turned_w: Callable[[Shape, Shape], tuple[str, Shape]] = lambda x, out: ("w", (out[-1], x[-1]))  # noqa: E731
    both: Callable[[Shape, Shape], tuple[str, Shape]] = lambda x, out: ("w", (out[-1], x[0]))  # noqa: E731
    return [
        _two("matmul_transposed_b", "torch.matmul({x}, {second}.T)", turned_w),
        _two(
            "matmul_transposed_a",
            "torch.matmul({x}.T, {second})",
            lambda x, out: ("w", (x[0], out[-1])),
            result=_turned,
        ),
        _two("matmul_transposed", "torch.matmul({x}.T, {second}.T)", both, result=_turned),
    ]


def _shaped() -> list[Operator]:
    """Symmetric, triangular and diagonal matrices."""
    square: Callable[[Shape, Shape], tuple[str, Shape]] = lambda x, out: ("w", x)  # noqa: E731
    same: Callable[[Shape, Attrs, Sizes], Shape] = lambda x, attrs, sizes: x  # noqa: E731
    symmetric = "(lambda a: (a + a.T) / 2)(torch.randn({shape}))"
    return [
        _two("matmul_symmetric", _PRODUCT, square, result=same, first_sample=symmetric, second_sample=symmetric),
        *(
            _two(
                f"matmul_{side}_triangular",
                f"torch.{cut}(torch.matmul({{x}}, {{second}}))",
                square,
                result=same,
                first_sample=f"torch.{cut}(torch.randn({{shape}}))",
                second_sample=f"torch.{cut}(torch.randn({{shape}}))",
            )
            for side, cut in (("upper", "triu"), ("lower", "tril"))
        ),
        _two(
            "matmul_diagonal",
            "{x}.unsqueeze(1) * {second}",
            lambda x, out: ("w", out),
            ranks=(1,),
            result=lambda x, a, s: (x[0], Dim("cols", s["cols"])),
        ),
    ]
