from itertools import combinations, product
from math import isnan, log

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kevin.report import metrics


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
    return float(metrics.best_of_k_by_task(own, "speedup", k)["a"])


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
    best = metrics.best_of_k_by_task(own, "speedup", 2)
    brute = {
        task: np.mean([max(pair) for pair in combinations(values, 2)])
        for task, values in own.groupby("task_id")["speedup"]
    }
    assert best.to_dict() == pytest.approx(brute) and best.index.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match=r"1\.\.2"):
        metrics.best_of_k_by_task(own, "speedup", 3)


def test_trajectory_best_leaves_out_what_has_no_verdict() -> None:
    best = metrics.trajectory_best(SCORES)
    assert list(best.itertuples(index=False, name=None)) == [
        ("a", 0, True, 2.0),
        ("a", 1, False, 0.0),
        ("b", 0, True, 1.0),
    ]


def test_trajectory_best_within_the_first_turns() -> None:
    by_turn = [metrics.trajectory_best(SCORES, t).set_index(["task_id", "trajectory"]) for t in (1, 2)]
    assert [float(b.loc[("a", 0), "speedup"]) for b in by_turn] == [0.0, 0.5]
    assert [bool(b.loc[("a", 0), "correct"]) for b in by_turn] == [False, True]


def test_another_baseline_scales_speedups_and_drops_tasks_without_it() -> None:
    best = metrics.trajectory_best(SCORES, ratios={"a": 0.25})
    assert best["task_id"].unique().tolist() == ["a"]
    assert best["speedup"].tolist() == [0.5, 0.0]


def test_task_values() -> None:
    values = metrics.task_values(metrics.trajectory_best(SCORES), thresholds=(0.0, 1.0, 1.5))
    assert values.index.tolist() == ["a", "b"]
    a, b = values.loc["a"], values.loc["b"]
    assert (a["correct_best"], a["correct_avg"], a["speedup_best"], a["speedup_avg"]) == (1, 0.5, 2.0, 1.0)
    assert (a["fast_0_best"], a["fast_0_avg"], a["fast_1.5_avg"]) == (1, 0.5, 0.5)
    assert (b["fast_1_best"], b["fast_1.5_best"]) == (1, 0)
    assert a["log_speedup_avg"] == pytest.approx(log(2.0))


def test_fast_0_is_correctness_and_wrong_kernels_are_never_fast() -> None:
    wrong = pd.DataFrame({"task_id": ["a"], "trajectory": [0], "correct": [False], "speedup": [0.0]})
    assert not metrics.fast(wrong, 0.0).any()


def test_no_correct_kernel_has_no_geometric_mean() -> None:
    values = metrics.task_values(metrics.trajectory_best(frame(("a", 0, 1, "incorrect", None))))
    interval = metrics.mean_interval(values["log_speedup_best"], num_resamples=100, seed=0)
    assert all(isnan(v) for v in interval)


def test_mean_interval_of_one_value_and_of_nothing() -> None:
    assert metrics.mean_interval([2.0], num_resamples=100, seed=0) == (2.0, 2.0, 2.0)
    assert all(isnan(v) for v in metrics.mean_interval([], num_resamples=100, seed=0))
    assert metrics.mean_interval([1.0, float("nan")], num_resamples=100, seed=0) == (1.0, 1.0, 1.0)


def test_intervals_are_those_of_all_resamples_of_the_tasks() -> None:
    a, b = pd.Series([0.0, 2.0, 7.0], index=list("xyz")), pd.Series([1.0, 0.0, 2.0], index=list("xyz"))
    every = [list(tasks) for tasks in product(range(3), repeat=3)]
    for values in (a, a - b):
        found, again = (metrics.mean_interval(values, num_resamples=40_000, seed=0) for _ in range(2))
        assert found == again
        means = np.repeat([values.iloc[tasks].mean() for tasks in every], 1000)
        assert found.value == pytest.approx(np.mean(means))
        assert (found.low, found.high) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])))


def test_the_interval_of_a_mean_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(400):
        found = metrics.mean_interval(rng.exponential(1.0, 40), num_resamples=300, seed=1)
        covered += found.low <= 1.0 <= found.high
    assert 0.88 <= covered / 400 <= 0.98
