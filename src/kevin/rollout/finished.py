"""Finished rollouts. The workflow deletes a step's output before it makes it again; these stay.

::

    finished/rollout.json        what was rolled out
    finished/turns.parquet       the same file as the step's output
    finished.old-1/              one of something else, from before
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kevin.core.files import link_or_copy, write_text
from kevin.core.identity import differences, read_identity, set_aside, with_defaults
from kevin.core.texts import strict_json
from kevin.rollout.settings import IDENTITY_DEFAULTS

logger = logging.getLogger(__name__)


def restore(out: Path, identity: Mapping[str, Any]) -> bool:
    """Put the finished rollout that ``identity`` (JSON values, nested) describes at ``out`` again, if it is there."""
    kept, manifest = out.parent / "finished" / out.name, out.parent / "finished" / "rollout.json"
    if not (kept.exists() and manifest.exists()):
        return False
    if list(differences(with_defaults(read_identity(manifest), IDENTITY_DEFAULTS), _plain(identity))):
        return False
    logger.info("%s is done already; for a new one: rm -r %s", out, kept.parent)
    out.unlink(missing_ok=True)
    link_or_copy(kept, out)
    return True


def keep(out: Path, identity: Mapping[str, Any]) -> None:
    """Keep the rollout that stands at ``out``. One of something else that was kept before is set aside."""
    folder = out.parent / "finished"
    if folder.exists():
        logger.warning("%s was rolled out anew; the one before is kept in %s", out, set_aside(folder))
    folder.mkdir()
    link_or_copy(out, folder / out.name)
    write_text(folder / "rollout.json", strict_json(_plain(identity), indent=1, sort_keys=True) + "\n")


def _plain(identity: Mapping[str, Any]) -> Any:
    return json.loads(strict_json(identity))
