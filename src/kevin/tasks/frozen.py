"""Which tasks are held out, as a readable file: written beside the tasks of a study, and read where they are frozen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from kevin.core.errors import ConfigError, DataError, UsageError
from kevin.core.files import write_text
from kevin.core.texts import read_text
from kevin.core.types import Task
from kevin.tasks.kernelbench import set_digest

Parts = dict[str, dict[str, str]]
"""By split and id a task's name, with the first digits of its digest."""


def write_split(path: Path, tasks: Sequence[tuple[Task, str]], seed: int) -> None:
    """For each part its tasks with names and digests."""
    content = {"seed": seed, "set": set_digest(t for t, _ in tasks), "parts": _parts(tasks)}
    write_text(path, yaml.safe_dump(content, sort_keys=False, width=120))


def _parts(tasks: Iterable[tuple[Task, str]]) -> Parts:
    parts: Parts = {}
    for task, part in tasks:
        parts.setdefault(part, {})[task.id] = f"{task.name} {task.digest[:16]}"
    return parts


class FrozenTasks(NamedTuple):
    """Held-out tasks that were chosen once."""

    path: Path
    seed: int
    """Of which the new fused ones among them are drawn."""
    parts: Parts

    @property
    def of_kernelbench(self) -> set[str]:
        """Their ids."""
        return {task_id for own in self.parts.values() for task_id in own if task_id.startswith("kb/")}

    def check(self, tasks: Iterable[tuple[Task, str]]) -> None:
        """Raises DataError where the held-out ones of these are not those that were frozen."""
        now = _parts((task, part) for task, part in tasks if part != "train")
        for part in sorted(now.keys() | self.parts.keys()):
            before, found = self.parts.get(part, {}), now.get(part, {})
            for task_id in sorted(before.keys() | found.keys()):
                if before.get(task_id) != found.get(task_id):
                    raise DataError(
                        f"{self.path}: {part}: {task_id} was frozen as {before.get(task_id, 'none')}, and is "
                        f"{found.get(task_id, 'not there')}; take the code and the KernelBench that it was frozen with"
                    )


def read_frozen(path: Path) -> FrozenTasks:
    """A file in the form of `write_split`. Raises ConfigError where it cannot be read as one."""
    try:
        raw = yaml.safe_load(read_text(path))
        parts = {str(part): {str(i): str(told) for i, told in own.items()} for part, own in raw["parts"].items()}
        return FrozenTasks(path, int(raw["seed"]), parts)
    except UsageError as e:
        raise ConfigError(f"tasks.frozen: {e}") from None
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(f"tasks.frozen: {path} has no seed and parts, as a split.yaml has") from None
