"""What a caller gives, as the judge's own types: a reference's and a kernel's text, a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kevin.core.errors import UsageError

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

    from kevin.core.protocol import JudgeProtocol

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
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"judging protocol, {key}: {first['msg']} (got {first['input']!r})") from None


def read_source(path: str | PathLike[str]) -> str:
    """A file's text. Raises UsageError naming the file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: a folder, not a file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file") from None


def text_of(source: Source) -> tuple[str, str]:
    """Text and name of what is given as source text or as a path; a string of one line is a path. Raises UsageError."""
    if isinstance(source, str) and "\n" in source:
        return source, ""
    return read_source(source), str(source)


def make_task(source: str, name: str = "") -> Task:
    """A reference that was not looked into yet; ``name`` is what errors call it."""
    from kevin.core.types import Task

    title = Path(name).stem or "reference"
    return Task(id=name or title, level=1, name=title, source=source, origin="user")
