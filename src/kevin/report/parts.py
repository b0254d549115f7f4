"""Parts of the held-out tasks that tables are made of: splits, all of them together, with and without flawed tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

ALL_SPLITS = "all"
ALL_TASKS, UNFLAWED = "all tasks", "without flawed tasks"


def subsets(scores: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """All tasks; and those without known flaws, where that is not the same or nothing."""
    yield ALL_TASKS, scores
    if scores["flawed"].any() and not scores["flawed"].all():
        yield UNFLAWED, scores[~scores["flawed"]]


def parts(scores: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """All held-out tasks, then each split where there are several."""
    yield ALL_SPLITS, scores
    groups = list(scores.groupby("split", sort=True))
    if len(groups) > 1:
        for split, own in groups:
            yield str(split), own
