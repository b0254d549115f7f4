"""Names for sizes in a kernel of several stages: ``N0, C0, H0, W0`` of the input, then ``C1, H1, W1``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kevin.tasks.operators import Attrs, along
from kevin.tasks.ops import Step

_LETTERS = {0: "", 1: "N", 2: "NC", 3: "NCL", 4: "NCHW", 5: "NCDHW"}


@dataclass(frozen=True)
class Dims:
    """A tensor's dimensions: C names and sizes."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def total(self) -> str:
        return product(self.names)

    @property
    def num(self) -> int:
        return prod(self.sizes)

    def part(self, start: int, end: int | None = None) -> Dims:
        """Some of them, from ``start`` to before ``end``."""
        return Dims(self.names[start:end], self.sizes[start:end])

    def after(self, axis: int) -> str:
        """Number of elements from one index of a dimension to the next."""
        return product(self.names[axis + 1 :])

    def coordinate(self, axis: int, i: str = "i") -> str:
        """Index along one dimension of the element at flat index ``i``."""
        if self.sizes[axis] == 1:
            return "0"
        stride = self.after(axis)
        text = i if stride == "1" else f"{i} / {wrapped(stride)}"
        return text if not any(s > 1 for s in self.sizes[:axis]) else f"{text} % {self.names[axis]}"


def product(names: Sequence[str]) -> str:
    """Product of names, without ones."""
    return " * ".join(n for n in names if n != "1") or "1"


def wrapped(text: str) -> str:
    """In brackets where it is more than one name."""
    return f"({text})" if " " in text else text


def plus(text: str, number: int) -> str:
    if number == 0:
        return text
    return f"{text} + {number}" if number > 0 else f"{text} - {-number}"


def window_size(dim: str, attrs: Attrs, axis: int) -> str:
    """Size after a window moved over ``dim``: the formula of PyTorch's ``Conv2d``, without what is nothing.

    Every other option stands in it as the module has it: a model that learns from it need not do the sum.
    """
    kernel, stride, padding, dilation, _ = along(attrs, axis)
    if stride == 1 and 2 * padding == dilation * (kernel - 1):
        return dim
    padded = f"{dim} + 2 * {padding}" if padding else dim
    text = f"{padded} - {kernel}" if dilation == 1 else f"{padded} - {dilation} * ({kernel} - 1) - 1"
    return f"{text} + 1" if stride == 1 else f"({text}) / {stride} + 1"


def transposed_size(dim: str, attrs: Attrs, axis: int) -> str:
    """Size after a transposed convolution: the formula of PyTorch's ``ConvTranspose2d``, without what is nothing."""
    kernel, stride, padding, dilation, extra = along(attrs, axis)
    if stride == 1 and 2 * padding == dilation * (kernel - 1) + extra:
        return dim
    text = f"{dim} - 1" if stride == 1 else f"({dim} - 1) * {stride}"
    text += f" - 2 * {padding}" if padding else ""
    text += f" + {kernel}" if dilation == 1 else f" + {dilation} * ({kernel} - 1) + 1"
    return f"{text} + {extra}" if extra else text


def read_at(step: Step, axis: int, out: str, tap: str) -> str:
    """Where a window's tap reads along one axis for the result at ``out``; of a transposed one times its stride."""
    kernel, stride, padding, dilation, _ = along(step.op.attrs, axis)
    moved = "" if kernel == 1 else tap if dilation == 1 else f"{tap} * {dilation}"
    if step.op.name.startswith("conv_transpose"):
        return plus(out, padding) + (f" - {moved}" if moved else "")
    text = out if stride == 1 else f"{out} * {stride}"
    return plus(text + (f" + {moved}" if moved else ""), -padding)


class DimNames:
    """Names each new size once: ``declarations`` are pairs of a name and the expression it stands for."""

    def __init__(self, x_shape: Sequence[int]) -> None:
        self.declarations: list[tuple[str, str]] = []
        names = []
        for i, letter in enumerate(_LETTERS[len(x_shape)]):
            self.declarations.append((f"{letter}0", f"x_d{i}"))
            names.append(f"{letter}0")
        self.x = Dims(tuple(names), tuple(x_shape))
        self._num = 0

    def after(self, step: Step, x: Dims, other: Dims | None) -> Dims:
        """Dimensions of a step's result; ``other`` are those of an earlier result that it reads."""
        if step.kind in ("reduce", "residual"):
            return _kept(step, x, other)
        if step.kind not in ("contract", "pool") or not step.out_shape:
            names = x.names if step.in_shape == step.out_shape else x.names[: len(step.out_shape)]
            return Dims(names, step.out_shape)
        self._num += 1
        texts = _texts(step, x)
        letters = _LETTERS[len(step.out_shape)]
        new = []
        for letter, text, size in zip(letters, texts, step.out_shape, strict=True):
            if text not in x.names and text != "1":
                self.declarations.append((f"{letter}{self._num}", text))
                text = f"{letter}{self._num}"  # noqa: PLW2901
            new.append("1" if size == 1 and text == "1" else text)
        return Dims(tuple(new), step.out_shape)


def _kept(step: Step, x: Dims, other: Dims | None) -> Dims:
    if step.op.name == "global_avg_pool":
        return Dims(x.names[:2], step.out_shape)
    if other is not None:
        rank = len(step.out_shape)
        first = ("1",) * (rank - len(x.names)) + x.names
        second = ("1",) * (rank - len(other.names)) + other.names
        sizes = (1,) * (rank - len(x.sizes)) + x.sizes
        pairs = zip(first, second, sizes, step.out_shape, strict=True)
        return Dims(tuple(a if s == out else b for a, b, s, out in pairs), step.out_shape)
    start, num = reduced_dims_of(step)
    ones = ("1",) * num if step.op.attrs.get("keepdim") else ()
    return Dims((*x.names[:start], *ones, *x.names[start + num :]), step.out_shape)


def reduced_dims_of(step: Step) -> tuple[int, int]:
    """First and number of the dimensions that a step reduces, scans or normalises over."""
    rank = len(step.in_shape)
    match step.op.name:
        case "global_avg_pool" | "adaptive_avg_pool" | "spatial_softmax" | "instance_norm":
            return 2, rank - 2
        case "layer_norm":
            num = int(step.op.attrs["num_dims"])
            return rank - num, num
        case "row_norm" | "rms_norm":
            return rank - 1, 1
    first = int(step.op.attrs["dim"]) % rank
    return first, int(step.op.attrs.get("num_dims", 1))


def _texts(step: Step, x: Dims) -> tuple[str, ...]:
    """Expressions for the sizes of a product's, a convolution's or a pool's result."""
    name, attrs = step.op.name, step.op.attrs
    weight = step.parameters[0] if step.parameters else ""
    if step.kind == "pool":
        if name == "adaptive_avg_pool":
            return (*x.names[:2], *(str(int(attrs["size"])) for _ in x.names[2:]))
        lead = 1 if len(x.names) == 2 else 2
        return (*x.names[:lead], *(window_size(d, attrs, i) for i, d in enumerate(x.names[lead:])))
    if name.startswith("conv_transpose"):
        channels = f"{weight}_d1" + (f" * {attrs['groups']}" if attrs.get("groups", 1) > 1 else "")
        return (x.names[0], channels, *(transposed_size(d, attrs, i) for i, d in enumerate(x.names[2:])))
    if "conv" in name:
        channels = x.names[1] if name == "depthwise_conv2d" else f"{weight}_d0"
        return (x.names[0], channels, *(window_size(d, attrs, i) for i, d in enumerate(x.names[2:])))
    return _product_texts(step, x, weight)


def _product_texts(step: Step, x: Dims, weight: str) -> tuple[str, ...]:
    match step.op.name:
        case "linear" | "matmul_weight":
            return (*x.names[:-1], f"{weight}_d0")
        case "matvec":
            return x.names[:1]
        case "matmul_transposed_b":
            return (x.names[0], f"{step.second}_d0")
        case "matmul_transposed":
            return (x.names[1], f"{step.second}_d0")
        case "matmul_transposed_a":
            return (x.names[1], f"{step.second}_d1")
        case "attention_scores":
            return (*x.names[:-1], x.names[-2])
        case "attention_values":
            return (*x.names[:-1], f"{step.second}_d3")
        case "matmul_diagonal":
            return (x.names[0], f"{step.second}_d1")
        case "matmul_upper_triangular" | "matmul_lower_triangular" | "matmul_symmetric":
            return x.names
    return (*x.names[:-1], f"{step.second}_d{2 if step.op.name == 'matmul_batched' else 1}")
