"""What the fields of a record say of themselves, and what pydantic has against given values."""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails


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


Section = TypeVar("Section", bound=BaseModel)


def problem(error: ErrorDetails, *within: str, section: type[BaseModel] | None = None) -> str:
    """``train.num_turns: Input should be ...``; the text alone where it is about no key.

    Args:
        within: the keys above.
        section: what was validated, whose keys are offered for one that it does not know.
    """
    if error["type"] == "extra_forbidden":
        near = _nearest(section, error["loc"]) if section else None
        what = f"unknown key; is {near} meant?" if near else "unknown key"
    elif error["type"] == "value_error":
        what = str(error["ctx"]["error"])
    else:
        what = error["msg"]
        if error["type"] == "string_type" and not isinstance(error["input"], list | dict):
            what += f", and {error['input']!r} is none: a text that looks like it stands in quotes"
    key = ".".join(map(str, (*within, *error["loc"])))
    return f"{key}: {what}" if key else what


def _nearest(section: type[BaseModel], loc: Sequence[int | str]) -> str | None:
    """The key beside the unknown one at ``loc`` that is spelt most like it."""
    *above, name = map(str, loc)
    keys = iter(above)
    for key in keys:
        field = section.model_fields.get(key)
        found = list(models_in(field.annotation)) if field else []
        if len(found) != 1:
            return None
        section, is_named = found[0]
        if is_named:
            next(keys, None)
    return next(iter(difflib.get_close_matches(name, section.model_fields, n=1, cutoff=0.7)), None)


def valid(section: type[Section], values: dict[str, Any], *within: str) -> Section:
    """A section of these values. Raises ValueError that names the first wrong key, below the keys ``within``."""
    try:
        return section.model_validate(values)
    except ValidationError as e:
        raise ValueError(problem(e.errors()[0], *within, section=section)) from None
