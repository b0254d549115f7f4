"""What a caller gives, as the judge's own types: a reference's and a kernel's text, a protocol."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kevin.core.candidate import check_text, refuse_file_name
from kevin.core.errors import UsageError
from kevin.core.texts import read_text

if TYPE_CHECKING:  # what they need is imported where it is used: the command line reads this module at every start
    from kevin.core.protocol import JudgeProtocol
    from kevin.core.types import Task

    Source = str | PathLike[str]


def make_protocol(
    base: JudgeProtocol | None,
    *,
    rules: str | Sequence[str] | None = None,
    tolerance: float | None = None,
    **settings: Any,
) -> JudgeProtocol:
    """A judging protocol: ``base``, or the default one, with ``settings`` that are not None in place of its fields.

    Args:
        rules: to enforce: names, in a sequence or with commas between them, ``none``, or ``default``, those that the
            study's rewards enforce. None: those of ``base``, and none where there is no ``base``, so that a person
            learns what a kernel does, and which rules it breaks from the verdict's flags.
        tolerance: both ``atol`` and ``rtol``.
        settings: ``run_timeout_s`` is one call's time as well, unless ``call_timeout_s`` is among them.

    Raises:
        UsageError: names the setting, what is wrong with it, and what was given.
    """
    from pydantic import ValidationError

    from kevin.core.fields import problem
    from kevin.core.protocol import ONLY_FLOAT32, JudgeProtocol

    if (precision := settings.pop("precision", None)) not in (None, JudgeProtocol.precision):
        raise UsageError(f"{precision} is not judged: {ONLY_FLOAT32}")
    raw = (base or JudgeProtocol(rules=())).model_dump()
    raw.update({name: value for name, value in settings.items() if value is not None})
    if settings.get("run_timeout_s") is not None and settings.get("call_timeout_s") is None:
        raw["call_timeout_s"] = raw["run_timeout_s"]
    if rules == "default":
        rules = (base or JudgeProtocol()).rules
    elif isinstance(rules, str):
        rules = () if rules == "none" else [rule.strip() for rule in rules.split(",")]
    if rules is not None:
        raw["rules"] = tuple(rules)
    if tolerance is not None:
        raw["atol"] = raw["rtol"] = tolerance
    try:
        return JudgeProtocol.model_validate(raw)
    except ValidationError as e:
        first = e.errors()[0]
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            raise UsageError(_unknown(str(first["loc"][0]), JudgeProtocol.model_fields)) from None
        says_all = first["type"] == "extra_forbidden" or isinstance(first["input"], dict)
        given = "" if says_all else f" (got {first['input']!r})"
        raise UsageError(f"judging protocol, {problem(first, section=JudgeProtocol)}{given}") from None


def _unknown(name: str, fields: Iterable[str]) -> str:
    known = [field for field in fields if field != "version"]
    near = difflib.get_close_matches(name, [*known, "tolerance", "pool", "store", "reference_timeout_s"], n=1)
    return f"no setting {name!r}; " + (f"is {near[0]} meant?" if near else f"there are {', '.join(known)}, tolerance")


def text_of(source: Source) -> tuple[str, str]:
    """Text and name of what is given as source text or as a path; a string of one line is a path. Raises UsageError."""
    if isinstance(source, str) and "\n" in source:
        refuse_file_name(source, "source")
        return source, ""
    return read_text(source), str(source)


def make_task(source: str, name: str = "") -> Task:
    """A reference that was not looked into yet; ``name`` is what errors call it. Raises UsageError for no text."""
    from kevin.core.types import Task

    title = Path(name).stem or "reference"
    return Task(id=name or title, level=1, name=title, source=check_text(source, name or title), origin="user")
