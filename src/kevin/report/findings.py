"""The three sentences that the page begins with, from the written tables ``claims`` and ``primary``."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.report.cells import in_line, interval, times
from kevin.report.claims import MIN_TASKS, NOT_MEASURED, NOT_SHOWN, PRIMARY, REFUTED, SHOWN
from kevin.report.evidence import SINGLE
from kevin.report.paper import OURS
from kevin.report.primary import COMPILED, ROOM
from kevin.report.primary import PRIMARY as OF_TABLE
from kevin.report.records import records
from kevin.report.scores import policy_label

_MEANS = {SHOWN: "faster", REFUTED: "slower", NOT_SHOWN: "not told apart"}


def findings(primary: pd.DataFrame, claims: pd.DataFrame, study: Study) -> list[str]:
    """The primary endpoint; which way of spending as many kernels finds the fastest; what turns are worth against first
    answers. Fewer where the study holds less, none of a miniature or of few tasks."""
    ours = primary[primary["source"] == OURS]
    played = ours[ours["kernels"].notna()]
    if study.report.miniature or played.empty or played["num_tasks"].max() < MIN_TASKS:
        return []
    claim = next((row for row in records(claims) if row["kind"] == PRIMARY), None)
    first = [] if claim is None else [_endpoint(claim, records(played[played["endpoint"] == OF_TABLE]), study)]
    return [*first, *_fastest(ours, played, study), *_turns_or_first_answers(played)]


def _endpoint(claim: dict[str, Any], rows: list[dict[str, Any]], study: Study) -> str:
    config = study.report.primary
    named = "declared before any kernel was judged" if config.declared else "named after these kernels had been seen"
    head = f"Primary endpoint ({named})"
    if claim["verdict"] == NOT_MEASURED or not rows:
        return f"{head}: not measured, for {claim['why']}."
    against = SINGLE if config.against is None else policy_label(config.against, study)
    kernels, found = rows[0]["kernels"], in_line(interval("ours", times)(claim))
    return (
        f"{head}: with {kernels:.0f} kernels a task, {rows[0]['label']} as {_split(rows[0])} reaches {found} of what "
        f"{against} reaches as first answers (geometric mean speedup with eager as the floor, "
        f"{claim['num_tasks']:.0f} tasks): {_MEANS[claim['verdict']]}; "
        f"{times(claim['detectable'])} could have been shown."
    )


def _fastest(ours: pd.DataFrame, played: pd.DataFrame, study: Study) -> list[str]:
    config = study.report.primary
    kernels = min(config.trajectories * config.turns, played.groupby("policy")["kernels"].max().min())
    rows = records(played[played["kernels"] == kernels])
    if not rows:
        return []
    ranked = sorted(rows, key=lambda row: row["geomean"])
    high, low = (
        f"{row['label']} as {_split(row)}, {in_line(interval('geomean', times)(row))}"
        for row in (ranked[-1], ranked[0])
    )
    others = {row["policy"]: row for row in records(ours)}
    known = [f"; {name}: {times(others[name]['geomean'])}" for name in (COMPILED, ROOM) if name in others]
    return [
        f"Of all ways to spend {kernels:.0f} kernels a task, the highest geometric mean speedup over eager is that of "
        f"{high}, the lowest that of {low}{''.join(known)}."
    ]


def _turns_or_first_answers(played: pd.DataFrame) -> list[str]:
    """At the most kernels that all policies have spent both ways, the split with the most turns."""
    compared = played[played["over_first"].notna()]
    if compared.empty:
        return []
    kernels = compared.groupby("policy")["kernels"].max().min()
    longest = {row["policy"]: row for row in records(compared[compared["kernels"] == kernels].sort_values("turns"))}
    said = [f"{row['label']} {in_line(interval('over_first', times)(row))}" for row in longest.values()]
    split = _split(next(iter(longest.values())))
    return [
        f"With {kernels:.0f} kernels a task, turns ({split}) find of what as many first answers of the same policy "
        f"find: {', '.join(said)}."
    ]


def _split(row: dict[str, Any]) -> str:
    return f"{row['trajectories']:.0f} × {row['turns']:.0f}"
