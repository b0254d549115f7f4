"""Differences between policies, counted by hand on tasks small enough for it."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from report_fixtures import scored, trained_study

from kevin.report import show
from kevin.report.differences import COLUMNS, METRICS, differences_table

TASKS = ("a", "b", "c", "d", "e", "f")


def rowwise(table: pd.DataFrame, policy: str, against: str, metric: str, subset: str = "all tasks") -> pd.Series:
    found = table[(table["policy"] == policy) & (table["against"] == against) & (table["metric"] == metric)]
    found = found[(found["split"] == "all") & (found["subset"] == subset)]
    assert len(found) == 1
    return found.iloc[0]


@pytest.fixture
def table() -> pd.DataFrame:
    base = {task: [[None, 0.5], [None, None]] for task in TASKS}
    first = {task: [[1.0, 2.0], [None, 1.0]] for task in TASKS}
    second = {task: [[1.0, 1.0], [None, None]] for task in TASKS[:4]}
    parts = [("base", base), ("multi", first), ("multi_1", second)]
    scores = pd.concat([scored(name, own, flawed="a") for name, own in parts])
    return differences_table(scores, trained_study(2, single=False))


def test_it_is_the_mean_over_seeds_against_the_other_policy(table: pd.DataFrame) -> None:
    best = rowwise(table, "multi", "base", "speedup_best")
    assert best["difference"] == pytest.approx((2.0 + 1.0) / 2 - 0.5)
    assert (best["num_tasks"], best["num_seeds"], best["num_seeds_against"]) == (6, 2, 1)
    assert best["difference_low"] <= best["difference"] <= best["difference_high"]
    assert bool(best["excludes_zero"]) is True
    zero = table[(table["difference_low"] < 0) & (table["difference_high"] > 0)]
    assert len(zero) and not zero["excludes_zero"].any()
    fast = rowwise(table, "multi", "base", "fast_1_avg")
    assert fast["difference"] == pytest.approx((1.0 + 0.5) / 2 - 0.0)


def test_shares_of_turns_are_over_kernels(table: pd.DataFrame) -> None:
    mended = rowwise(table, "multi", "base", "mended")
    assert mended["difference"] == pytest.approx((1.0 + 0.0) / 2 - 0.5)
    kept = rowwise(table, "multi", "base", "kept")
    assert math.isnan(kept["difference"]) and pd.isna(kept["excludes_zero"]), "the base keeps none: it had none to keep"


def test_every_pair_measure_and_part_has_a_row(table: pd.DataFrame) -> None:
    assert list(table.columns) == COLUMNS
    assert len(table) == len(METRICS) * 2, "one pair, one split, with and without the flawed task"
    assert rowwise(table, "multi", "base", "correct_avg", "without flawed tasks")["num_tasks"] == 5
    shown = show.differences(table, trained_study(2, single=False))
    assert len(shown.cells) == 2 and list(shown.filters) == ["Which"]
    assert shown.cells.droplevel(0, axis=1)["Policy"].iloc[0] == "multi (2 seeds)"


def test_policies_without_a_common_task_have_no_numbers() -> None:
    scores = pd.concat([scored("base", {"a": [[1.0]]}), scored("multi", {"b": [[1.0]]})])
    table = differences_table(scores, trained_study(1, single=False))
    assert table["difference"].isna().all() and set(table["num_tasks"]) == {0}
