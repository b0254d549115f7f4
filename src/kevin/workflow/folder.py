"""Whose the working folder is while a study is made, and the configuration that its steps read."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from pathlib import Path
from typing import IO

import yaml

from kevin.core.config import Study
from kevin.core.errors import UsageError
from kevin.core.files import write_text

log = logging.getLogger(__name__)

_RETRY_S = 0.5
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


def save_config(study: Study, path: Path) -> None:
    """The resolved configuration, beside the results; every step reads it. One that is there already is left alone.

    It is not a rule's output: what a step depends on stands in its params, and a rule that is run again would hide
    those changes from the rules behind it.
    """
    text = yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False)
    if not path.exists() or path.read_text() != text:
        write_text(path, text)
