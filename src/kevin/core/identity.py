"""What work on disk depends on: contents of files, and settings. It goes on only where both are as when it began.

A digest is of what is in a file: a touched or copied one keeps it and an edited one does not.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kevin.core.config.layers import as_now
from kevin.core.errors import DataError
from kevin.core.texts import strict_json

_REMEMBERED_BYTES = 2**20
"""From this size on a file's digest is remembered with its size and time; smaller ones are read each time."""
CACHE = Path("~/.cache/kevin/digests.json")


def content_digests(path: Path, cache: Path = CACHE) -> dict[str, str]:
    """SHA-256 of a file, or of every file in a folder, by name relative to it; empty where there is nothing.

    Hidden files and folders are left out, and what Python compiled. Large files are read again only when their size or
    time changed: their digests are kept in ``cache``, which may be deleted, and which need not be writable.
    """
    if path.is_file():
        found = {path.name: path}
    else:
        names = {str(file.relative_to(path)): file for file in sorted(path.rglob("*")) if file.is_file()}
        found = {name: file for name, file in names.items() if not any(map(_is_hidden, Path(name).parts))}
    return _digests(found, cache)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def _digests(files: dict[str, Path], cache: Path) -> dict[str, str]:
    known: dict[str, str] | None = None
    added: dict[str, str] = {}
    digests: dict[str, str] = {}
    for name, file in files.items():
        state = file.stat()
        if state.st_size < _REMEMBERED_BYTES:
            digests[name] = _sha256(file)
            continue
        known = _read(cache) if known is None else known
        key = f"{file.resolve()} {state.st_size} {state.st_mtime_ns}"
        digests[name] = known.get(key) or added.setdefault(key, _sha256(file))
    if added:
        _remember(cache, added)
    return digests


def _sha256(file: Path) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _read(cache: Path) -> dict[str, str]:
    try:
        return dict(json.loads(cache.expanduser().read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _remember(cache: Path, added: dict[str, str]) -> None:
    """Without what was known of earlier states of the same files."""
    paths = {key.rsplit(" ", 2)[0] for key in added}
    kept = {key: value for key, value in _read(cache).items() if key.rsplit(" ", 2)[0] not in paths}
    from kevin.core.files import write_text  # here: the workflow reads this module at every start

    try:
        write_text(cache.expanduser(), strict_json(kept | added, indent=0))
    except OSError:
        return  # it only saves time


STEP_VERSIONS = {
    "tasks": 1,
    "base_model": 4,
    "past": 2,
    "random_model": 2,
    "rollout": 2,
    "ceiling": 2,
    "train": 1,
    "attacks": 1,
    "judge_errors": 2,
    "audit": 1,
}
"""Of each expensive step of a study; raised when its code would make something else of the same settings. Golden losses
and the step's number change together."""
_SHOWN_CHARS = 40
_DIGEST = re.compile("[0-9a-f]{64}")


def read_identity(path: Path) -> Any:
    """What the work beside ``path`` depends on, as written when it began. Raises DataError for a damaged file."""
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as e:
        raise DataError(f"{path}: damaged ({e}); start anew: rm -r {path.parent}") from None


def write_identity(path: Path, identity: Any) -> None:
    from kevin.core.files import write_text

    write_text(path, strict_json(identity, indent=1, sort_keys=True) + "\n")


def changes(path: Path, wanted: Any, defaults: Mapping[str, Any]) -> list[str]:
    """In what the identity at ``path`` differs from what is wanted now, a line each; as `with_defaults`."""
    plain = json.loads(strict_json(wanted))
    return list(differences(with_defaults(read_identity(path), defaults), plain))


def refused(folder: Path, what: str, found: Sequence[str]) -> DataError:
    """The error where ``folder`` holds begun work that is not what is wanted; ``found``: as of `changes`."""
    return DataError(
        f"{folder} holds {what} of something else:\n"
        + "\n".join(f"  {change}" for change in found)
        + f"\nGo back to the old configuration to go on with it, or start anew: rm -r {folder}"
    )


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
