"""Pooling and convolutions, transposed ones too, of one to three dimensions."""

from __future__ import annotations

from kevin.tasks.operators import constructors
from kevin.tasks.operators.base import (
    Attrs,
    Operator,
    Shape,
    adaptively_pooled,
    axis_text,
    convolved,
    per_axis,
    pooled,
    transposed,
)

_WINDOW: dict[str, int | float] = {"kernel": 2, "stride": 2}
_CONV: dict[str, int | float] = {"kernel": 3, "stride": 1, "padding": 0}
_CALL = "self.{name}({x})"
_POOL = "F.{name}({x}, {kernel}, stride={stride})"


def _pool_text(x: Shape, attrs: Attrs) -> str:
    axes = max(len(x) - 2, 1)
    kernel, stride = axis_text(attrs, "kernel", axes), axis_text(attrs, "stride", axes)
    options = f", padding={axis_text(attrs, 'padding', axes)}" if "padding" in attrs or "padding_0" in attrs else ""
    options += f", dilation={int(attrs['dilation'])}" if "dilation" in attrs else ""
    return f"F.{{name}}({{x}}, {kernel}, stride={stride}{options})"


def _pool(kind: str, axes: int) -> Operator:
    optional = ("padding", *per_axis("kernel", "stride", "padding"), *(("dilation",) if kind == "max" else ()))
    ranks = (2, 3) if axes == 1 else (axes + 2,)
    return Operator(f"{kind}_pool{axes}d", "pool", _POOL, _WINDOW, ranks, pooled, optional=optional, write=_pool_text)


def _adaptive_text(x: Shape, attrs: Attrs) -> str:
    return f"F.adaptive_avg_pool{len(x) - 2}d({{x}}, {{size}})"


_CONV_OPTIONS = ("dilation", "groups", "bias", "out", *per_axis("kernel", "stride", "padding", "dilation"))
_DEPTHWISE_OPTIONS = tuple(name for name in _CONV_OPTIONS if name not in ("groups", "out"))
_TRANSPOSED_OPTIONS = (*_CONV_OPTIONS, "output_padding", *per_axis("output_padding"))


def windows() -> list[Operator]:
    adaptive = "F.adaptive_avg_pool2d({x}, {size})"
    return [
        *(_pool(kind, axes) for axes in (1, 2, 3) for kind in ("max", "avg")),
        Operator(
            "adaptive_avg_pool",
            "pool",
            adaptive,
            {"size": 1},
            (3, 4, 5),
            adaptively_pooled,
            write=_adaptive_text,
        ),
        *(_conv(f"conv{axes}d", axes) for axes in (1, 2, 3)),
        _conv("conv2d_pointwise", 2, kernel=1),
        Operator(
            "depthwise_conv2d",
            "contract",
            _CALL,
            _CONV,
            (4,),
            pooled,
            constructor=constructors.conv("depthwise_conv2d", True),
            optional=_DEPTHWISE_OPTIONS,
        ),
        *(
            Operator(
                f"conv_transpose{axes}d",
                "contract",
                _CALL,
                _CONV,
                (axes + 2,),
                transposed,
                constructor=constructors.conv_transpose,
                optional=_TRANSPOSED_OPTIONS,
            )
            for axes in (1, 2, 3)
        ),
    ]


def _conv(name: str, axes: int, kernel: int = 3) -> Operator:
    return Operator(
        name,
        "contract",
        _CALL,
        {**_CONV, "kernel": kernel},
        (axes + 2,),
        convolved,
        constructor=constructors.conv(name),
        optional=_CONV_OPTIONS,
    )
