"""The inventory of operators: text in PyTorch, attributes, what each does to shapes. No torch is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kevin.core.types import DType

Kind = Literal["elementwise", "second", "row", "norm", "reduce", "scan", "pool", "contract", "loss"]
"""elementwise: each element by itself (with a parameter at most). second: elementwise with a second input.
row: over the last dimension (or several last ones), shape kept. norm: per channel or group, shape kept.
reduce: one dimension (or the picture) goes away. scan: running sums. pool: windows.
contract: matrix products and convolutions. loss: two inputs to one number or one per row."""

Attrs = Mapping[str, int | float]
Sizes = Mapping[str, int]


class Dim(NamedTuple):
    """A dimension: the name of the module-level constant that holds it, and its size."""

    name: str
    size: int


Shape = tuple[Dim, ...]


class Constructor(NamedTuple):
    """What stands in ``__init__`` for an operator with parameters: ``self.<attribute> = <text>``."""

    attribute: str
    text: str
    sizes: tuple[str, ...]
    """Names of the sizes that ``text`` uses: arguments of ``__init__``."""
    parameters: tuple[tuple[str, Shape], ...]
    is_parameter: bool = False
    """The attribute is a parameter itself; PyTorch lists those before the ones of submodules."""


@dataclass(frozen=True)
class Operator:
    """How an operator is written in PyTorch and what it does to shapes."""

    name: str
    kind: Kind
    expression: str
    """``{x}`` is the result so far, ``{second}`` the second input, attributes by their names."""
    attrs: dict[str, int | float] = field(default_factory=dict)
    ranks: tuple[int, ...] = (1, 2, 3, 4)
    """Ranks of ``x`` that are accepted."""
    result: Callable[[Shape, Attrs, Sizes], Shape] = lambda x, attrs, sizes: x
    second: Callable[[Shape, Shape], tuple[str, Shape]] | None = None
    """(x, result) -> usual name and shape of the second input."""
    second_sample: str = "torch.randn({shape})"
    """How the second input is drawn; ``{last}`` is the name of the last dimension of ``x``."""
    second_dtype: DType = "float32"
    constructor: Callable[[Shape, Shape, Attrs], Constructor] | None = None
    """(x, result, attrs) -> what stands in ``__init__``."""
    out_dtype: DType = "float32"
    first_sample: str = "torch.randn({shape})"
    """How ``x`` is drawn when this operator comes first."""


def names_of(dims: Shape) -> str:
    """The names as source text, separated by commas."""
    return ", ".join(d.name for d in dims)


# --- shapes -------------------------------------------------------------------------------------------------


def _to_last(size: str) -> Callable[[Shape, Attrs, Sizes], Shape]:
    """The last dimension becomes ``size``."""
    return lambda x, attrs, sizes: (*x[:-1], Dim(size, sizes[size]))


def _without_dim(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    dim = int(attrs["dim"]) % len(x)
    return x[:dim] + x[dim + 1 :]


def _window(x: Shape, attrs: Attrs) -> Shape:
    """Spatial dimensions after a window moved over them."""
    names = ("out_length",) if len(x) == 3 else ("out_height", "out_width")
    kernel, stride, padding = int(attrs["kernel"]), int(attrs["stride"]), int(attrs.get("padding", 0))
    sizes = [(d.size + 2 * padding - kernel) // stride + 1 for d in x[2:]]
    return tuple(
        d if d.size == n else Dim(f"{name}_2" if d.name == name else name, n)
        for d, name, n in zip(x[2:], names, sizes, strict=True)
    )


def _pooled(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    return (*x[:2], *_window(x, attrs))


def _convolved(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    return (x[0], Dim("out_channels", sizes["out_channels"]), *_window(x, attrs))


# --- constructors -------------------------------------------------------------------------------------------


def _weight_and_bias(name: str, text: str, dims: Shape, weight: Shape, bias: Shape) -> Constructor:
    parameters = ((f"{name}_weight", weight), (f"{name}_bias", bias))
    return Constructor(name, text, tuple(dict.fromkeys(d.name for d in dims)), parameters)


def _linear(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    dims = (x[-1], out[-1])
    return _weight_and_bias("linear", f"nn.Linear({names_of(dims)})", dims, (out[-1], x[-1]), (out[-1],))


def _conv(name: str, grouped: bool = False) -> Callable[[Shape, Shape, Attrs], Constructor]:
    def make(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
        dims = (x[1], out[1])
        options = "".join(f", {k}={attrs[k]}" for k in ("stride", "padding") if attrs[k] != int(k == "stride"))
        groups = f", groups={x[1].name}" if grouped else ""
        text = f"nn.Conv{len(x) - 2}d({names_of(dims)}, {attrs['kernel']}{options}{groups})"
        kernel = (Dim("kernel", int(attrs["kernel"])),) * (len(x) - 2)
        inner = Dim("one", 1) if grouped else x[1]
        return _weight_and_bias(name, text, dims, (out[1], inner, *kernel), (out[1],))

    return make


def _layer_norm(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    dims = x[-int(attrs["num_dims"]) :]
    shape = names_of(dims) if len(dims) == 1 else f"({names_of(dims)})"
    return _weight_and_bias("layer_norm", f"nn.LayerNorm({shape}, eps={attrs['eps']})", dims, dims, dims)


def _channel_norm(name: str, text: str) -> Callable[[Shape, Shape, Attrs], Constructor]:
    def make(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
        return _weight_and_bias(name, text.format(channels=x[1].name, **attrs), (x[1],), (x[1],), (x[1],))

    return make


def _bias(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    shape = (x[1], *(Dim("1", 1) for _ in x[2:]))
    return Constructor("bias", f"nn.Parameter(torch.randn({names_of(shape)}))", (x[1].name,), (("bias", shape),), True)


# --- the inventory ------------------------------------------------------------------------------------------


def _elementwise() -> list[Operator]:
    table: list[tuple[str, str, dict[str, int | float]]] = [
        ("relu", "torch.relu({x})", {}),
        ("leaky_relu", "F.leaky_relu({x}, negative_slope={slope})", {"slope": 0.01}),
        ("sigmoid", "torch.sigmoid({x})", {}),
        ("tanh", "torch.tanh({x})", {}),
        ("gelu", "F.gelu({x})", {}),
        ("silu", "F.silu({x})", {}),
        ("softplus", "F.softplus({x})", {}),
        ("elu", "F.elu({x}, alpha={alpha})", {"alpha": 1.0}),
        ("hardtanh", "F.hardtanh({x}, min_val={min}, max_val={max})", {"min": -1.0, "max": 1.0}),
        ("hardswish", "F.hardswish({x})", {}),
        ("softsign", "F.softsign({x})", {}),
        ("mish", "F.mish({x})", {}),
        ("scale", "{x} * {c}", {"c": 2.0}),
        ("add_scalar", "{x} + {c}", {"c": 0.5}),
        ("clamp", "torch.clamp({x}, min={min}, max={max})", {"min": -0.5, "max": 0.5}),
    ]
    return [
        *(Operator(name, "elementwise", text, attrs) for name, text, attrs in table),
        Operator("bias_add", "elementwise", "{x} + self.bias", ranks=(2, 3, 4), constructor=_bias),
        Operator("add_input", "second", "{x} + {second}", second=lambda x, out: ("y", x)),
        Operator("mul_input", "second", "{x} * {second}", second=lambda x, out: ("y", x)),
    ]


def _over_dims() -> list[Operator]:
    dim: dict[str, int | float] = {"dim": -1}
    eps: dict[str, int | float] = {"eps": 1e-5}
    ranks = (2, 3, 4)
    norm = "self.{name}({x})"
    group_norm = _channel_norm("group_norm", "nn.GroupNorm({groups}, {channels}, eps={eps})")
    batch_norm = _channel_norm("batch_norm", "nn.BatchNorm2d({channels}, eps={eps}, track_running_stats=False)")
    reverse = "torch.cumsum({x}.flip({dim}), dim={dim}).flip({dim})"
    return [
        Operator("softmax", "row", "torch.softmax({x}, dim={dim})", dim, ranks),
        Operator("log_softmax", "row", "torch.log_softmax({x}, dim={dim})", dim, ranks),
        Operator("layer_norm", "row", norm, {**eps, "num_dims": 1}, ranks, constructor=_layer_norm),
        Operator("rms_norm", "row", "F.rms_norm({x}, {x}.shape[-1:], eps={eps})", eps, ranks),
        Operator("l2_norm", "row", "{x} / torch.norm({x}, dim={dim}, keepdim=True)", dim, ranks),
        Operator("group_norm", "norm", norm, {"groups": 8, **eps}, (3, 4), constructor=group_norm),
        Operator("instance_norm", "norm", "F.instance_norm({x}, eps={eps})", eps, (3, 4)),
        Operator("batch_norm", "norm", norm, eps, (4,), constructor=batch_norm),
        Operator("sum_dim", "reduce", "torch.sum({x}, dim={dim})", dim, ranks, _without_dim),
        Operator("mean_dim", "reduce", "torch.mean({x}, dim={dim})", dim, ranks, _without_dim),
        Operator("max_dim", "reduce", "torch.amax({x}, dim={dim})", dim, ranks, _without_dim),
        Operator("argmax", "reduce", "torch.argmax({x}, dim={dim})", dim, ranks, _without_dim, out_dtype="int64"),
        Operator("global_avg_pool", "reduce", "torch.mean({x}, dim=(2, 3))", {}, (4,), lambda x, a, s: x[:2]),
        Operator("cumsum", "scan", "torch.cumsum({x}, dim={dim})", dim, ranks),
        Operator("reverse_cumsum", "scan", reverse, dim, ranks),
    ]


def _windows() -> list[Operator]:
    window: dict[str, int | float] = {"kernel": 2, "stride": 2}
    conv: dict[str, int | float] = {"kernel": 3, "stride": 1, "padding": 0}
    pool = "F.{name}({x}, {kernel}, stride={stride})"
    call = "self.{name}({x})"
    return [
        *(Operator(f"{kind}_pool1d", "pool", pool, window, (3,), _pooled) for kind in ("max", "avg")),
        *(Operator(f"{kind}_pool2d", "pool", pool, window, (4,), _pooled) for kind in ("max", "avg")),
        Operator("conv1d", "contract", call, conv, (3,), _convolved, constructor=_conv("conv1d")),
        Operator("conv2d", "contract", call, conv, (4,), _convolved, constructor=_conv("conv2d")),
        Operator(
            "depthwise_conv2d",
            "contract",
            call,
            conv,
            (4,),
            _pooled,
            constructor=_conv("depthwise_conv2d", True),
        ),
        Operator(
            "conv2d_pointwise",
            "contract",
            call,
            {**conv, "kernel": 1},
            (4,),
            _convolved,
            constructor=_conv("conv2d_pointwise"),
        ),
    ]


def _products_and_losses() -> list[Operator]:
    product = "torch.matmul({x}, {second})"
    hinge = "torch.mean(torch.clamp(1.0 - {x} * {second}, min=0.0))"
    signs = "torch.randint(0, 2, ({shape})) * 2.0 - 1.0"
    scaled = "torch.randn({shape}) * (torch.rand(1) + 1.0)"  # else the expected loss alone would pass as the result
    cols = _to_last("cols")
    scalar: Callable[[Shape, Attrs, Sizes], Shape] = lambda x, attrs, sizes: ()  # noqa: E731
    target: Callable[[Shape, Shape], tuple[str, Shape]] = lambda x, out: ("target", x)  # noqa: E731
    w: Callable[[Shape, Shape], tuple[str, Shape]] = lambda x, out: ("w", (*x[:-2], x[-1], out[-1]))  # noqa: E731
    return [
        Operator("matmul", "contract", product, {}, (2,), cols, w),
        Operator("matmul_batched", "contract", product, {}, (3,), cols, w),
        Operator(
            "matmul_transposed_b",
            "contract",
            "torch.matmul({x}, {second}.T)",
            {},
            (2,),
            cols,
            lambda x, out: ("w", (out[-1], x[-1])),
        ),
        Operator("matvec", "contract", product, {}, (2,), lambda x, a, s: x[:-1], lambda x, out: ("w", x[-1:])),
        Operator("linear", "contract", "self.linear({x})", {}, (2,), _to_last("out_features"), constructor=_linear),
        Operator("mse_loss", "loss", "F.mse_loss({x}, {second})", {}, (2,), scalar, target, first_sample=scaled),
        Operator(
            "smooth_l1_loss",
            "loss",
            "F.smooth_l1_loss({x}, {second})",
            {},
            (2,),
            scalar,
            target,
            first_sample=scaled,
        ),
        Operator("hinge_loss", "loss", hinge, {}, (2,), scalar, target, signs, first_sample=scaled),
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
    ]


OPERATORS: dict[str, Operator] = {
    op.name: op for op in (*_products_and_losses(), *_elementwise(), *_over_dims(), *_windows())
}
"""Every operator by its name."""
