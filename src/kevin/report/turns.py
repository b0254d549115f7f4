"""What turns are worth: what becomes of a kernel on the next turn, and the best so far, for every policy and seed.

``turns``: one row for each policy, seed, split and turn, and one of all splits and turns together; of several seeds one
more for all of them. ``mended``: wrong kernels by kind of error, and how many first answers would be right in their
place. Shares are over the kernels of all tasks together; of several seeds their mean. Turns that the harness could not
judge are left out, with what would have followed from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.core.types import Outcome
from kevin.report import metrics
from kevin.report.metrics import Estimate, Interval, mean_estimate, minus, share_estimate, with_ends
from kevin.report.recipes import ALL_SPLITS, OUTCOMES, Rows, by_seed, rows_by, rows_of
from kevin.report.scores import NEAR_COPY

SAME_SPEED = 1.05
"""A kernel is faster or slower than the one before from this ratio on; less is near the noise of timing."""
SHARES = ("correct", "mended", "kept", "copied", "faster", "slower", "repeated", "improved")
ANY_ERROR = "any"


def turn_changes(scores: pd.DataFrame) -> pd.DataFrame:
    """A policy's judged turns on a split, with what each made of the turn before: one column for each of `SHARES`.

    1 where it is so, 0 where it is not, NaN where it cannot be: ``mended`` needs a wrong kernel before; ``kept``,
    ``faster``, ``slower`` (by `SAME_SPEED`) and ``repeated`` (the same program) a correct one; ``copied`` a kernel
    before, to which this one's similarity is at least `NEAR_COPY`; ``improved`` (faster by `SAME_SPEED` than the best
    kernel of the trajectory so far) any correct one before. ``fresh``: the share of first answers of the task's other
    trajectories that would have improved on it as well. ``error``: the outcome before where it was wrong.
    """
    turns = _judged(scores)
    before = turns.groupby(["task_id", "trajectory"])[["turn", "outcome", "speedup"]].shift()
    before = before.where(before["turn"] == turns["turn"] - 1)
    correct = turns["outcome"] == Outcome.CORRECT.value
    was_correct = before["outcome"] == Outcome.CORRECT.value
    was_wrong = before["outcome"].notna() & ~was_correct
    alike, speedup = turns["similarity"], turns["speedup"]
    ratio = speedup / before["speedup"]
    best = speedup.groupby([turns["task_id"], turns["trajectory"]]).cummax()
    best = best.groupby([turns["task_id"], turns["trajectory"]]).shift()
    best = best.where(best > 0)
    values = {
        "correct": correct.astype(float),
        "mended": correct.astype(float).where(was_wrong),
        "kept": correct.astype(float).where(was_correct),
        "copied": (alike >= NEAR_COPY).astype(float).where(alike.notna()),
        "faster": (correct & (ratio > SAME_SPEED)).astype(float).where(was_correct),
        "slower": (correct & (ratio < 1 / SAME_SPEED)).astype(float).where(was_correct),
        "repeated": (alike == 1).astype(float).where(was_correct),
        "improved": (speedup > SAME_SPEED * best).astype(float).where(best.notna()),
        "fresh": _first_answers_above(turns, SAME_SPEED * best),
    }
    return turns[["task_id", "trajectory", "turn"]].assign(**values, error=before["outcome"].where(was_wrong))


def _judged(scores: pd.DataFrame) -> pd.DataFrame:
    """A policy's turns that have a verdict, in order; the speedup of a wrong kernel is 0."""
    turns = metrics.usable(scores).sort_values(["task_id", "trajectory", "turn"], kind="stable")
    return turns.assign(speedup=turns["speedup"].where(turns["outcome"] == Outcome.CORRECT.value, 0.0))


def _first_answers_above(turns: pd.DataFrame, bar: pd.Series) -> pd.Series:
    """Of each turn that has a bar: the share of first answers of the task's other trajectories that are above it."""
    found = pd.Series(np.nan, index=turns.index)
    for _, own in turns.groupby("task_id"):
        first = own[own["turn"] == 1].set_index("trajectory")["speedup"]
        bars, mine = bar[own.index], own["trajectory"].map(first)
        above = pd.Series(len(first) - np.searchsorted(np.sort(first), bars, side="right"), index=own.index)
        others = len(first) - mine.notna()
        found[own.index] = ((above - (mine > bars)) / others.where(others > 0)).where(bars.notna())
    return found


def share_of(
    seeds: Sequence[pd.DataFrame], name: str, study: Study, tasks: pd.Index | None = None, stream: int = 0
) -> Estimate:
    """One of `SHARES`, the mean over seeds, from each seed's `counts_by` task; of these tasks, or of all."""
    counted, of = (by_seed([counts[name, column] for counts in seeds]) for column in ("sum", "count"))
    if tasks is not None:
        counted, of = counted.loc[tasks], of.loc[tasks]
    return share_estimate(counted, of, study, stream)


def counts_by(changes: pd.DataFrame, keys: list[str], names: Sequence[str]) -> pd.DataFrame:
    """Rows of `turn_changes` by keys, the last of them the task: of each share the kernels counted, and of how many."""
    return changes.groupby(keys)[list(names)].agg(["sum", "count"])


def _of(counts: Sequence[pd.DataFrame], key: str, value: int | str) -> list[pd.DataFrame]:
    """The rows of one turn, or of one kind of error, of each seed that has any."""
    found = [own[own.index.get_level_values(key) == value].droplevel(key) for own in counts]
    return [own for own in found if len(own)]


def turns_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each policy, seed, split and turn, and for each policy and seed one of all splits and turns together.

    ``over_fresh``: ``improved`` minus ``fresh``, of the turns that have both. ``best_speedup``: the fastest correct
    kernel of all trajectories so far, 0 if there is none, mean over tasks; ``trajectory_speedup``: of one trajectory,
    mean over a task's trajectories and over tasks. ``num_kernels``: judged on this turn; ``num_wrong_before``,
    ``num_correct_before``, ``num_best_before``: what ``mended``, the shares of correct kernels and ``improved`` are
    taken over.
    """
    rows = []
    names, measured = (*SHARES, *_BOTH), (*SHARES, "fresh")
    for head, row in _rows(scores, study):
        by_turn = [counts_by(_against_fresh(own), ["turn", "task_id"], names) for own in row.seeds]
        so_far = [_best_so_far(own).groupby("task_id") for own in row.seeds]
        bests = {
            "best_speedup": [own.max() for own in so_far],
            "trajectory_speedup": [own.mean() for own in so_far],
        }
        for turn in sorted({turn for counts in by_turn for turn in counts.index.unique("turn")}):
            here = _of(by_turn, "turn", turn)
            cells = _share_cells(here, measured, study)
            for name, of_seeds in bests.items():
                best = by_seed([own[turn].dropna() for own in of_seeds if turn in own])
                cells[name] = mean_estimate(best, study).interval
            counts = {"num_tasks": len(best)} | _number_cells(here)
            rows.append(head | {"turn": turn} | _flat(cells) | counts)
    for row in rows_of(scores, study):
        every = [counts_by(_against_fresh(own), ["task_id"], names) for own in row.seeds]
        head = {"policy": row.kind, "seed": row.seed, "split": ALL_SPLITS, "num_seeds": row.num_seeds}
        counts = {"num_tasks": len(set().union(*(own.index for own in every)))} | _number_cells(every)
        rows.append(head | _flat(_share_cells(every, measured, study)) | counts)
    shown = [*SHARES[:4], "best_speedup", *SHARES[4:], "fresh", "over_fresh", "trajectory_speedup"]
    columns = [*_HEAD, "turn", *with_ends(*shown), "num_tasks", *_COUNTED, "num_seeds"]
    return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64", "turn": "Int64"})


_BOTH = ("fresh", "against_fresh")


def _against_fresh(scores: pd.DataFrame) -> pd.DataFrame:
    """`turn_changes`, with ``improved`` once more where there is a ``fresh`` to compare it with."""
    changes = turn_changes(scores)
    return changes.assign(against_fresh=changes["improved"].where(changes["fresh"].notna()))


def _share_cells(here: Sequence[pd.DataFrame], names: Iterable[str], study: Study) -> dict[str, Interval]:
    """These shares, and by how much kernels beat fresh answers."""
    cells = {name: share_of(here, name, study).interval for name in names}
    return cells | {"over_fresh": minus(*(share_of(here, n, study) for n in ("against_fresh", "fresh"))).interval}


def _number_cells(here: Sequence[pd.DataFrame]) -> dict[str, int]:
    return {column: sum(int(own[name, "count"].sum()) for own in here) for column, name in _COUNTED.items()}


_COUNTED = {
    "num_kernels": "correct",
    "num_wrong_before": "mended",
    "num_correct_before": "kept",
    "num_best_before": "improved",
}
"""Columns that say over how many kernels these shares are."""


def _best_so_far(own: pd.DataFrame) -> pd.DataFrame:
    """Tasks and trajectories x turns: its fastest correct kernel up to the turn, 0 without one, NaN before any."""
    by_turn = _judged(own).groupby(["task_id", "trajectory", "turn"])["speedup"].max().unstack("turn")
    return by_turn.cummax(axis=1).ffill(axis=1)


def mended_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each policy, seed, split and kind of error (`ANY_ERROR` first): what became of such a kernel.

    All turns after the first together. ``mended``: share that the next turn made correct; ``fresh``: share that would
    be correct if a first answer stood in its place (`_after_wrong`), and ``over_fresh`` the difference, of the kernels
    that have both; ``copied``: share that the next turn gave again, or nearly; ``num_kernels``: wrong kernels that had
    a next turn.
    """
    rows = []
    for head, row in _rows(scores, study):
        names = ("mended", *_BOTH, "copied")
        wrong = [_after_wrong(own) for own in row.seeds]
        kinds = [counts_by(own, ["error", "task_id"], names) for own in wrong]
        chosen = {ANY_ERROR: [counts_by(own, ["task_id"], names) for own in wrong]}
        chosen |= {outcome.value: _of(kinds, "error", outcome.value) for outcome in OUTCOMES}
        for error, here in chosen.items():
            if num_kernels := sum(int(counts["mended", "count"].sum()) for counts in here):
                cells = _share_cells(here, ("mended", "fresh", "copied"), study)
                rows.append(head | {"error": error} | _flat(cells) | {"num_kernels": num_kernels})
    columns = [*_HEAD, "error", *with_ends("mended", "fresh", "over_fresh", "copied"), "num_kernels", "num_seeds"]
    return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64"})


def _after_wrong(scores: pd.DataFrame) -> pd.DataFrame:
    """Rows of `turn_changes` that follow a wrong kernel. ``fresh``: the share of first answers of the task's other
    trajectories that are correct; its own is left out, because a trajectory with wrong kernels began with a wrong one
    more often than others. ``against_fresh``: ``mended`` where there is a ``fresh`` to compare it with."""
    changes, turns = turn_changes(scores), _judged(scores)
    wrong = changes.assign(fresh=_first_answers_above(turns, pd.Series(0.0, turns.index)))[changes["error"].notna()]
    return wrong.assign(against_fresh=wrong["mended"].where(wrong["fresh"].notna()))


_HEAD = ["policy", "seed", "split"]


def _rows(scores: pd.DataFrame, study: Study) -> Iterator[tuple[dict[str, Any], Rows]]:
    """The head of each row of a recipe's policy, or of its seeds together, on a split; and their scores.

    ``seed`` is none where they are together.
    """
    for split, row in rows_by(scores, "split", study):
        yield {"policy": row.kind, "seed": row.seed, "split": split, "num_seeds": row.num_seeds}, row


def _flat(cells: Mapping[str, Interval]) -> dict[str, float]:
    return {column: value for name, interval in cells.items() for column, value in interval.cells(name).items()}
