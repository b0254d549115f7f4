"""pass@k of first answers, on frames small enough to count by hand."""

from __future__ import annotations

from io import StringIO
from math import comb

import pandas as pd
import pytest
from report_fixtures import make_study, scored

from kevin.core.config import PolicyConfig
from kevin.report import show
from kevin.report.pass_at_k import COLUMNS, pass_at_k_table


def frame(policy: str, level: int, task: str, speedups: list[float | None]) -> pd.DataFrame:
    """First kernels of one task; None is a wrong one, NaN a turn without a verdict."""
    return scored(policy, {task: [[speedup] for speedup in speedups]}, split=f"level{level}").assign(level=level)


@pytest.fixture
def study():
    study = make_study(2)
    again = PolicyConfig(model="again", seed_of="p1", label="again")
    policies = {**study.policies, "p1_again": again}
    return study.model_copy(update={"policies": policies, "evaluate": ("p0", "p1", "p1_again")})


def test_it_is_the_unbiased_estimate_over_tasks(study):
    a = [2.0, 0.5, None, None, None]
    scores = pd.concat([frame("p0", 1, "a", a), frame("p0", 1, "b", [None] * 5), frame("p0", 2, "c", [3.0] * 16)])
    table = pass_at_k_table(scores, study).set_index(["level", "k"])
    assert list(table.index) == [(1, 1), (1, 4), (2, 1), (2, 4), (2, 16)]
    assert table.loc[(1, 1), "correct"] == pytest.approx((2 / 5 + 0) / 2)
    assert table.loc[(1, 4), "correct"] == pytest.approx((1 - comb(3, 4) / comb(5, 4) + 0) / 2)
    assert table.loc[(1, 4), "fast_1"] == pytest.approx((1 - comb(4, 4) / comb(5, 4)) / 2)
    assert table.loc[(1, 1), "num_tasks"] == 2
    low, value, high = table.loc[(1, 1), ["correct_low", "correct", "correct_high"]]
    assert 0 == low < value < high <= 0.4
    assert table.loc[(2, 16), "correct"] == table.loc[(2, 16), "correct_low"] == 1


def test_later_turns_the_ceiling_and_turns_without_a_verdict_do_not_count(study):
    lost = [float("nan"), None, None, None]
    later = frame("p0", 1, "a", [9.0] * 4).assign(turn=2)
    scores = pd.concat([frame("p0", 1, "a", lost), later, frame("ceiling", 1, "a", [9.0] * 4)])
    table = pass_at_k_table(scores, study)
    assert table["policy"].tolist() == ["p0"] and table["k"].tolist() == [1]
    assert table.loc[0, "correct"] == 0


def test_nothing_judged_is_an_empty_table(study):
    scores = frame("p0", 1, "a", [float("nan")])
    assert list(pass_at_k_table(scores, study).columns) == COLUMNS
    assert pass_at_k_table(scores, study).empty


def test_new_tasks_beside_kernelbenchs_are_no_level(study):
    new = frame("p0", 2, "new", [None]).assign(split="unseen")
    table = pass_at_k_table(pd.concat([frame("p0", 1, "a", [1.0]), frame("p0", 2, "c", [1.0]), new]), study)
    assert table["level"].fillna(0).tolist() == [1, 2, 0] and table["correct"].tolist() == [1, 1, 0]
    shown = show.pass_at_k(pd.read_csv(StringIO(table.to_csv(index=False))), study)
    assert shown.cells["Tasks"].tolist() == ["Level 1", "Level 2", "New fused tasks"]
    older = pd.read_csv(StringIO(table.iloc[:2].drop(columns="split").to_csv(index=False)))
    assert show.pass_at_k(older, study).cells["Tasks"].tolist() == ["Level 1", "Level 2"]
