"""What must be said of a study as a whole: that it is a miniature, trainings that their time budget cut short, and that
its kernels were judged on different hardware."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.report.cells import percent
from kevin.report.scores import UNKNOWN_MACHINE, machines, policy_label

NOTE = "note"
"""Column of a table, there only where something is to be said."""
MINIATURE = "A miniature of the study, to see that every step of it runs: no number here means anything."
REHEARSAL = "A rehearsal with random weights and recorded answers: no number here means anything, but times and memory."


class TrainingSummary(BaseModel):
    """What a training says of its end: ``base_model/summary.json`` (no ``run``) or ``train/<run>/summary.json``.

    Keys that an older file lacks are absent.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: str | None = None
    num_steps: int | None = None
    planned_steps: int | None = None
    budget_bit: bool = False
    """A time budget ended it before its planned steps."""
    correct_share: float | None = None
    expected_correct_share: float | None = None
    """Of the base model's kernels: measured, and what is expected at least."""
    num_kernels: int | None = None
    """Judged while a run trained."""


def read_summaries(paths: Sequence[Path]) -> list[TrainingSummary]:
    """The summaries that exist; an older study has none. Raises DataError for a file that is none."""
    found = []
    for path in paths:
        if not path.exists():
            continue
        try:
            found.append(TrainingSummary.model_validate_json(path.read_bytes()))
        except ValidationError as e:
            problem = e.errors()[0]
            where = ".".join(map(str, problem["loc"])) or "the file"
            raise DataError(f"{path}: not a summary of a training ({where}: {problem['msg']}); train again") from None
    return found


def study_note(summaries: Sequence[TrainingSummary], study: Study) -> str | None:
    """For every table and figure; None where there is nothing to say."""
    rehearsed = any(policy.random_shapes for policy in study.policies.values())
    said = [REHEARSAL if rehearsed else MINIATURE] if study.report.miniature else []
    if cut := [_cut(s, study) for s in summaries if s.budget_bit]:
        listed = cut[0] if len(cut) == 1 else f"{', '.join(cut[:-1])} and {cut[-1]}"
        said.append(
            f"Made under a time budget that cut the training of {listed}; with all steps the numbers would differ."
        )
    return " ".join(said) or None


def _cut(summary: TrainingSummary, study: Study) -> str:
    name = "the base model" if summary.run is None else policy_label(summary.run, study)
    text = name if summary.num_steps is None else f"{name} to {summary.num_steps:,}"
    if summary.num_steps is not None:
        text += f" of {summary.planned_steps:,} steps" if summary.planned_steps is not None else " steps"
    if summary.correct_share is not None and summary.expected_correct_share is not None:
        correct, expected = percent(summary.correct_share), percent(summary.expected_correct_share)
        text += f" ({correct} of its kernels correct, at least {expected} expected)"
    return text


def read_note(paths: Sequence[Path], study: Study, scores: Sequence[Path] = ()) -> str | None:
    """`study_note` of the summaries in these files, and `machines_note` of the scores in those."""
    said = [study_note(read_summaries(paths), study), machines_note(scores, study)]
    return " ".join(filter(None, said)) or None


def machines_note(scores: Sequence[Path], study: Study) -> str | None:
    """None where all kernels were judged on machines of one kind, as far as is known."""
    kinds = [" and ".join(names) for names in machines(scores, study) if names != (UNKNOWN_MACHINE,)]
    if len(kinds) < 2:
        return None
    return (
        f"Kernels were judged on different hardware ({'; '.join(kinds)}): a speedup is over PyTorch where the "
        f"kernel was judged, and those of several stand side by side."
    )


def with_note(frame: pd.DataFrame, note: str | None) -> pd.DataFrame:
    """The table, with a column that says the note where there is one."""
    return frame if note is None else frame.assign(**{NOTE: note})
