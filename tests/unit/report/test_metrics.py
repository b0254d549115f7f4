import math
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fixtures import make_study

from kevin.report import metrics
from kevin.report.metrics import Estimate, mean_estimate, minus, ratio, share_estimate


def frame(*rows: tuple[str, int, int, str | None, float | None]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["task_id", "trajectory", "turn", "outcome", "speedup"])


SCORES = frame(
    ("a", 0, 1, "incorrect", None),
    ("a", 0, 2, "correct", 0.5),
    ("a", 0, 3, "correct", 2.0),
    ("a", 1, 1, "compile_error", None),
    ("a", 1, 2, None, None),
    ("a", 2, 1, None, None),
    ("b", 0, 1, "correct", 1.0),
    ("c", 0, 1, None, None),
)


def best_of_k(values: list[float], k: int) -> float:
    """Of one task."""
    own = pd.DataFrame({"task_id": "a", "trajectory": range(len(values)), "speedup": values})
    return float(metrics.best_of(own, "speedup", k)["a"])


@given(st.lists(st.floats(0, 100), min_size=1, max_size=7), st.data())
def test_best_of_k_equals_mean_over_all_subsets(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    brute = np.mean([max(subset) for subset in combinations(values, k)])
    assert best_of_k(values, k) == pytest.approx(brute)


def test_best_of_k_by_task_of_uneven_tasks_equals_mean_over_all_subsets() -> None:
    rng = np.random.default_rng(5)
    sizes = {"b": 4, "a": 6, "c": 4, "d": 2}
    rows = [(task, i, float(rng.choice([0, 0.5, 1, 3]))) for task, n in sizes.items() for i in range(n)]
    own = pd.DataFrame(rows, columns=["task_id", "trajectory", "speedup"]).sample(frac=1, random_state=1)
    best = metrics.best_of(own, "speedup", 3)
    brute = {
        task: np.mean([max(chosen) for chosen in combinations(values, min(3, len(values)))])
        for task, values in own.groupby("task_id")["speedup"]
    }
    assert best.to_dict() == pytest.approx(brute) and best.index.tolist() == ["a", "b", "c", "d"]


def test_trajectory_best_leaves_out_what_has_no_verdict() -> None:
    best = metrics.trajectory_best(SCORES)
    assert list(best.itertuples(index=False, name=None)) == [
        ("a", 0, True, 2.0),
        ("a", 1, False, 0.0),
        ("b", 0, True, 1.0),
    ]


def test_task_values() -> None:
    values = metrics.task_values(metrics.with_fast(metrics.trajectory_best(SCORES), (0.0, 1.0, 1.5)))
    assert values.index.tolist() == ["a", "b"]
    a, b = values.loc["a"], values.loc["b"]
    assert (a["correct_best"], a["correct_avg"], a["speedup_best"], a["speedup_avg"]) == (1, 0.5, 2.0, 1.0)
    assert (a["fast_0_best"], a["fast_0_avg"], a["fast_1.5_avg"]) == (1, 0.5, 0.5)
    assert (b["fast_1_best"], b["fast_1.5_best"]) == (1, 0)


VALUES = pd.DataFrame({0: [0.0, 2.0, 7.0], 1: [1.0, 1.5, 3.0]}, index=["a", "b", "c"])
COUNTED = pd.DataFrame({0: [1, 0, 3], 1: [2, 2, 0]}, index=VALUES.index)
OF = pd.DataFrame({0: [2, 1, 5], 1: [4, 2, 1]}, index=VALUES.index)


def exact(value_of) -> np.ndarray:
    """``value_of(tasks, seed)`` over every way to draw three tasks and two seeds, in the formula of the module."""
    found = []
    for tasks in product(range(3), repeat=3):
        own = [value_of(list(tasks), seed) for seed in (0, 1)]
        mean = sum(own) / 2
        found += [mean + math.sqrt(2) * ((own[i] + own[j]) / 2 - mean) for i, j in product((0, 1), repeat=2)]
    return np.array(found)


def mean_of(tasks: list[int], seed: int) -> float:
    return float(VALUES[seed].iloc[tasks].mean())


def share_of(tasks: list[int], seed: int) -> float:
    return float(COUNTED[seed].iloc[tasks].sum() / OF[seed].iloc[tasks].sum())


@pytest.mark.parametrize(
    ("estimate", "value_of", "bounds"),
    [(lambda study: mean_estimate(VALUES, study), mean_of, (0.0, 7.0)),
     (lambda study: share_estimate(COUNTED, OF, study), share_of, (0.0, 1.0))],
    ids=["mean", "share"],
)  # fmt: skip
def test_draws_are_those_of_all_resamples(estimate, value_of, bounds) -> None:
    got = estimate(make_study(1, num_bootstrap=40_000))
    every = np.clip(exact(value_of), *bounds)
    assert got.value == pytest.approx((value_of([0, 1, 2], 0) + value_of([0, 1, 2], 1)) / 2)
    grid = np.linspace(every.min() - 0.1, every.max() + 0.1, 23)
    shares = [[(draws <= x).mean() for x in grid] for draws in (got.draws, every)]
    assert np.abs(np.subtract(*shares)).max() < 0.02
    assert got.interval.low == pytest.approx(np.percentile(every, 2.5), abs=0.12)
    assert got.interval.high == pytest.approx(np.percentile(every, 97.5), abs=0.12)


def test_one_seed_is_the_bootstrap_over_tasks() -> None:
    study = make_study(1)
    got = mean_estimate(VALUES[[0]], study)
    assert mean_estimate(VALUES[0], study).interval == got.interval
    drawn = np.random.default_rng(study.seed).integers(0, 3, size=(200, 3))
    assert got.draws == pytest.approx(VALUES[0].to_numpy()[drawn].mean(axis=1))
    shares = share_estimate(COUNTED[[0]], OF[[0]], study).draws
    assert shares == pytest.approx([COUNTED[0].iloc[own].sum() / OF[0].iloc[own].sum() for own in drawn])


def test_coverage_of_a_truth_that_seeds_scatter_around() -> None:
    """Seeds matter as much as in a training: an interval over tasks alone is far too short, one over both is not."""
    study = make_study(1, num_bootstrap=200)
    rng = np.random.default_rng(7)
    num_seeds, num_tasks, covered, over_tasks = 5, 24, 0, 0
    for _ in range(300):
        tasks, seeds = rng.normal(0, 1, num_tasks), rng.normal(0, 0.4, num_seeds)
        values = pd.DataFrame(tasks[:, None] + seeds + rng.normal(0, 0.3, (num_tasks, num_seeds)))
        interval = mean_estimate(values, study).interval
        covered += interval.low <= 0 <= interval.high
        one = mean_estimate(values.mean(axis=1).to_frame(), study).interval
        over_tasks += one.low <= 0 <= one.high
    assert 0.88 <= covered / 300 <= 0.99
    assert over_tasks / 300 < covered / 300 - 0.05


def test_differences_are_paired_over_tasks() -> None:
    study = make_study(1)
    rng = np.random.default_rng(0)
    a = pd.DataFrame({0: rng.normal(0, 5, 40)})
    b = a + 0.5
    apart = minus(mean_estimate(b, study, 0), mean_estimate(a, study, 1)).interval
    assert apart == pytest.approx((0.5, 0.5, 0.5))
    assert mean_estimate(a, study).interval.high - mean_estimate(a, study).interval.low > 2


def test_seeds_of_two_policies_are_drawn_apart_and_those_of_one_together() -> None:
    study = make_study(1)
    flat = pd.DataFrame({s: [float(s)] * 6 for s in range(3)})
    same = minus(mean_estimate(flat, study, 0), mean_estimate(flat, study, 0)).interval
    apart = minus(mean_estimate(flat, study, 0), mean_estimate(flat, study, 1)).interval
    assert same == (0, 0, 0)
    assert apart.low < -0.5 and apart.high > 0.5


def test_ratio_of_a_policy_to_itself_and_by_nothing() -> None:
    study = make_study(1)
    own = mean_estimate(VALUES + 1, study)
    assert ratio(own, own).interval == (1, 1, 1)
    nothing = Estimate(0.0, np.zeros(200))
    assert all(math.isnan(v) for v in ratio(own, nothing).interval)


def test_what_is_missing_is_left_out() -> None:
    study = make_study(1)
    holes = VALUES.copy()
    holes.loc["a", 0] = math.nan
    assert mean_estimate(holes, study).value == pytest.approx((4.5 + VALUES[1].mean()) / 2)
    empty = holes.assign(**{"1": math.nan})[["1"]]
    assert all(math.isnan(v) for v in mean_estimate(empty, study).interval)
    assert all(math.isnan(v) for v in mean_estimate(VALUES.iloc[:0], study).interval)
    assert all(math.isnan(v) for v in share_estimate(COUNTED * 0, OF * 0, study).interval)
    without = share_estimate(COUNTED, OF.assign(**{"0": 0})[["0", 1]].set_axis([0, 1], axis=1), study)
    assert without.value == pytest.approx(4 / 7), "a seed without any such kernel has no share"


def test_a_mean_never_leaves_the_range_of_its_values() -> None:
    study = make_study(1)
    certain = pd.DataFrame({0: [0.1] * 7, 1: [0.1] * 7})
    assert mean_estimate(certain, study).interval == (0.1, 0.1, 0.1)
    high = pd.DataFrame({0: [1.0] * 5, 1: [0.9] * 5})
    assert mean_estimate(high, study).interval.high <= 1.0
