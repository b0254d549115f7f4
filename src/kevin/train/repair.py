"""Repair tasks: a task of which no kernel was correct goes on from one of these when it comes up next."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kevin.core.files import read_parquet, turns_from_frame
from kevin.core.types import Turn


class RepairStarts:
    """What earlier steps left to be mended, from the turns' files that these wrote; the same for a resumed run."""

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        """``folder``, ``kind``: of files ``step_00001.parquet``, ... ``seed``: of the choice among a task's kernels."""
        self._folder, self._kind, self._seed = folder, kind, seed
        self._steps: dict[int, dict[str, Turn | None]] = {}

    def of_step(self, step: int, task_ids: Sequence[str]) -> dict[str, Turn]:
        """By task the turn that its trajectories start from in ``step``; nothing for a task that begins anew.

        A task whose last step was a repair begins anew, whatever became of it.
        """
        found: dict[str, Turn] = {}
        for task_id in task_ids:
            start: Turn | None = None
            for earlier in range(1, step):
                left = self._left_by(earlier)
                if task_id in left:
                    start = left[task_id] if start is None else None
            if start is not None:
                found[task_id] = start
        return found

    def _left_by(self, step: int) -> dict[str, Turn | None]:
        """By task of a step a wrong kernel of it, None where one was correct or none holds a kernel."""
        if step not in self._steps:
            frame, _ = read_parquet(self._folder / f"step_{step:05d}.parquet", self._kind)
            self._steps[step] = {str(task): self._wrong_kernel(step, own) for task, own in frame.groupby("task_id")}
        return self._steps[step]

    def _wrong_kernel(self, step: int, group: pd.DataFrame) -> Turn | None:
        turns = turns_from_frame(group)
        kernels = [t for t in turns if t.kernel is not None and t.outcome is not None]
        if not kernels or any(t.speedup is not None for t in turns):
            return None
        return random.Random(f"kevin repair, {self._seed}, {step}, {kernels[0].task_id}").choice(kernels)
