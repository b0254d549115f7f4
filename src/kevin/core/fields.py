"""What the fields of a record say of themselves, and the records inside of them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The string under each field of a model's source, on one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for field, following in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and field.target.id in model.model_fields
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            docs[field.target.id] = " ".join(following.value.value.split()).replace("``", "`")
    return docs


def models_in(annotation: Any) -> Iterator[tuple[type[BaseModel], bool]]:
    """Models inside an annotation; True for those that stand under keys of the user's choice."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, False
    for arg in get_args(annotation):
        for model, _ in models_in(arg):
            yield model, get_origin(annotation) is dict
