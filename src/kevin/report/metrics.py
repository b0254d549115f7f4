"""Benchmark metrics over scored turns: plain functions of frames and arrays, no files, no plotting.

A *score frame* has one row a turn with at least ``task_id, trajectory, turn, outcome, speedup``. What has no outcome
(the harness failed) is left out, never counted as 0: such a turn cannot be its trajectory's best, a trajectory of
only such turns is no trajectory, and a task without trajectories is no task. Speedups are ratios over eager PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from kevin.core.types import Outcome

TASK, TRAJECTORY = "task_id", "trajectory"


class Interval(NamedTuple):
    """An estimate with its 95 % percentile interval; all NaN where nothing can be estimated."""

    value: float
    low: float
    high: float


NOTHING = Interval(math.nan, math.nan, math.nan)


class Difference(NamedTuple):
    """A mean paired difference over the tasks that two policies share."""

    value: float
    low: float
    high: float
    num_tasks: int


# --- trajectories -----------------------------------------------------------------------------------------------


def usable(scores: pd.DataFrame) -> pd.DataFrame:
    """The turns that have a verdict."""
    return scores[scores["outcome"].notna()]


def trajectory_best(
    scores: pd.DataFrame, num_turns: int | None = None, ratios: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """One row a trajectory: ``task_id, trajectory, correct, speedup``, the best within its first ``num_turns`` turns.

    Args:
        scores: one policy's score frame.
        num_turns: all turns when absent.
        ratios: T_baseline / T_eager by task id, to express speedups over another baseline; tasks without a ratio are
            left out.

    Returns:
        ``correct``: holds a correct kernel; ``speedup``: of the fastest correct kernel, 0 if there is none.
    """
    turns = usable(scores)
    if num_turns is not None:
        turns = turns[turns["turn"] <= num_turns]
    correct = turns["outcome"] == Outcome.CORRECT.value
    speedup = turns["speedup"].astype("float64").where(correct, 0.0)
    if ratios is not None:
        factor = turns[TASK].map(ratios)
        turns, correct = turns[factor.notna()], correct[factor.notna()]
        speedup = (speedup * factor)[factor.notna()]
    rows = pd.DataFrame({TASK: turns[TASK], TRAJECTORY: turns[TRAJECTORY], "correct": correct, "speedup": speedup})
    return rows.groupby([TASK, TRAJECTORY], as_index=False, sort=True).agg(
        correct=("correct", "any"), speedup=("speedup", "max")
    )


def fast(trajectories: pd.DataFrame, p: float) -> pd.Series:
    """Whether each trajectory holds a correct kernel of speedup >= p; with p = 0, whether it is correct at all."""
    return trajectories["correct"] & (trajectories["speedup"] >= p)


def task_values(trajectories: pd.DataFrame, thresholds: Sequence[float] = ()) -> pd.DataFrame:
    """Per-task values (index: task_id), of which every figure of a table is the mean over tasks.

    ``*_best`` is the best of the task's trajectories, ``*_avg`` their mean: ``correct``, ``speedup`` (0 if wrong) and
    ``fast_<p>``. ``log_speedup_*`` is over correct trajectories only, NaN where there is none.
    """
    frame = trajectories.assign(log_speedup=np.log(trajectories["speedup"].where(trajectories["correct"])))
    columns = ["correct", "speedup", "log_speedup"]
    for p in thresholds:
        frame[f"fast_{p:g}"] = fast(trajectories, p)
        columns.append(f"fast_{p:g}")
    groups = frame.astype(dict.fromkeys(columns, "float64")).groupby(TASK)[columns]
    return pd.concat([groups.max().add_suffix("_best"), groups.mean().add_suffix("_avg")], axis=1)


# --- best of k --------------------------------------------------------------------------------------------------


def best_of_k_weights(n: int, k: int) -> np.ndarray:
    """Weights of n values in ascending order whose sum is the expected maximum of k drawn without replacement.

    The i-th smallest (from 1) is the maximum of C(i-1, k-1) of the C(n, k) subsets.
    """
    if not 1 <= k <= n:
        raise ValueError(f"k must lie in 1..{n}, got {k}")
    total = math.comb(n, k)
    return np.array([math.comb(i - 1, k - 1) / total for i in range(1, n + 1)])


def best_of_k(values: Sequence[float] | np.ndarray, k: int) -> float:
    """Unbiased estimate, from n samples, of the expected maximum of k (k <= n).

    Of values 0 and 1 it is pass@k of Chen et al. (2021), 1 - C(n-c, k) / C(n, k).
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    return float(ordered @ best_of_k_weights(len(ordered), k))


def smallest_group(trajectories: pd.DataFrame) -> int:
    """Number of trajectories of the task that has fewest: the largest k that every task can answer; 0 without tasks."""
    sizes = trajectories.groupby(TASK).size()
    return int(sizes.min()) if len(sizes) else 0


def best_of_k_by_task(trajectories: pd.DataFrame, column: str, k: int) -> pd.Series:
    """`best_of_k` of a trajectory column for each task."""
    return trajectories.groupby(TASK)[column].agg(lambda v: best_of_k(v.to_numpy(float), k)).astype(float)


# --- bootstrap over tasks ---------------------------------------------------------------------------------------


def _drawn_tasks(num_tasks: int, num_resamples: int, seed: int) -> np.ndarray:
    """Indices of the resampled tasks, shape (num_resamples, num_tasks)."""
    return np.random.default_rng(seed).integers(0, num_tasks, size=(num_resamples, num_tasks))


def bootstrap_means(values: np.ndarray, num_resamples: int, seed: int) -> np.ndarray:
    """Means of ``num_resamples`` resamples of the tasks, shape (num_resamples,). NaN values are left out of each mean.

    The draws depend on the seed and the number of tasks only, so columns of one table are resampled together.
    """
    drawn = values[_drawn_tasks(len(values), num_resamples, seed)]
    known = ~np.isnan(drawn)
    count = known.sum(axis=1)
    total = np.where(known, drawn, 0.0).sum(axis=1)
    means: np.ndarray = np.divide(total, count, out=np.full(num_resamples, math.nan), where=count > 0)
    return means


def mean_interval(values: Sequence[float] | np.ndarray | pd.Series, *, num_resamples: int, seed: int) -> Interval:
    """Mean over tasks with its bootstrap 95 % percentile interval. NaN values are left out."""
    array = np.asarray(values, dtype=float)
    if not len(array) or np.isnan(array).all():
        return NOTHING
    low, high = np.nanpercentile(bootstrap_means(array, num_resamples, seed), [2.5, 97.5])
    return Interval(float(np.nanmean(array)), float(low), float(high))


def share_interval(counted: pd.Series, of: pd.Series, *, num_resamples: int, seed: int) -> Interval:
    """Share ``counted / of`` of kernels, all tasks' together, with its interval over tasks (both: by task).

    A kernel weighs as much as any other; a task without any in ``of`` adds none. Resamples without any are left out.
    """
    counts = np.stack([counted.to_numpy(float), of.to_numpy(float)])
    totals = counts.sum(axis=1)
    if not totals[1]:
        return NOTHING
    resampled = counts[:, _drawn_tasks(counts.shape[1], num_resamples, seed)].sum(axis=2)
    known = resampled[:, resampled[1] > 0]
    low, high = np.percentile(known[0] / known[1], [2.5, 97.5])
    return Interval(float(totals[0] / totals[1]), float(low), float(high))


def geometric_interval(
    log_values: Sequence[float] | np.ndarray | pd.Series, *, num_resamples: int, seed: int
) -> Interval:
    """Geometric mean, from logarithms, with its interval."""
    interval = mean_interval(log_values, num_resamples=num_resamples, seed=seed)
    return Interval(*(math.exp(v) for v in interval))


def paired_difference(a: pd.Series, b: pd.Series, *, num_resamples: int, seed: int) -> Difference:
    """Mean of a - b over the tasks that both have (index: task_id); tasks are resampled in pairs."""
    difference = (a - b).dropna()
    interval = mean_interval(difference, num_resamples=num_resamples, seed=seed)
    return Difference(*interval, num_tasks=len(difference))
