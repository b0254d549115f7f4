"""What pydantic has against given values, in a line that begins with the key."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Section = TypeVar("Section", bound=BaseModel)


def problem(error: ErrorDetails, *within: str) -> str:
    """``train.num_turns: Input should be ...``; the text alone where it is about no key. ``within``: the keys above."""
    if error["type"] == "extra_forbidden":
        what = "unknown key"
    elif error["type"] == "value_error":
        what = str(error["ctx"]["error"])
    else:
        what = error["msg"]
    key = ".".join(map(str, (*within, *error["loc"])))
    return f"{key}: {what}" if key else what


def valid(section: type[Section], values: dict[str, Any], *within: str) -> Section:
    """A section of these values. Raises ValueError that names the first wrong key, below the keys ``within``."""
    try:
        return section.model_validate(values)
    except ValidationError as e:
        raise ValueError(problem(e.errors()[0], *within)) from None
