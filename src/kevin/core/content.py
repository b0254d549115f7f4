"""Files by what is in them: digests that a touched or copied file keeps and an edited one does not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

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
