"""Work on disk that goes on where it stopped: only what began with the same settings, and nothing is overwritten."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kevin.core.config.removed import as_now
from kevin.core.errors import DataError
from kevin.core.texts import strict_json

STEP_VERSIONS = {
    "tasks": 1,
    "base_model": 3,
    "past": 1,
    "random_model": 1,
    "rollout": 2,
    "ceiling": 1,
    "train": 1,
    "attacks": 1,
    "judge_errors": 2,
    "audit": 1,
}
"""Of each expensive step of a study; raised when its code would make something else of the same settings."""
_SHOWN_CHARS = 40
_DIGEST = re.compile("[0-9a-f]{64}")


def read_identity(path: Path) -> Any:
    """What the work beside ``path`` depends on, as written when it began. Raises DataError for a damaged file."""
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as e:
        raise DataError(f"{path}: damaged ({e}); start anew: rm -r {path.parent}") from None


def with_defaults(old: Any, defaults: Mapping[str, Any]) -> Any:
    """Settings that an older file does not know in a section that it has, at their defaults: with these everything is
    as it was before them. Those that there are no more are left out where they say what is always so now.
    """
    if not isinstance(old, dict):
        return old
    sections = {name: old[name] for name in old.keys() & {*defaults, "judge"}}
    old = {**old, **as_now(sections)}
    return {section: _filled(value, defaults.get(section)) for section, value in old.items()}


def _filled(old: Any, defaults: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(defaults, dict)):
        return old
    return {**defaults, **{key: _filled(value, defaults.get(key)) for key, value in old.items()}}


def differences(old: Any, new: Any, key: str = "") -> Iterator[str]:
    """One line for each dotted key whose value is another, with both values; of digests only that they differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for k in sorted(old.keys() | new.keys()):
            yield from differences(old.get(k), new.get(k), f"{key}.{k}" if key else k)
    elif old == new:
        return
    elif any(isinstance(v, str) and _DIGEST.fullmatch(v) for v in (old, new)):
        what = "is new" if old is None else "is gone" if new is None else "its content has changed"
        yield f"{key}: {what}"
    else:
        yield f"{key}: was {_short(old)}, is {_short(new)}"


def _short(value: Any) -> str:
    """Both ends: paths often differ in the last part."""
    text = "absent" if value is None else strict_json(value, ensure_ascii=False)
    half = _SHOWN_CHARS // 2
    return text if len(text) <= _SHOWN_CHARS else f"{text[:half]}...{text[-half:]}"


def set_aside(path: Path) -> Path:
    """Rename a file or folder to the first free of ``<name>.old-1``, ``<name>.old-2``, ...; a file's ending stays."""
    ending = path.suffix if path.is_file() else ""
    names = (path.with_name(f"{path.name.removesuffix(ending)}.old-{i}{ending}") for i in itertools.count(1))
    aside = next(p for p in names if not p.exists())
    path.rename(aside)
    return aside
