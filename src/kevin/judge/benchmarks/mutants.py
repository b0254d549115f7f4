"""Kernels whose worth is known, as plain files: wrong ones that a judge must refuse, odd ones that it must not.

A folder holds ``tasks/<name>.py``, references in KernelBench's format, and kernels anywhere below it: ``.cpp`` and
``.cu`` with a launcher of the ``c_abi`` dialect, and modules for ``load_inline``, ``cpp_*.py`` and ``cuda_*.py``. The
first lines of a kernel are comments that say ``key: value``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from kevin.core.errors import UsageError
from kevin.core.texts import split_lines
from kevin.core.types import Device, Frozen, Kernel, Language, Task, digest
from kevin.tasks.format import inspect_task

TASKS = "tasks"


class Mutant(Frozen):
    """A kernel with what is known of it."""

    name: str
    """Its path below the folder."""
    task: str
    expect: Literal["right", "wrong"]
    kind: str
    """Of mistake, or of oddity."""
    why: str
    shown: Literal["values", "by construction"] = "values"
    """What proves a wrong one: values that differ by more than the tolerance, or what it does beside them."""
    calls: int = Field(default=2, ge=1)
    """In so many calls its mistake shows."""
    note: str = ""
    """Where a judge may err about it all the same: why, and what would see it."""
    source: str
    task_source: str

    @property
    def language(self) -> Language:
        file = Path(self.name).name
        return "cuda" if file.endswith(".cu") or file.startswith("cuda_") else "cpp"

    @property
    def device(self) -> Device:
        return "cuda" if self.language == "cuda" else "cpu"

    @property
    def kernel(self) -> Kernel:
        dialect: Literal["load_inline", "c_abi"] = "load_inline" if self.name.endswith(".py") else "c_abi"
        return Kernel(dialect=dialect, language=self.language, source=self.source)

    @property
    def digest(self) -> str:
        """Of both sources, 12 hexadecimal digits."""
        return digest(self.source, self.task_source)[:12]


def read_mutants(folder: Path) -> list[Mutant]:
    """All of a folder, in order of their names. Raises UsageError: there are none, or one does not say what it is."""
    tasks = {path.stem: path.read_text("utf-8") for path in sorted((folder / TASKS).glob("*.py"))}
    found = []
    for path in sorted(p for p in folder.glob("*/*") if p.suffix in (".cpp", ".cu", ".py")):
        if path.parent.name == TASKS:
            continue
        source = path.read_text("utf-8")
        said = _header(source)
        name = path.relative_to(folder).as_posix()
        if said.get("task") not in tasks:
            raise UsageError(f"{path}: its first lines name no task of {folder / TASKS}")
        try:
            found.append(
                Mutant.model_validate({**said, "name": name, "source": source, "task_source": tasks[said["task"]]})
            )
        except ValidationError as e:
            raise UsageError(f"{path}: its first lines: {e.errors()[0]['loc'][0]}: {e.errors()[0]['msg']}") from None
    if not found:
        raise UsageError(f"{folder}: holds no kernels below it")
    return found


def _header(source: str) -> dict[str, str]:
    said = {}
    for line in split_lines(source):
        key, colon, value = line.lstrip("/# ").partition(":")
        if not line.startswith(("//", "#")) or not colon:
            break
        said[key] = value.strip()
    return said


def as_tasks(mutants: Sequence[Mutant]) -> dict[str, Task]:
    """Their tasks, by name."""
    sources = {m.task: m.task_source for m in mutants}
    return {
        name: Task(
            id=f"mutants/{name}", level=1, name=name, source=source, origin="user", spec=inspect_task(source, name)
        )
        for name, source in sources.items()
    }
