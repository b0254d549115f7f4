"""The verdict store: one immutable JSON file a verdict, named by its key; safe for many writers on a network drive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from kevin.core.errors import DataError
from kevin.core.files import verdict_path, write_text
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Task, Verdict, digest


def verdict_key(task: Task, kernel: Kernel, protocol: JudgeProtocol, device_name: str) -> str:
    """What a verdict depends on: task, kernel, protocol, and the device that it was timed on."""
    return digest("verdict", task.digest, kernel.digest, protocol.digest, device_name)


class VerdictStore:
    """Verdicts below ``folder``, spread over 256 subfolders. ``put`` never overwrites; ``get`` never guesses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Verdict | None:
        """The verdict, or None. Raises DataError for a damaged file, naming it."""
        path = verdict_path(self.folder, key)
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return None
        try:
            verdict = Verdict.model_validate_json(text)
        except ValidationError as e:
            raise DataError(f"{path}: not a verdict of this version ({e.error_count()} problems); delete it") from None
        if verdict.key != key:
            raise DataError(f"{path}: holds the verdict of another kernel; delete it")
        return verdict

    def put(self, verdict: Verdict) -> None:
        """Keep a verdict. A second one for the same key is dropped: the first stands."""
        path = verdict_path(self.folder, verdict.key)
        if not path.exists():
            write_text(path, verdict.model_dump_json())

    def __iter__(self) -> Iterator[Verdict]:
        for path in sorted(self.folder.glob("??/*.json")):
            yield Verdict.model_validate_json(path.read_text("utf-8"))

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob("??/*.json"))
