"""What an operator is: its text in PyTorch, its attributes, what it does to shapes. No torch is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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


def along(attrs: Attrs, name: str, axis: int, default: int = 0) -> int:
    """An attribute along one spatial axis; what is said of that axis goes before what is said of all."""
    return int(attrs.get(f"{name}_{axis}", attrs.get(name, default)))


def axis_text(attrs: Attrs, name: str, num_axes: int, default: int = 0) -> str:
    """The attribute as source text: one number, or a tuple where the axes differ."""
    if not any(f"{name}_{axis}" in attrs for axis in AXES):
        return str(int(attrs.get(name, default)))
    return f"({', '.join(str(along(attrs, name, axis, default)) for axis in range(num_axes))})"
