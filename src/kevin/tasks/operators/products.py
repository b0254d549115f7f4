"""Matrix products of every layout, convolutions and pooling of one to three dimensions."""

from __future__ import annotations

from functools import partial

from kevin.tasks.operators import constructors
from kevin.tasks.operators.base import (
    Attrs,
    Dim,
    Making,
    Operator,
    Result,
    Shape,
    Sizes,
    adaptively_pooled,
    axis_text,
    convolved,
    per_axis,
    pooled,
    to_last,
    transposed,
)

_PRODUCT = "torch.matmul({x}, {second})"
_OF_MODULE = "self.{name}({x})"


def _turned(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    """The first matrix is read by columns."""
    return (x[1], Dim("cols", sizes["cols"]))


def _w(x: Shape, out: Shape) -> tuple[str, Shape]:
    return "w", (*x[:-2], x[-1], out[-1])


def _turned_w(x: Shape, out: Shape) -> tuple[str, Shape]:
    """The second matrix is read by columns."""
    return "w", (out[-1], x[-1])


_product = partial(Operator, kind="contract", expression=_PRODUCT, ranks=(2,), result=to_last("cols"))
_square = partial(Operator, kind="contract", expression=_PRODUCT, ranks=(2,), second=lambda x, out: ("w", x))
_SYMMETRIC = "(lambda a: (a + a.T) / 2)(torch.randn({shape}))"


def _triangular(side: str, cut: str) -> Operator:
    sample = f"torch.{cut}(torch.randn({{shape}}))"
    text = f"torch.{cut}({_PRODUCT})"
    return _square(f"matmul_{side}_triangular", expression=text, first_sample=sample, second_sample=sample)


def products() -> list[Operator]:
    return [
        _product("matmul", second=_w),
        _product("matmul_batched", second=_w, ranks=(3,)),
        _product("matvec", second=lambda x, out: ("w", x[-1:]), result=lambda x, attrs, sizes: x[:-1]),
        _product("matmul_shared", second=lambda x, out: ("w", (x[-1], out[-1])), ranks=(3, 4)),
        Operator(
            "linear",
            "contract",
            _OF_MODULE,
            ranks=(2, 3, 4),
            result=to_last("out_features"),
            constructor=constructors.linear,
            optional=("bias", "out"),
        ),
        Operator(
            "matmul_weight",
            "contract",
            "torch.matmul({x}, self.{name}.T)",
            ranks=(2, 3),
            result=to_last("out_features"),
            constructor=constructors.weight,
        ),
        _product("matmul_transposed_b", expression="torch.matmul({x}, {second}.T)", second=_turned_w),
        _product(
            "matmul_transposed_a",
            expression="torch.matmul({x}.T, {second})",
            second=lambda x, out: ("w", (x[0], out[-1])),
            result=_turned,
        ),
        _product(
            "matmul_transposed",
            expression="torch.matmul({x}.T, {second}.T)",
            second=lambda x, out: ("w", (out[-1], x[0])),
            result=_turned,
        ),
        _square("matmul_symmetric", first_sample=_SYMMETRIC, second_sample=_SYMMETRIC),
        _triangular("upper", "triu"),
        _triangular("lower", "tril"),
        Operator(
            "matmul_diagonal",
            "contract",
            "{x}.unsqueeze(1) * {second}",
            ranks=(1,),
            result=lambda x, attrs, sizes: (x[0], Dim("cols", sizes["cols"])),
            second=lambda x, out: ("w", out),
        ),
        Operator(
            "attention",
            "contract",
            "F.scaled_dot_product_attention({x}, {second}, {third})",
            ranks=(4,),
            second=lambda x, out: ("keys", x),
            third="values",
        ),
    ]


# --- windows ----------------------------------------------------------------------------------------------------


def _pool_text(x: Shape, attrs: Attrs) -> str:
    axes = max(len(x) - 2, 1)
    kernel, stride = axis_text(attrs, "kernel", axes), axis_text(attrs, "stride", axes)
    options = f", padding={axis_text(attrs, 'padding', axes)}" if "padding" in attrs or "padding_0" in attrs else ""
    options += f", dilation={int(attrs['dilation'])}" if "dilation" in attrs else ""
    return f"F.{{name}}({{x}}, {kernel}, stride={stride}{options})"


def _pool(kind: str, axes: int) -> Operator:
    return Operator(
        f"{kind}_pool{axes}d",
        "pool",
        "F.{name}({x}, {kernel}, stride={stride})",
        {"kernel": 2, "stride": 2},
        ranks=(2, 3) if axes == 1 else (axes + 2,),
        result=pooled,
        optional=("padding", *per_axis("kernel", "stride", "padding"), *(("dilation",) if kind == "max" else ())),
        write=_pool_text,
    )


def _adaptive_text(x: Shape, attrs: Attrs) -> str:
    return f"F.adaptive_avg_pool{len(x) - 2}d({{x}}, {{size}})"


_CONV_OPTIONS = ("dilation", "groups", "bias", "out", *per_axis("kernel", "stride", "padding", "dilation"))
_DEPTHWISE_OPTIONS = tuple(name for name in _CONV_OPTIONS if name not in ("groups", "out"))
_TRANSPOSED_OPTIONS = (*_CONV_OPTIONS, "output_padding", *per_axis("output_padding"))


def _conv(
    name: str,
    axes: int,
    *,
    kernel: int = 3,
    result: Result = convolved,
    constructor: Making | None = None,
    optional: tuple[str, ...] = _CONV_OPTIONS,
) -> Operator:
    return Operator(
        name,
        "contract",
        _OF_MODULE,
        {"kernel": kernel, "stride": 1, "padding": 0},
        (axes + 2,),
        result,
        constructor=constructor or constructors.conv(name),
        optional=optional,
    )


def windows() -> list[Operator]:
    depthwise = constructors.conv("depthwise_conv2d", grouped=True)
    return [
        *(_pool(kind, axes) for axes in (1, 2, 3) for kind in ("max", "avg")),
        Operator(
            "adaptive_avg_pool",
            "pool",
            "F.adaptive_avg_pool2d({x}, {size})",
            {"size": 1},
            (3, 4, 5),
            adaptively_pooled,
            write=_adaptive_text,
        ),
        *(_conv(f"conv{axes}d", axes) for axes in (1, 2, 3)),
        _conv("conv2d_pointwise", 2, kernel=1),
        _conv("depthwise_conv2d", 2, result=pooled, constructor=depthwise, optional=_DEPTHWISE_OPTIONS),
        *(
            _conv(
                f"conv_transpose{axes}d",
                axes,
                result=transposed,
                constructor=constructors.conv_transpose,
                optional=_TRANSPOSED_OPTIONS,
            )
            for axes in (1, 2, 3)
        ),
    ]
