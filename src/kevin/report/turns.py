"""What turns are worth: what becomes of a kernel on the next turn, and the best so far, for every policy and seed.

``turns``: one row for each policy, seed, split and turn, and one of all splits and turns together; of several seeds one
more for all of them. ``mended``: wrong kernels by kind of error, and how many first answers would be right in their
place. Shares are over the kernels of all tasks together; of several seeds their mean. Turns that the harness could not
judge are left out, with what would have followed from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.core.types import Outcome
from kevin.report import metrics
from kevin.report.metrics import Estimate, by_seed, divide, mean_estimate, minus, share_estimate, with_ends
from kevin.report.recipes import ALL_SPLITS, OUTCOMES, rows_by_split, rows_of
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
    trajectories that would have improved on it as well; ``against_fresh``: ``improved`` of those that have it.
    ``error``: the outcome before where it was wrong.
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
    values["against_fresh"] = values["improved"].where(values["fresh"].notna())
    return turns[["task_id", "trajectory", "turn"]].assign(**values, error=before["outcome"].where(was_wrong))


def _judged(scores: pd.DataFrame) -> pd.DataFrame:
    """A policy's turns that have a verdict, in order; the speedup of a wrong kernel is 0."""
    turns = metrics.usable(scores).sort_values(["task_id", "trajectory", "turn"], kind="stable")
    return turns.assign(speedup=turns["speedup"].where(turns["outcome"] == Outcome.CORRECT.value, 0.0))


def _first_answers_above(turns: pd.DataFrame, bar: pd.Series) -> pd.Series:
    """Of each turn that has a bar: the share of first answers of the task's other trajectories that are above it."""
    found = np.full(len(turns), np.nan)
    trajectory, speedup, bars = (own.to_numpy() for own in (turns["trajectory"], turns["speedup"], bar))
    is_first = (turns["turn"] == 1).to_numpy()
    for own in map(np.asarray, turns.groupby("task_id").indices.values()):
        first = own[is_first[own]]
        by_trajectory = dict(zip(trajectory[first], speedup[first], strict=True))
        mine = np.array([by_trajectory.get(one, np.nan) for one in trajectory[own]])
        above = len(first) - np.searchsorted(np.sort(speedup[first]), bars[own], side="right") - (mine > bars[own])
        shares = divide(above, len(first) - ~np.isnan(mine))
        found[own] = np.where(np.isnan(bars[own]), np.nan, shares)
    return pd.Series(found, turns.index)


def counts(changes: pd.DataFrame) -> pd.DataFrame:
    """Of `turn_changes`, by task: of each share the kernels counted, and of how many."""
    names = changes.columns.drop(["task_id", "trajectory", "turn", "error"])
    return changes.groupby("task_id")[list(names)].agg(["sum", "count"])


def share_of(
    seeds: Sequence[pd.DataFrame], name: str, study: Study, tasks: pd.Index | None = None, stream: int = 0
) -> Estimate:
    """One of `SHARES`, the mean over seeds, from the `counts` of each; of these tasks, or of all."""
    counted, of = (by_seed(own[name, column] for own in seeds) for column in ("sum", "count"))
    if tasks is not None:
        counted, of = counted.loc[tasks], of.loc[tasks]
    return share_estimate(counted, of, study, stream)


def _shares(changes: Sequence[pd.DataFrame], names: Sequence[str], study: Study) -> dict[str, Estimate]:
    """These shares of the changes of each seed, and by how much kernels beat fresh answers."""
    of_seeds = [counts(own) for own in changes]
    found = {name: share_of(of_seeds, name, study) for name in (*names, "against_fresh")}
    return found | {"over_fresh": minus(found.pop("against_fresh"), found["fresh"])}


_COUNTED = {
    "num_kernels": "correct",
    "num_wrong_before": "mended",
    "num_correct_before": "kept",
    "num_best_before": "improved",
}
"""Columns that say over how many kernels these shares are."""
_HEAD = ("policy", "seed", "split")


def turns_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each policy, seed, split and turn, and for each policy and seed one of all splits and turns together.

    ``over_fresh``: ``improved`` minus ``fresh``, of the turns that have both. ``best_speedup``: the fastest correct
    kernel of all trajectories so far, 0 if there is none, mean over tasks; ``trajectory_speedup``: of one trajectory,
    mean over a task's trajectories and over tasks. ``num_kernels``: judged on this turn; ``num_wrong_before``,
    ``num_correct_before``, ``num_best_before``: what ``mended``, the shares of correct kernels and ``improved`` are
    taken over.
    """
    rows = []
    names = (*SHARES, "fresh")
    for head, seeds in rows_by_split(scores, study):
        changes, so_far = [turn_changes(own) for own in seeds], [_best_so_far(own) for own in seeds]
        for turn in sorted({turn for own in changes for turn in own["turn"]}):
            here = [own[own["turn"] == turn] for own in changes]
            bests = [own[turn].dropna().groupby("task_id") for own in so_far if turn in own]
            found = _shares(here, names, study)
            found["best_speedup"] = mean_estimate((own.max() for own in bests), study)
            found["trajectory_speedup"] = mean_estimate((own.mean() for own in bests), study)
            num_tasks = len({task for own in bests for task in own.groups})
            rows.append(head | {"turn": turn, "num_tasks": num_tasks} | metrics.cells(found) | _numbers(here))
    for row, seeds in rows_of(scores, study):
        changes = [turn_changes(own) for own in seeds]
        head = {"policy": row.kind, "seed": row.seed, "split": ALL_SPLITS, "num_seeds": row.num_seeds}
        head["num_tasks"] = len({task for own in changes for task in own["task_id"]})
        rows.append(head | metrics.cells(_shares(changes, names, study)) | _numbers(changes))
    shown = [*SHARES[:4], "best_speedup", *SHARES[4:], "fresh", "over_fresh", "trajectory_speedup"]
    columns = [*_HEAD, "turn", *with_ends(*shown), "num_tasks", *_COUNTED, "num_seeds"]
    return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64", "turn": "Int64"})


def _numbers(changes: Sequence[pd.DataFrame]) -> dict[str, int]:
    return {column: sum(int(own[name].count()) for own in changes) for column, name in _COUNTED.items()}


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
    for head, seeds in rows_by_split(scores, study):
        wrong = [_after_wrong(own) for own in seeds]
        for error in (ANY_ERROR, *(outcome.value for outcome in OUTCOMES)):
            here = wrong if error == ANY_ERROR else [own[own["error"] == error] for own in wrong]
            if num_kernels := sum(map(len, here)):
                found = _shares(here, ("mended", "fresh", "copied"), study)
                rows.append(head | {"error": error, "num_kernels": num_kernels} | metrics.cells(found))
    columns = [*_HEAD, "error", *with_ends("mended", "fresh", "over_fresh", "copied"), "num_kernels", "num_seeds"]
    return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64"})


def _after_wrong(scores: pd.DataFrame) -> pd.DataFrame:
    """Rows of `turn_changes` that follow a wrong kernel. ``fresh``: the share of first answers of the task's other
    trajectories that are correct; its own is left out, because a trajectory with wrong kernels began with a wrong one
    more often than others. ``against_fresh``: ``mended`` where there is a ``fresh`` to compare it with."""
    changes, turns = turn_changes(scores), _judged(scores)
    wrong = changes.assign(fresh=_first_answers_above(turns, pd.Series(0.0, turns.index)))[changes["error"].notna()]
    return wrong.assign(against_fresh=wrong["mended"].where(wrong["fresh"].notna()))
