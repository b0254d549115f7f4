"""What an operator is: its text in PyTorch, its attributes, what it does to shapes. No torch is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kevin.core.errors import TaskError
from kevin.core.types import DType

Kind = Literal["elementwise", "second", "residual", "row", "norm", "reduce", "scan", "pool", "contract", "loss"]
"""elementwise: each element by itself (with a parameter at most). second: elementwise with a second input.
residual: elementwise with an earlier result, broadcast against it. row: over the last dimension (or several last
ones), shape kept. norm: per channel or group, shape kept. reduce: one dimension (or several) goes away. scan: running
sums. pool: windows. contract: matrix products and convolutions. loss: inputs to one number or one per row."""

Attrs = Mapping[str, int | float]
Sizes = Mapping[str, int]


class Dim(NamedTuple):
    """A dimension: the name of the module-level constant that holds it, and its size."""

    name: str
    """A dimension of size one that nothing names is called ``1``."""
    size: int


Shape = tuple[Dim, ...]

ONE = Dim("1", 1)

NAMES_BY_RANK = {
    1: ("dim",),
    2: ("batch_size", "dim"),
    3: ("batch_size", "channels", "length"),
    4: ("batch_size", "channels", "height", "width"),
    5: ("batch_size", "channels", "depth", "height", "width"),
}
"""What the dimensions of a tensor are usually called."""


class Constructor(NamedTuple):
    """What stands in ``__init__`` for an operator with parameters: ``self.<attribute> = <text>``."""

    attribute: str
    text: str
    sizes: tuple[str, ...]
    """Names of the sizes that ``text`` uses: arguments of ``__init__``."""
    parameters: tuple[tuple[str, Shape], ...]
    is_parameter: bool = False
    """The attribute is a parameter itself; PyTorch lists those before the ones of submodules."""
    buffers: tuple[tuple[str, Shape], ...] = ()
    """Running statistics: PyTorch lists them after all parameters."""


Result = Callable[[Shape, Attrs, Sizes], Shape]
Second = Callable[[Shape, Shape], tuple[str, Shape]]
Making = Callable[[Shape, Shape, Attrs], Constructor]


@dataclass(frozen=True)
class Operator:
    """How an operator is written in PyTorch and what it does to shapes."""

    name: str
    kind: Kind
    expression: str
    """``{x}`` is the result so far, ``{second}`` the second input, attributes by their names."""
    attrs: dict[str, int | float] = field(default_factory=dict)
    ranks: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    """Ranks of ``x`` that are accepted."""
    result: Result = lambda x, attrs, sizes: x
    second: Second | None = None
    """(x, result) -> usual name and shape of the second input."""
    second_sample: str = "torch.randn({shape})"
    """How the second input is drawn; ``{last}`` is the name of the last dimension of ``x``."""
    second_dtype: DType = "float32"
    constructor: Making | None = None
    """(x, result, attrs) -> what stands in ``__init__``."""
    out_dtype: DType = "float32"
    first_sample: str = "torch.randn({shape})"
    """How ``x`` is drawn when this operator comes first."""
    optional: tuple[str, ...] = ()
    """Attributes that may be given and have no default of their own, e.g. the size of a kernel along one axis."""
    write: Callable[[Shape, Attrs], str] | None = None
    """(x, attrs) -> the expression, where optional attributes or the rank change it."""
    third: str | None = None
    """Name of a third input; it is drawn, and shaped, as the second."""


def names_of(dims: Shape) -> str:
    """The names as source text, separated by commas."""
    return ", ".join(d.name for d in dims)


AXES = (0, 1, 2)


def per_axis(*names: str) -> tuple[str, ...]:
    """Optional attributes that say ``names`` axis by axis: ``kernel_0`` is the first spatial dimension's."""
    return tuple(f"{name}_{axis}" for name in names for axis in AXES)


class Window(NamedTuple):
    """How the window of a pool or a convolution lies along one axis."""

    kernel: int = 0
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    output_padding: int = 0

    @property
    def extent(self) -> int:
        """From its first tap to its last, both counted."""
        return self.dilation * (self.kernel - 1) + 1


def along(attrs: Attrs, axis: int) -> Window:
    """The window along one spatial axis; what is said of that axis goes before what is said of all."""
    plain = Window()._asdict()
    return Window(**{name: int(attrs.get(f"{name}_{axis}", attrs.get(name, plain[name]))) for name in plain})


def axis_text(attrs: Attrs, name: str, num_axes: int) -> str:
    """An attribute of a window as source text: one number, or a tuple where the axes differ."""
    texts = [str(getattr(along(attrs, axis), name)) for axis in range(num_axes)]
    return f"({', '.join(texts)})" if any(f"{name}_{axis}" in attrs for axis in AXES) else texts[0]


_SPATIAL = {1: ("out_length",), 2: ("out_height", "out_width"), 3: ("out_depth", "out_height", "out_width")}


def to_last(size: str) -> Result:
    """The last dimension becomes ``size``; an attribute ``out`` says another number for a later layer."""
    return lambda x, attrs, sizes: (*x[:-1], _out(size, attrs, sizes))


def _out(size: str, attrs: Attrs, sizes: Sizes) -> Dim:
    return Dim(f"{size}_2", int(attrs["out"])) if "out" in attrs else Dim(size, sizes[size])


def reduced_dims(x: Shape, attrs: Attrs) -> tuple[int, int]:
    """The dimensions that a reduction takes away: first and number."""
    return int(attrs["dim"]) % len(x), int(attrs.get("num_dims", 1))


def without_dims(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    first, num = reduced_dims(x, attrs)
    kept = (ONE,) * num if attrs.get("keepdim") else ()
    return (*x[:first], *kept, *x[first + num :])


def _named(dims: Shape, sizes: list[int]) -> Shape:
    """Spatial dimensions with new sizes: those that changed get a new name. Raises TaskError where nothing is left."""
    if min(sizes) < 1:
        raise TaskError(f"a window does not fit into {[d.size for d in dims]}; use a smaller kernel or a larger input")
    return tuple(
        d if d.size == n else Dim(f"{name}_2" if d.name == name else name, n)
        for d, name, n in zip(dims, _SPATIAL[len(dims)], sizes, strict=True)
    )


def _split(x: Shape) -> tuple[Shape, Shape]:
    """Batch and channels, then spatial dimensions; a matrix is rows of signals."""
    return (x[:1], x[1:]) if len(x) == 2 else (x[:2], x[2:])


def window(x: Shape, attrs: Attrs) -> Shape:
    """Spatial dimensions after a window moved over them."""
    dims = _split(x)[1]
    windows = [along(attrs, axis) for axis in range(len(dims))]
    sizes = [(d.size + 2 * w.padding - w.extent) // w.stride + 1 for d, w in zip(dims, windows, strict=True)]
    return _named(dims, sizes)


def pooled(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    return (*_split(x)[0], *window(x, attrs))


def adaptively_pooled(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    size = int(attrs["size"])
    dims = x[2:]
    return (*x[:2], *((ONE,) * len(dims) if size == 1 else _named(dims, [size] * len(dims))))


def convolved(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    return (x[0], _out("out_channels", attrs, sizes), *window(x, attrs))


def transposed(x: Shape, attrs: Attrs, sizes: Sizes) -> Shape:
    """After a transposed convolution."""
    dims = []
    for axis, d in enumerate(x[2:]):
        w = along(attrs, axis)
        dims.append((d.size - 1) * w.stride - 2 * w.padding + w.extent + w.output_padding)
    return (x[0], _out("out_channels", attrs, sizes), *_named(x[2:], dims))


def broadcast(x: Shape, other: Shape) -> Shape:
    """Shape of an element-wise operator on two tensors that fit each other."""
    rank = max(len(x), len(other))
    pairs = zip((ONE,) * (rank - len(x)) + x, (ONE,) * (rank - len(other)) + other, strict=True)
    return tuple(b if a.size == 1 and b.size != 1 else a for a, b in pairs)
