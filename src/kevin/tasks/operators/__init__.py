"""The inventory of operators: text in PyTorch, attributes, what each does to shapes. No torch is needed."""

from __future__ import annotations

from kevin.tasks.operators.base import (
    NAMES_BY_RANK,
    Attrs,
    Constructor,
    Dim,
    Kind,
    Operator,
    Shape,
    Sizes,
    along,
    names_of,
)
from kevin.tasks.operators.elementwise import elementwise
from kevin.tasks.operators.over_dims import losses, over_dims
from kevin.tasks.operators.products import products, windows

__all__ = [
    "NAMES_BY_RANK",
    "OPERATORS",
    "Attrs",
    "Constructor",
    "Dim",
    "Kind",
    "Operator",
    "Shape",
    "Sizes",
    "along",
    "names_of",
]

OPERATORS: dict[str, Operator] = {
    op.name: op for op in (*products(), *losses(), *elementwise(), *over_dims(), *windows())
}
"""Every operator by its name."""
