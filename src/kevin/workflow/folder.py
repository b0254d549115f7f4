"""Whose the working folder is while a study is made, and the configuration that its steps read."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import yaml

from kevin.core.config import Study
from kevin.core.config.layers import as_now
from kevin.core.errors import UsageError
from kevin.core.files import write_text
from kevin.core.identity import differences, with_defaults

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_SHOWN = 12
_held: list[IO[str]] = []


def claim_folder(path: Path, patience_s: float = 15) -> None:
    """Hold the lock file ``path`` until this process ends, however it ends.

    Snakemake's own locks (switched off in profiles/default) outlive a run that was killed, and then stop the next one.

    Raises:
        UsageError: another process still holds it after ``patience_s`` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.seek(0)
                holder = file.read()
                file.close()
                raise UsageError(
                    f"another snakemake (process {holder}) is at work in {Path.cwd()}; wait until it is done"
                ) from None
            time.sleep(_RETRY_S)
        except OSError as e:
            file.close()
            log.warning("no file locks here (%s); do not start a second run in this folder", e)
            return
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _held.append(file)


def changed_settings(study: Study, saved: Path) -> list[str]:
    """Keys in which the study differs from the one whose configuration was saved there, each with both values."""
    try:
        before = yaml.safe_load(saved.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        before = None
    if not isinstance(before, dict):
        return [f"{saved} cannot be read any more"] if _is_finished(study) else []
    now = study.model_dump(mode="json")
    return list(differences(with_defaults(as_now(before), now), now))


def may_replace(given: object) -> bool:
    """Whether ``--config replace=...`` lets a study take the place of a finished one. Raises UsageError where it says
    neither true nor false, for what is replaced is lost.
    """
    text = str(given).lower()
    if text not in ("true", "false"):
        raise UsageError(f"--config replace={given}: it is true or false")
    return text == "true"


def require_replaceable(study: Study, changes: Sequence[str], replaced: Sequence[str], *, may_replace: bool) -> None:
    """Ask before the expensive results of a finished study give way to those of another.

    Args:
        changes: as of `changed_settings`.
        replaced: a name for each step whose files are there and would be made again.

    Raises:
        UsageError: says what would be replaced, and why.
    """
    if may_replace or not (_is_finished(study) and changes and replaced):
        return
    counts = ", ".join(f"{num} {name}" if num > 1 else name for name, num in Counter(replaced).items())
    raise UsageError(
        f"{study.results} holds a finished study with other settings:\n{listed(changes)}\n"
        f"Its results would be replaced: {counts}. Give this study a folder of its own (results: ...), or let it take "
        f"the place of the other: snakemake --config replace=true ..."
    )


def _is_finished(study: Study) -> bool:
    return Path(study.results, "report.html").exists()


def require_own_config(study: Study, saved: Path, layers: Sequence[Path | str]) -> None:
    """Raises UsageError where ``saved``, which is about to be written, is a file that the study is read from: what a
    person wrote would be lost, and what is changed in it could not be told.
    """
    mine = [layer for layer in layers if saved.exists() and saved.samefile(layer)]
    if mine and saved.read_text("utf-8") != _text_of(study):
        raise UsageError(
            f"{saved}: the resolved configuration of the study in {study.results} is kept there; keep yours as another "
            f"file, or give the study another folder (results: ...)"
        )


def _text_of(study: Study) -> str:
    return yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False)


def listed(changes: Sequence[str]) -> str:
    """The first of them, a line each."""
    more = [f"  and {len(changes) - _SHOWN} more"] if len(changes) > _SHOWN else []
    return "\n".join([*(f"  {change}" for change in changes[:_SHOWN]), *more])


def save_config(study: Study, path: Path) -> None:
    """The resolved configuration, beside the results; every step reads it. One that is there already is left alone.

    It is not a rule's output: what a step depends on stands in its params, and a rule that is run again would hide
    those changes from the rules behind it.
    """
    text = _text_of(study)
    if not path.exists() or path.read_text("utf-8") != text:
        write_text(path, text)
