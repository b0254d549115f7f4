"""A rollout on disk: turn by turn, so that a killed run goes on where it stopped, and finished.

Splits that are played together have one each.

::

    checkpoint/manifest.json                what is being rolled out; a resume must match it
    checkpoint/turn_001.completions.jsonl   one line per answer, appended as answers come in
    checkpoint/turn_001.turns.jsonl         one line per judged turn, written at once when the turn is judged
    finished/rollout.json                   what was rolled out
    finished/turns.parquet                  the same file as the step's output, which the workflow deletes before it
                                            makes it again
    finished.old-1/                         one of something else, from before
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kevin.core.files import append_line, link_or_copy, read_lines, write_text
from kevin.core.identity import changes, refused, set_aside, write_identity
from kevin.core.texts import strict_json
from kevin.core.types import Completion, Task, Turn
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
        if manifest.exists() and self._has_answers():
            if found := changes(manifest, identity, IDENTITY_DEFAULTS):
                raise refused(folder, "an unfinished rollout", found)
            logger.info("resuming the rollout in %s", folder)
        else:
            write_identity(manifest, identity)

    def _has_answers(self) -> bool:
        return any(b"\n" in path.read_bytes() for path in self.folder.glob("turn_*.jsonl"))

    def completions(self, turn: int) -> dict[Place, Completion]:
        """The turn's answers so far."""

        def parse(line: str) -> tuple[Place, Completion]:
            row = json.loads(line)
            return (row["task_id"], row["trajectory"]), Completion.model_validate(row["completion"])

        advice = "delete it, its answers are generated again"
        return dict(read_lines(self._path(turn, "completions"), parse, advice))

    def add_completion(self, turn: int, place: Place, completion: Completion) -> None:
        row = {"task_id": place[0], "trajectory": place[1], "completion": completion.model_dump(mode="json")}
        append_line(self._path(turn, "completions"), strict_json(row))

    def turns(self, turn: int) -> dict[Place, Turn]:
        """The turn's judged turns, with outcome None after a harness failure; empty when it was not finished."""
        advice = "delete it, its kernels are judged again"
        turns = read_lines(self._path(turn, "turns"), Turn.model_validate_json, advice)
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


class Checkpoints:
    """Of sets of tasks that are played together: each has its own, and goes on alone or with others."""

    def __init__(self, checkpoints: Sequence[Checkpoint], sets: Sequence[Sequence[Task]]) -> None:
        self._all = checkpoints
        self._of = {task.id: own for own, tasks in zip(checkpoints, sets, strict=True) for task in tasks}

    def completions(self, turn: int) -> dict[Place, Completion]:
        return {place: c for own in self._all for place, c in own.completions(turn).items()}

    def add_completion(self, turn: int, place: Place, completion: Completion) -> None:
        self._of[place[0]].add_completion(turn, place, completion)

    def turns(self, turn: int) -> dict[Place, Turn]:
        return {place: t for own in self._all for place, t in own.turns(turn).items()}

    def write_turns(self, turn: int, turns: Sequence[Turn]) -> None:
        for own in self._all:
            own.write_turns(turn, [t for t in turns if self._of[t.task_id] is own])

    def forget_changed(self, turn: int, before: Mapping[Place, Turn], played: Sequence[Turn]) -> None:
        """Of each set whose turn is not what it was ``before``, delete what later turns left."""
        now = {(t.task_id, t.trajectory): t for t in played}
        changed = {place[0] for place in before.keys() | now.keys() if before.get(place) != now.get(place)}
        for own in {self._of[task_id] for task_id in changed}:
            own.forget_after(turn)


def restore(out: Path, identity: Mapping[str, Any]) -> bool:
    """Put the finished rollout that ``identity`` (JSON values, nested) describes at ``out`` again, if it is there."""
    kept, manifest = out.parent / "finished" / out.name, out.parent / "finished" / "rollout.json"
    if not (kept.exists() and manifest.exists()) or changes(manifest, identity, IDENTITY_DEFAULTS):
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
    write_identity(folder / "rollout.json", identity)
