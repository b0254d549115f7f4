"""Estimates over tasks and seeds with their resampled values: differences and ratios of them have intervals too.

All seeds of a recipe, and all policies, answer the same tasks: tasks and seeds are crossed, and both are resampled
(the pigeonhole bootstrap; Owen, 2007, Annals of Applied Statistics 1:386). Of each resample r the value of every seed
is computed on the drawn tasks, v_rs; then as many seeds are drawn with replacement, and the estimate is

    v_r = mean_s v_rs + sqrt(S / (S - 1)) * (mean over the drawn seeds of v_rs - mean_s v_rs).

The factor makes up for the variance among few seeds that drawing from them loses, (S - 1) / S of it; one seed is taken
as it is, and then the interval is over tasks alone. The tasks drawn depend on their number and the study's seed alone,
so two estimates on the same tasks are resampled in pairs; seeds of different recipes are drawn apart (``stream``).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.report.metrics import Interval, divide, percentile_interval, task_weights, weighted_means


class Estimate(NamedTuple):
    """A number, and what it comes to in each resample: shape (num_bootstrap,), NaN where it cannot be computed."""

    value: float
    draws: np.ndarray

    @property
    def interval(self) -> Interval:
        """With its 95 % percentile interval."""
        return percentile_interval(self.value, self.draws)


def mean_estimate(values: pd.DataFrame, study: Study, stream: int = 0) -> Estimate:
    """Mean over tasks of each seed, then over seeds. ``values``: tasks x seeds, NaN where there is none."""
    array = values.to_numpy(float).T
    if not array.size or np.isnan(array).all():
        return Estimate(math.nan, np.full(study.report.num_bootstrap, math.nan))
    weights = task_weights(array.shape[1], study.report.num_bootstrap, study.seed)
    one = np.ones((1, array.shape[1]))
    found = _over_seeds(weighted_means(array, one)[0], weighted_means(array, weights), study, stream)
    least, most = np.nanmin(array), np.nanmax(array)  # no mean lies beyond all values
    return Estimate(float(np.clip(found.value, least, most)), np.clip(found.draws, least, most))


def share_estimate(counted: pd.DataFrame, of: pd.DataFrame, study: Study, stream: int = 0) -> Estimate:
    """Share ``counted / of`` of each seed's kernels, all tasks' together, then the mean over seeds (tasks x seeds)."""
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
    95 % interval's width, as that of a normal distribution is."""
    return _PER_HALF_WIDTH * (high - low) / 2


def _over_seeds(points: np.ndarray, resampled: np.ndarray, study: Study, stream: int) -> Estimate:
    """Of each seed's value (S,) and its resampled values (R, S). Seeds without a value are left out."""
    if not (known := ~np.isnan(points)).any():
        return Estimate(math.nan, np.full(len(resampled), math.nan))
    points, resampled = points[known], resampled[:, known]
    num_seeds = len(points)
    if num_seeds == 1:
        return Estimate(float(points[0]), resampled[:, 0])
    means = _row_means(resampled)
    rng = np.random.default_rng([study.seed, stream])
    drawn = np.take_along_axis(resampled, rng.integers(0, num_seeds, size=resampled.shape), axis=1)
    scale = math.sqrt(num_seeds / (num_seeds - 1))
    return Estimate(float(points.mean()), means + scale * (_row_means(drawn) - means))


def _row_means(values: np.ndarray) -> np.ndarray:
    known = ~np.isnan(values)
    return divide(np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1))
