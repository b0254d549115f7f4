"""Benchmark metrics over scored turns: plain functions of frames and arrays, no files, no plotting.

A *score frame* has one row a turn with at least ``task_id, trajectory, turn, outcome, speedup``. What has no outcome
(the harness failed) is left out, never counted as 0: such a turn cannot be its trajectory's best, a trajectory of
only such turns is no trajectory, and a task without trajectories is no task. Speedups are ratios over eager PyTorch.

An *estimate* is over tasks and seeds. All seeds of a recipe, and all policies, answer the same tasks: both are crossed,
and both are resampled (the pigeonhole bootstrap; Owen, 2007, Annals of Applied Statistics 1:386). Of each resample r
the value of every seed is computed on the drawn tasks, v_rs; then as many seeds are drawn with replacement, and the
estimate is

    v_r = mean_s v_rs + sqrt(S / (S - 1)) * (mean over the drawn seeds of v_rs - mean_s v_rs).

The factor makes up for the variance among few seeds that drawing from them loses, (S - 1) / S of it; one seed is taken
as it is, and then the interval is over tasks alone. The tasks drawn depend on their number and the study's seed alone,
so two estimates on the same tasks are resampled in pairs. Seeds of different recipes are drawn apart (``stream``), but
where a seed is a whole study, with a base model of its own: these are drawn together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.core.types import Outcome
from kevin.report.recipes import seeds_are_pipelines

TASK, TRAJECTORY = "task_id", "trajectory"


class Interval(NamedTuple):
    """An estimate with its 95 % percentile interval; all NaN where nothing can be estimated."""

    value: float
    low: float
    high: float


def with_ends(*names: str) -> list[str]:
    """Columns of numbers and of the ends of their intervals."""
    return [f"{name}{end}" for name in names for end in ("", "_low", "_high")]


NOTHING = Interval(math.nan, math.nan, math.nan)


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
    turns = turns.assign(correct=correct, speedup=turns["speedup"].astype("float64").where(correct, 0.0))
    if ratios is not None:
        turns = turns[turns[TASK].isin(ratios)]
        turns = turns.assign(speedup=turns["speedup"] * turns[TASK].map(dict(ratios)))
    return turns.groupby([TASK, TRAJECTORY])[["correct", "speedup"]].max().reset_index()


def with_fast(trajectories: pd.DataFrame, thresholds: Sequence[float]) -> pd.DataFrame:
    """With a column ``fast_<p>`` for each threshold: whether a trajectory holds a correct kernel of speedup >= p; with
    p = 0, whether it is correct at all."""
    speedup = trajectories["speedup"].where(trajectories["correct"])
    return trajectories.assign(**{f"fast_{p:g}": speedup >= p for p in thresholds})


def task_values(trajectories: pd.DataFrame, drawn: int | None = None) -> pd.DataFrame:
    """Per-task values (index: task_id) of each measure, of which every figure of a table is the mean over tasks.

    ``*_best`` is the best of the task's trajectories, or of so many of them that are ``drawn`` (see `best_of`);
    ``*_avg`` is their mean. What is yes or no counts as 1 and 0; NaN values are left out.
    """
    measures = trajectories.set_index(TASK).drop(columns=TRAJECTORY).astype("float64")
    groups = measures.groupby(TASK)
    if drawn is None:
        best = groups.max()
    else:
        best = pd.DataFrame({name: best_of(trajectories, name, drawn) for name in map(str, measures)})
    return pd.concat([best.add_suffix("_best"), groups.mean().add_suffix("_avg")], axis=1)


class Shape(NamedTuple):
    """Of rollouts: a task's trajectories, and the turns of each."""

    trajectories: int
    turns: int

    def __str__(self) -> str:
        return f"{self.trajectories} × {self.turns}"

    @property
    def num_kernels(self) -> int:
        return self.trajectories * self.turns

    @property
    def as_first_answers(self) -> Shape:
        """As many kernels."""
        return Shape(self.num_kernels, 1)


def common_shape(policies: Sequence[pd.DataFrame]) -> Shape:
    """The most that score frames of all these policies have: at more of either the best ones are no comparison.
    Policies without a verdict are left out."""
    judged = [own for own in map(usable, policies) if len(own)]
    if not judged:
        return Shape(1, 1)
    return Shape(
        min(int(own.groupby(TASK)[TRAJECTORY].nunique().max()) for own in judged),
        min(int(own["turn"].max()) for own in judged),
    )


def values_at(scores: pd.DataFrame, shape: Shape) -> pd.DataFrame:
    """`task_values` of a policy's score frame as if it had ``shape``, ``fast_1`` among them."""
    return task_values(with_fast(trajectory_best(scores, shape.turns), [1.0]), shape.trajectories)


# --- best of k --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def best_of_k_weights(n: int, k: int) -> np.ndarray:
    """Weights of n values in ascending order whose sum is the expected maximum of k drawn without replacement.

    The i-th smallest (from 1) is the maximum of C(i-1, k-1) of the C(n, k) subsets.
    """
    total = math.comb(n, k)
    return np.array([math.comb(i - 1, k - 1) / total for i in range(1, n + 1)])


def smallest_group(trajectories: pd.DataFrame) -> int:
    """Number of trajectories of the task that has fewest: the largest k that every task can answer; 0 without tasks."""
    sizes = trajectories.groupby(TASK).size()
    return int(sizes.min()) if len(sizes) else 0


def best_of(trajectories: pd.DataFrame, column: str, k: int) -> pd.Series:
    """Unbiased estimate, for each task, of the expected maximum of k of its trajectories, or of all where it has fewer
    (index: task_id, sorted).

    Of values 0 and 1 it is pass@k of Chen et al. (2021), 1 - C(n-c, k) / C(n, k).
    """
    codes, tasks = pd.factorize(trajectories[TASK], sort=True)
    values = trajectories[column].to_numpy(float)
    order = np.lexsort((values, codes))
    codes, values = codes[order], values[order]
    sizes = np.bincount(codes, minlength=len(tasks))
    weights = np.concatenate([np.empty(0), *(best_of_k_weights(int(n), min(k, int(n))) for n in sizes)])
    return pd.Series(
        np.bincount(codes, weights * values, minlength=len(tasks)), pd.Index(tasks, name=TASK), name=column
    )


# --- estimates over tasks and seeds -------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def task_weights(num_tasks: int, num_resamples: int, seed: int) -> np.ndarray:
    """How often each task is drawn in each resample, shape (num_resamples, num_tasks); rows add up to num_tasks.

    They depend on these numbers only, so columns of one table, and policies on the same tasks, are resampled together.
    """
    drawn = np.random.default_rng(seed).integers(0, num_tasks, size=(num_resamples, num_tasks))
    places = drawn + num_tasks * np.arange(num_resamples)[:, None]
    weights = np.bincount(places.ravel(), minlength=num_resamples * num_tasks).astype(float)
    weights = weights.reshape(num_resamples, num_tasks)
    weights.flags.writeable = False
    return weights


def weighted_means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Means of ``values`` (T,) or (S, T) under each row of ``weights`` (R, T): shape (R,) or (R, S).

    NaN values are left out; a mean of nothing is NaN.
    """
    known = ~np.isnan(values)
    return divide(weights @ np.where(known, values, 0.0).T, weights @ known.astype(float).T)


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, NaN where b is not above 0."""
    quotient: np.ndarray = np.divide(a, b, out=np.full(np.shape(a), math.nan), where=b > 0)
    return quotient


def cells(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """The columns of a table that hold these and the ends of their intervals."""
    return {
        column: value
        for name, estimate in estimates.items()
        for column, value in zip(with_ends(name), estimate.interval, strict=True)
    }


class Estimate(NamedTuple):
    """A number, and what it comes to in each resample: shape (num_bootstrap,), NaN where it cannot be computed."""

    value: float
    draws: np.ndarray

    @property
    def interval(self) -> Interval:
        """With the 2.5th and 97.5th percentile of its resampled values, those that could not be computed left out."""
        known = self.draws[~np.isnan(self.draws)]
        if math.isnan(self.value) or not len(known):
            return NOTHING
        low, high = np.percentile(known, [2.5, 97.5])
        return Interval(float(self.value), float(low), float(high))


def by_seed(values: Iterable[pd.Series]) -> pd.DataFrame:
    """Values by task (index) as one frame, a column for each seed; NaN where a seed has none of a task."""
    seeds = list(values)
    index = seeds[0].index
    if index.is_monotonic_increasing and all(index.equals(own.index) for own in seeds[1:]):  # several times as fast
        return pd.DataFrame(np.column_stack([own.to_numpy() for own in seeds]), index)
    return pd.concat(seeds, axis=1, keys=range(len(seeds)), sort=True)


def mean_estimate(values: pd.DataFrame | pd.Series | Iterable[pd.Series], study: Study, stream: int = 0) -> Estimate:
    """Mean over tasks of each seed, then over seeds. ``values``: tasks x seeds, or by task of one seed or of each; NaN
    where there is none."""
    if not isinstance(values, pd.DataFrame | pd.Series):
        values = by_seed(values)
    array = np.atleast_2d(values.to_numpy(float).T)
    if not array.size or np.isnan(array).all():
        return Estimate(math.nan, np.full(study.report.num_bootstrap, math.nan))
    weights = task_weights(array.shape[1], study.report.num_bootstrap, study.seed)
    one = np.ones((1, array.shape[1]))
    found = _over_seeds(weighted_means(array, one)[0], weighted_means(array, weights), study, stream)
    least, most = np.nanmin(array), np.nanmax(array)  # no mean lies beyond all values
    return Estimate(float(np.clip(found.value, least, most)), np.clip(found.draws, least, most))


def share_estimate(counted: pd.DataFrame, of: pd.DataFrame, study: Study, stream: int = 0) -> Estimate:
    """Share ``counted / of`` of each seed's kernels, all tasks' together, then the mean over seeds (tasks x seeds).

    A kernel weighs as much as any other; a task without any in ``of`` adds none. Resamples without any are left out.
    """
    top, bottom = (np.nan_to_num(frame.to_numpy(float)) for frame in (counted, of))
    if not bottom.sum():
        return Estimate(math.nan, np.full(study.report.num_bootstrap, math.nan))
    weights = task_weights(len(top), study.report.num_bootstrap, study.seed)
    points = divide(top.sum(axis=0), bottom.sum(axis=0))
    found = _over_seeds(points, divide(weights @ top, weights @ bottom), study, stream)
    return Estimate(found.value, np.clip(found.draws, 0.0, 1.0))


def minus(a: Estimate, b: Estimate) -> Estimate:
    return Estimate(a.value - b.value, a.draws - b.draws)


def ratio(a: Estimate, b: Estimate) -> Estimate:
    """a / b; NaN where b is 0."""
    value = a.value / b.value if b.value > 0 else math.nan
    return Estimate(value, divide(a.draws, b.draws))


def exp(a: Estimate) -> Estimate:
    """Of a mean of logarithms: the geometric mean."""
    return Estimate(math.exp(a.value), np.exp(a.draws))


_POWER = 0.8
_PER_HALF_WIDTH = (NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(_POWER)) / NormalDist().inv_cdf(0.975)


def smallest_shown(low: float, high: float) -> float:
    """The smallest effect that four in five studies of so many tasks and seeds would have shown: 1.43 times half of the
    95 % interval's width, as that of a normal distribution is. NaN of an interval without width: where all tasks and
    seeds agree, no draw of them tells how much others would differ."""
    return _PER_HALF_WIDTH * (high - low) / 2 if high > low else math.nan


def _over_seeds(points: np.ndarray, resampled: np.ndarray, study: Study, stream: int) -> Estimate:
    """Of each seed's value (S,) and its resampled values (R, S). Seeds without a value are left out."""
    if not (known := ~np.isnan(points)).any():
        return Estimate(math.nan, np.full(len(resampled), math.nan))
    points, resampled = points[known], resampled[:, known]
    num_seeds = len(points)
    if num_seeds == 1:
        return Estimate(float(points[0]), resampled[:, 0])
    means = _row_means(resampled)
    rng = np.random.default_rng([study.seed, 1 + (0 if seeds_are_pipelines(study) else stream)])  # tasks are drawn by 0
    drawn = np.take_along_axis(resampled, rng.integers(0, num_seeds, size=resampled.shape), axis=1)
    scale = math.sqrt(num_seeds / (num_seeds - 1))
    return Estimate(float(points.mean()), means + scale * (_row_means(drawn) - means))


def _row_means(values: np.ndarray) -> np.ndarray:
    known = ~np.isnan(values)
    return divide(np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1))
