"""A rollout on disk, turn by turn, so that a killed run goes on where it stopped.

::

    checkpoint/manifest.json                what is being rolled out; a resume must match it
    checkpoint/turn_001.completions.jsonl   one line per answer, appended as answers come in
    checkpoint/turn_001.turns.jsonl         one line per judged turn, written at once when the turn is judged
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kevin.core.errors import DataError
from kevin.core.files import append_line, write_text
from kevin.core.identity import differences, read_identity, with_defaults
from kevin.core.texts import split_lines, strict_json
from kevin.core.types import Completion, Turn
from kevin.rollout.settings import IDENTITY_DEFAULTS, Place

logger = logging.getLogger(__name__)


class Checkpoint:
    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        """Open or start the checkpoint of the rollout that ``identity`` (JSON values, nested) describes.

        Raises:
            DataError: the folder holds answers of another rollout; the text names every difference.
        """
        self.folder = folder
        manifest = folder / "manifest.json"
        wanted = json.loads(strict_json(identity))
        if manifest.exists() and self._has_answers():
            if changes := list(differences(with_defaults(read_identity(manifest), IDENTITY_DEFAULTS), wanted)):
                raise DataError(
                    f"{folder} holds an unfinished rollout of something else:\n"
                    + "\n".join(f"  {c}" for c in changes)
                    + f"\nGo back to the old configuration to finish it, or start anew: rm -r {folder}"
                )
            logger.info("resuming the rollout in %s", folder)
        else:
            write_text(manifest, strict_json(wanted, indent=1, sort_keys=True) + "\n")

    def _has_answers(self) -> bool:
        return any(b"\n" in path.read_bytes() for path in self.folder.glob("turn_*.jsonl"))

    def completions(self, turn: int) -> dict[Place, Completion]:
        """The turn's answers so far. A last line that a kill cut short is dropped from the file."""
        path = self._path(turn, "completions")
        if not path.exists():
            return {}
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            logger.info("%s: dropping an answer that was cut short", path)
            write_text(path, whole.decode())
        found = {}
        for line in split_lines(whole.decode()):
            try:
                row = json.loads(line)
                found[row["task_id"], row["trajectory"]] = Completion.model_validate(row["completion"])
            except (ValueError, KeyError, TypeError) as e:
                raise DataError(f"{path}: damaged ({e}); delete it, its answers are generated again") from None
        return found

    def add_completion(self, turn: int, place: Place, completion: Completion) -> None:
        row = {"task_id": place[0], "trajectory": place[1], "completion": completion.model_dump(mode="json")}
        append_line(self._path(turn, "completions"), strict_json(row))

    def turns(self, turn: int) -> dict[Place, Turn]:
        """The turn's judged turns, with outcome None after a harness failure; empty when it was not finished."""
        path = self._path(turn, "turns")
        if not path.exists():
            return {}
        try:
            turns = [Turn.model_validate_json(line) for line in split_lines(path.read_text("utf-8"))]
        except ValidationError as e:
            raise DataError(
                f"{path}: damaged ({e.errors()[0]['msg']}); delete it, its kernels are judged again"
            ) from None
        return {(t.task_id, t.trajectory): t for t in turns}

    def write_turns(self, turn: int, turns: Iterable[Turn]) -> None:
        write_text(self._path(turn, "turns"), "".join(t.model_dump_json() + "\n" for t in turns))

    def forget_after(self, turn: int) -> None:
        """Delete what later turns left: their histories have changed."""
        for path in self.folder.glob("turn_*.jsonl"):
            if int(path.name[5:8]) > turn:
                path.unlink()

    def _path(self, turn: int, what: str) -> Path:
        return self.folder / f"turn_{turn:03d}.{what}.jsonl"
