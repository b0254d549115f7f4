"""What turns are worth at equal kernels, whom they pay, and how kernels are spent best."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from report_fixtures import scored, trained_study

from kevin.core.config import Study
from kevin.report.display import display_table
from kevin.report.html import _answers
from kevin.report.worth import COLUMNS, COST, EQUAL_COLUMNS, NOT_TOLD, PAY, equal_kernels_table, worth_table

TASKS = [f"t{i}" for i in range(8)]
SERIAL, PARALLEL, FLAT = [[1.0, 3.0], [1.0, 3.0]], [[2.0, 1.0], [4.0, 1.0]], [[2.0, 2.0], [2.0, 2.0]]
WRONG = [[None, None], [None, None]]


def table(study: Study, **policies: Sequence[Sequence[float | None]]) -> pd.DataFrame:
    """Every task with the same trajectories for each policy."""
    scores = pd.concat([scored(name, dict.fromkeys(TASKS, own)) for name, own in policies.items()])
    return worth_table(scores, study).set_index("policy", drop=False)


def test_turns_pay_cost_or_cannot_be_told() -> None:
    found = table(trained_study(1), base=FLAT, multi=SERIAL, single=PARALLEL)
    assert list(found.columns) == COLUMNS and found["policy"].tolist() == ["base", "multi", "single"]
    assert found["worth"].tolist() == pytest.approx([1.0, 3.0, 3.0 / 4.0]), "1 x 2 over 2 x 1"
    assert found["verdict"].tolist() == [NOT_TOLD, PAY, COST]
    assert set(found["kernels"]) == {2} and set(found["serial"]) == {"1 × 2"} and set(found["parallel"]) == {"2 × 1"}
    assert found["best_split"].tolist() == ["2 × 1", "1 × 2", "2 × 1"], "of equal ones fewer turns"
    assert found["best"].tolist() == pytest.approx([2.0, 3.0, 4.0])


def test_what_the_clock_alone_may_make_is_not_told_apart() -> None:
    faster = [[2.0, 2.015], [2.0, 2.015]]
    found = table(trained_study(1), base=FLAT, multi=faster, single=PARALLEL)
    assert found.loc["multi", "worth_low"] > 1 and found.loc["multi", "verdict"] == NOT_TOLD


def test_what_training_changes_is_measured_against_what_it_started_from_and_single_turn_training() -> None:
    found = table(trained_study(1), base=FLAT, multi=SERIAL, single=PARALLEL)
    assert found.loc["multi", "over_base"] == pytest.approx(2.0)
    assert found.loc["single", "over_base"] == pytest.approx(-0.25)
    assert found.loc["multi", "over_single"] == pytest.approx(2.25)
    assert found["over_base"].isna().tolist() == [True, False, False]
    assert found["over_single"].isna().tolist() == [True, False, True]


def test_seeds_stand_together() -> None:
    found = table(trained_study(2, single=False), base=FLAT, multi=SERIAL, multi_1=FLAT)
    assert found["policy"].tolist() == ["base", "multi"] and found["num_seeds"].tolist() == [1, 2]
    assert found.loc["multi", "worth"] == pytest.approx((3 + 2) / (1 + 2))


def test_of_a_miniature_and_of_few_tasks_nothing_is_said() -> None:
    study = trained_study(1, single=False)
    miniature = study.model_copy(update={"report": study.report.model_copy(update={"miniature": True})})
    few = pd.concat([scored(p, dict.fromkeys(TASKS[:4], FLAT)) for p in ("base", "multi")])
    for found in (table(miniature, base=FLAT, multi=SERIAL), worth_table(few, study)):
        assert len(found) == 2 and found["worth"].notna().all() and found["verdict"].isna().all()
        assert _answers(found) == []


def test_what_cannot_be_measured_is_left_out() -> None:
    study = trained_study(1, single=False)
    assert table(study, base=[[1.0]], multi=[[1.0]]).empty, "one way to spend a kernel"
    found = table(study, base=WRONG, multi=SERIAL)
    assert found["worth"].isna().tolist() == found["verdict"].isna().tolist() == [True, False]
    assert found["over_base"].isna().all() and found.loc["multi", "worth"] == pytest.approx(3.0)


def test_the_kernels_of_search_are_compared_where_there_are_any() -> None:
    study = trained_study(1, single=False)
    scores = pd.concat([scored(p, dict.fromkeys(TASKS, FLAT)) for p in ("base", "multi")])
    ways = {"parallel": [[1.0]] * 8, "serial": [[1.0, 1.0, 1.0, 5.0]] * 2}
    search = pd.concat(
        [
            scored(policy, dict.fromkeys(TASKS, own)).assign(strategy=name)
            for policy in ("base", "multi")
            for name, own in ways.items()
        ]
    )
    found = worth_table(scores, study, search)
    assert set(found["kernels"]) == {8} and set(found["serial"]) == {"2 × 4"} and set(found["worth"]) == {5.0}
    only_multi = worth_table(scores, study, search[search["policy"] == "multi"])
    assert set(only_multi["kernels"]) == {2}, "where not all have them: of the rollouts that all have"


def test_the_first_screen_answers_with_numbers() -> None:
    study = trained_study(1)
    found = table(study, base=FLAT, multi=SERIAL, single=PARALLEL)
    pay, change, spend = _answers(found)
    assert pay.means == "best of 2 kernels a task, 1 × 2 over 2 × 1"
    assert pay.lines[0] == ("base model", "1.00× (1.00–1.00), not told apart")
    assert pay.lines[1] == ("multi", "3.00× (3.00–3.00), turns pay")
    assert ("multi minus single-turn RL", "+2.25 (+2.25 to +2.25)") in change.lines
    assert spend.question == "How are 2 kernels a task spent best?"
    assert [who for who, _ in spend.lines] == ["single, 2 × 1", "multi, 1 × 2", "base model, 2 × 1"]
    assert _answers(found.iloc[:0]) == []
    rows = display_table("worth", found, study).bodies[0].rows
    assert [row.cells[4].text for row in rows] == found["verdict"].tolist()


def test_without_training_nothing_is_said_to_have_changed() -> None:
    answers = _answers(table(trained_study(1), base=FLAT))
    assert [answer.question for answer in answers] == [
        "Do turns pay, and for whom?",
        "How are 2 kernels a task spent best?",
    ]


def best_of_any(tasks: dict[str, list[list[float]]], k: int, turns: int) -> float:
    """Mean over all ways to choose k of a task's trajectories, then over tasks."""
    ways = [[max(max(t[:turns]) for t in some) for some in combinations(own, k)] for own in tasks.values()]
    return float(np.mean([np.mean(best) for best in ways]))


def test_every_number_of_kernels_that_the_rollouts_hold() -> None:
    study, rng = trained_study(1), np.random.default_rng(0)
    speeds = {name: {t: rng.uniform(0.5, 4, (6, 5)).tolist() for t in TASKS} for name in ("base", "multi", "single")}
    found = equal_kernels_table(pd.concat([scored(name, own) for name, own in speeds.items()]), study)
    assert list(found.columns) == EQUAL_COLUMNS and set(found["num_tasks"]) == {8}
    splits = [(1, 2), (1, 4), (2, 2)]
    assert list(zip(found["trajectories"], found["turns"], strict=True)) == [
        split for split in splits for _ in range(3)
    ]
    ratios = {}
    for row in found.to_dict("records"):
        k, turns, own = row["trajectories"], row["turns"], speeds[row["policy"]]
        played, first = best_of_any(own, k, turns), best_of_any(own, k * turns, 1)
        assert (row["kernels"], row["speedup_turns"]) == (k * turns, pytest.approx(played))
        assert row["speedup_first"] == pytest.approx(first)
        ratios[row["policy"]] = played / first
        assert row["worth"] == pytest.approx(played / first)
        if row["policy"] == "single":
            assert row["over_base"] == pytest.approx(ratios["single"] - ratios["base"]) and np.isnan(row["over_single"])
    multi = found[found["policy"] == "multi"].set_index(["trajectories", "turns"])["over_single"]
    worth = found.pivot(index=["trajectories", "turns"], columns="policy", values="worth")
    assert multi.to_numpy() == pytest.approx((worth["multi"] - worth["single"]).loc[multi.index].to_numpy())


def test_at_the_most_kernels_it_says_what_worth_says() -> None:
    study = trained_study(1)
    parts = {"base": FLAT, "multi": SERIAL, "single": PARALLEL}
    scores = pd.concat([scored(name, dict.fromkeys(TASKS, own)) for name, own in parts.items()])
    one, each = worth_table(scores, study), equal_kernels_table(scores, study)
    shared = [c for c in COLUMNS if c in EQUAL_COLUMNS]
    pd.testing.assert_frame_equal(one[shared], each[shared])
    rows = display_table("equal_kernels", each, study).bodies[0].rows
    assert [row.cells[1].text for row in rows] == ["1 × 2"] * 3


def test_of_single_turns_and_of_nobody_there_are_no_splits() -> None:
    study = trained_study(1)
    single_turns = [[1.0], [2.0]]
    scores = pd.concat([scored(name, dict.fromkeys(TASKS, single_turns)) for name in ("base", "multi")])
    for empty in (equal_kernels_table(scores, study), equal_kernels_table(scores.iloc[:0], study)):
        assert empty.empty and list(empty.columns) == EQUAL_COLUMNS
