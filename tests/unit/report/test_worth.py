"""What turns are worth at equal kernels, whom they pay, and how kernels are spent best."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pytest
from report_fixtures import scored, trained_study

from kevin.core.config import Study
from kevin.report.display import display_table
from kevin.report.html import _answers
from kevin.report.worth import COLUMNS, COST, NOT_TOLD, PAY, worth_table

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
