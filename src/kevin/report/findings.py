"""The three sentences that the page begins with, from the written tables ``claims`` and ``primary``."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.report.cells import Cell, interval_cell, percent, times
from kevin.report.claims import MIN_TASKS, NOT_MEASURED, NOT_SHOWN, PRIMARY, REFUTED, SHOWN
from kevin.report.paper import OURS
from kevin.report.primary import COMPILED, ROOM
from kevin.report.records import records

_MEANS = {SHOWN: "faster", REFUTED: "slower", NOT_SHOWN: "not told apart"}


def findings(primary: pd.DataFrame, claims: pd.DataFrame, study: Study) -> list[str]:
    """The primary endpoint; which way of spending as many kernels finds the fastest; what turns are worth against first
    answers. Fewer where the study holds less, none of a miniature or of few tasks."""
    ours = primary[primary["source"] == OURS]
    played = ours[ours["kernels"].notna()]
    if study.report.miniature or played.empty or played["num_tasks"].max() < MIN_TASKS:
        return []
    first = [_endpoint(row, study) for row in records(claims[claims["kind"] == PRIMARY])]
    return [*first, *_fastest(ours, played, study), *_turns_or_first_answers(played)]


def _endpoint(row: dict[str, Any], study: Study) -> str:
    named = "declared before any kernel was judged" if study.report.primary.declared else "named after these were seen"
    head = f"Primary endpoint ({named})"
    if row["verdict"] == NOT_MEASURED:
        return f"{head}: not measured, for {row['why']}."
    text = f"{head}: {row['claim'][:1].lower()}{row['claim'][1:]}: {_said(interval_cell(row, 'ours', times))} as fast"
    text += f", {row['num_tasks']:.0f} tasks, {_MEANS[row['verdict']]}"
    return f"{text}; {times(row['detectable'])} could have been shown."


def _fastest(ours: pd.DataFrame, played: pd.DataFrame, study: Study) -> list[str]:
    config = study.report.primary
    kernels = min(config.trajectories * config.turns, played.groupby("policy")["kernels"].max().min())
    rows = records(played[played["kernels"] == kernels])
    if not rows:
        return []
    best = max(rows, key=lambda row: row["geomean"])
    text = f"Of all ways to spend {kernels:.0f} kernels a task the fastest are found by {best['label']} as "
    text += f"{_split(best)}, {_said(interval_cell(best, 'geomean', times))} of eager (geometric mean, eager as the "
    text += f"floor), {percent(best['solved'])} of tasks solved"
    others = {row["policy"]: row for row in records(ours)}
    known = [f"{name}: {times(others[name]['geomean'])}" for name in (COMPILED, ROOM) if name in others]
    return [f"{'; '.join([text, *known])}."]


def _turns_or_first_answers(played: pd.DataFrame) -> list[str]:
    """At the most kernels that all policies have spent both ways, the split with the most turns."""
    compared = played[played["over_first"].notna()]
    if compared.empty:
        return []
    kernels = compared.groupby("policy")["kernels"].max().min()
    longest = {row["policy"]: row for row in records(compared[compared["kernels"] == kernels].sort_values("turns"))}
    said = [f"{row['label']} {_said(interval_cell(row, 'over_first', times))}" for row in longest.values()]
    split = _split(next(iter(longest.values())))
    return [
        f"With {kernels:.0f} kernels a task, {split} finds of what as many first answers of the same policy find: "
        f"{', '.join(said)}."
    ]


def _split(row: dict[str, Any]) -> str:
    return f"{row['trajectories']:.0f} × {row['turns']:.0f}"


def _said(cell: Cell) -> str:
    return cell.in_line
