"""Recorded completions instead of a model: our own turns, a JSONL file, or a KernelBench ``runs/`` folder."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from kevin.core.errors import DataError, first_line
from kevin.core.fences import fenced
from kevin.core.fields import problem
from kevin.core.files import read_turns
from kevin.core.texts import parse_json, read_text, split_lines
from kevin.core.types import Completion, Conversation, Frozen
from kevin.policy.interface import OnCompletion, Request, Sampling, estimate_tokens, estimated_tokens

logger = logging.getLogger(__name__)

Place = tuple[str, int, int]
"""Task id, trajectory, turn."""

_KERNELBENCH_FILE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")


class Recorded(Frozen):
    """One line of a JSONL recording; token counts are estimated from characters where they are not given."""

    task_id: str
    trajectory: int = Field(ge=0, strict=True)
    turn: int = Field(ge=1, strict=True)
    completion: str
    num_prompt_tokens: int | None = Field(default=None, ge=0)
    num_completion_tokens: int | None = Field(default=None, ge=0)
    finish_reason: Literal["stop", "length"] = "stop"


class ReplayPolicy:
    """Answers from a recording, whatever the conversation and the sampling. A trajectory ends where its recording ends.

    Of a KernelBench folder, sample S of problem P in level L is turn 1 of trajectory S of task ``kb/<L>/<P>``.
    """

    def __init__(self, name: str, path: Path) -> None:
        """``path``: a .parquet of turns, a .jsonl, or a folder. Raises DataError when missing, damaged or empty."""
        self.name, self.path = name, path
        if path.is_dir():
            recorded = _read_kernelbench(path)
        elif not path.exists():
            raise DataError(
                f"policies.{name}.model: no recording {path}; give a .parquet or .jsonl file, or a runs/ folder"
            )
        elif path.suffix == ".parquet":
            recorded = _read_parquet(path)
        else:
            recorded = read_jsonl(path)
        if not recorded:
            raise DataError(f"policies.{name}.model: {path} holds no completion")
        self._recorded: dict[Place, Recorded] = {}
        for r in recorded:
            place = (r.task_id, r.trajectory, r.turn)
            if place in self._recorded:
                raise DataError(
                    f"{path}: task {r.task_id}, trajectory {r.trajectory}, turn {r.turn} is recorded twice; "
                    f"give one run only"
                )
            self._recorded[place] = r
        for task, trajectory, turn in sorted(self._recorded):
            if turn > 1 and (task, trajectory, turn - 1) not in self._recorded:
                raise DataError(
                    f"{path}: task {task}, trajectory {trajectory}: turn {turn} is recorded, and turn {turn - 1} is not"
                )
        self._task_ids = {r.task_id for r in recorded}

    def count_tokens(self, conversation: Conversation) -> int:
        return estimated_tokens(conversation)

    def complete(
        self, requests: Sequence[Request], sampling: Sampling, on_completion: OnCompletion | None = None
    ) -> list[Completion | None]:
        """Raises DataError when the recording knows none of the tasks."""
        if requests and not any(r.task_id in self._task_ids for r in requests):
            raise DataError(
                f"{self.path} holds none of the tasks asked for (it has {_some(self._task_ids)}; asked for were "
                f"{_some({r.task_id for r in requests})}); check tasks.source and the recording"
            )
        completions = [self._completion(r) for r in requests]
        num_missing = completions.count(None)
        if num_missing:
            logger.warning(
                "%s: %d of %d answers are not recorded; these trajectories end", self.path, num_missing, len(requests)
            )
        if on_completion is not None:
            for i, completion in enumerate(completions):
                if completion is not None:
                    on_completion(i, completion)
        return completions

    def close(self) -> None:
        self._recorded.clear()

    def _completion(self, request: Request) -> Completion | None:
        r = self._recorded.get((request.task_id, request.trajectory, request.turn))
        if r is None:
            return None
        num_prompt, num_completion = r.num_prompt_tokens, r.num_completion_tokens
        return Completion(
            text=r.completion,
            num_prompt_tokens=self.count_tokens(request.conversation) if num_prompt is None else num_prompt,
            num_completion_tokens=estimate_tokens(r.completion) if num_completion is None else num_completion,
            finish_reason=r.finish_reason,
        )


def _some(names: set[str]) -> str:
    shown = sorted(names)[:3]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _read_parquet(path: Path) -> list[Recorded]:
    turns, _ = read_turns(path)
    return [Recorded.model_validate({f: getattr(t, f) for f in Recorded.model_fields}) for t in turns]


def read_jsonl(path: Path) -> list[Recorded]:
    """The lines of a recording. Raises DataError for one that is none."""
    recorded = []
    for number, line in enumerate(split_lines(read_text(path)), start=1):
        if not line.strip():
            continue
        try:
            recorded.append(Recorded.model_validate(parse_json(line)))
        except (ValueError, RecursionError) as e:
            what = problem(e.errors()[0]) if isinstance(e, ValidationError) else first_line(e)
            raise DataError(
                f"{path}, line {number}: expected {{task_id, trajectory, turn, completion}}: {what}"
            ) from None
    return recorded


def _read_kernelbench(path: Path) -> list[Recorded]:
    recorded = []
    for file in sorted(path.rglob("*_kernel.py")):
        if match := _KERNELBENCH_FILE.fullmatch(file.name):
            level, problem, sample = map(int, match.groups())
            recorded.append(
                Recorded(
                    task_id=f"kb/{level}/{problem}",
                    trajectory=sample,
                    turn=1,
                    completion=f"{fenced(read_text(file), 'python')}\n",
                )
            )
    if not recorded:
        raise DataError(f"{path}: no file named level_<L>_problem_<P>_sample_<S>_kernel.py in it")
    return recorded
