"""Equal numbers of kernels, spent on trajectories or on turns: from one rollout, and from rollouts of strategies."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import make_study, make_turn, scored, trained_study

from kevin.core.errors import DataError
from kevin.core.files import write_turns
from kevin.core.types import Outcome
from kevin.report.budgets import (
    budgets_of_rollouts,
    budgets_of_search,
    plain_strategies,
    read_plain_search,
)
from kevin.report.recipes import recipes, rows_by_split, rows_of

TASKS = [f"t{i}" for i in range(6)]


def alike(policy: str, trajectories: list[list[float | None]], **more: str) -> pd.DataFrame:
    return scored(policy, dict.fromkeys(TASKS, trajectories), **more)


STRATEGIES = {
    "parallel": {"rollout": {"num_turns": 1}},
    "serial": {},
    "beam": {"method": "beam"},
    "shuffled": {"rollout": {"feedback": "shuffled"}},
}
SPEEDUPS = {"parallel": [[1.0]] * 8, "serial": [[None, None, 1.0, 3.0], [1.0, 1.0, 1.0, 1.0]]}


def test_rollouts_that_differ_in_their_turns_alone_are_compared_at_their_own_budget() -> None:
    """What claims and tables say of them: see the goldens."""
    study = trained_study(2, search={"strategies": STRATEGIES})
    assert plain_strategies(study) == ["parallel", "serial"]
    alone = {"single": {"serial": [[1.0, 1.0, 1.0, 1.0]] * 2}}
    search = pd.concat(
        scored(policy, dict.fromkeys(TASKS, alone.get(policy, {}).get(name, own))).assign(strategy=name)
        for policy in ("multi", "multi_1", "single")
        for name, own in SPEEDUPS.items()
    )
    multi, single = recipes(["multi", "multi_1", "single"], study)
    parallel, serial = budgets_of_search(multi, search)
    assert (str(parallel.shape), str(serial.shape)) == ("8 × 1", "2 × 4")
    assert serial.shape.as_first_answers == parallel.shape
    assert set(serial.values["speedup"].to_numpy().ravel()) == {3.0} and serial.values["speedup"].shape == (6, 2)
    assert set(budgets_of_search(single, search)[1].values["speedup"].to_numpy().ravel()) == {1.0}
    assert budgets_of_search(multi, search[search["policy"] != "multi_1"]) == []


def test_a_file_that_is_no_rollout_of_a_strategy_is_named(tmp_path: Path) -> None:
    write_turns(tmp_path / "turns.parquet", [make_turn("t", 0, 1, Outcome.CORRECT, 1.0)], {"policy": "base"})
    with pytest.raises(DataError, match=r"turns\.parquet: not a rollout of a strategy"):
        read_plain_search([tmp_path / "turns.parquet"], trained_study(1))


def test_budgets_are_what_every_seed_can_spend() -> None:
    four, two = alike("multi", [[1.0, 2.0, 3.0, 4.0]] * 4), alike("multi_1", [[1.0, 2.0]] * 4)
    assert [own.shape for own in budgets_of_rollouts([four])] == [(4, 1), (2, 2), (1, 4)]
    assert [own.shape for own in budgets_of_rollouts([four, two])] == [(4, 1), (2, 2)]
    assert budgets_of_rollouts([alike("multi", [[float("nan")]])]) == []


def test_recipes_are_in_order_and_without_the_ceiling() -> None:
    study = trained_study(3)
    found = recipes(["single", "multi_2", "base", "ceiling", "multi"], study)
    assert [(r.policy, r.seeds) for r in found] == [
        ("single", ("single",)), ("multi", ("multi_2", "multi")), ("base", ("base",))
    ]  # fmt: skip
    assert found[1].label(study) == "multi (2 seeds)" and recipes(["other"], make_study(1))[0].num_seeds == 1


def test_each_seed_has_a_row_and_several_have_one_together() -> None:
    study = trained_study(2)
    scores = pd.concat([alike(p, [[1.0]]) for p in ("base", "multi", "multi_1")])
    rows = list(rows_of(scores, study))
    assert [(r.policy, r.kind, r.seed, r.num_seeds) for r, _ in rows] == [
        ("base", "base", 0, 1), ("multi", "multi", 0, 1), ("multi_1", "multi", 1, 1), ("multi", "multi", None, 2)
    ]  # fmt: skip
    assert [len(own) for own in rows[3][1]] == [6, 6]


def test_a_seed_keeps_its_number_where_another_one_is_missing() -> None:
    study = trained_study(2)
    parts = (("multi", "level1"), ("multi_1", "level1"), ("multi_1", "level2"))
    scores = pd.concat([alike(policy, [[1.0]], split=split) for policy, split in parts])
    heads = [head for head, _ in rows_by_split(scores, study)]
    assert {head["policy"] for head in heads} == {"multi"}
    found = [(head["split"], head["seed"], head["num_seeds"]) for head in heads]
    assert found == [("level1", 0, 1), ("level1", 1, 1), ("level2", 1, 1), ("level1", None, 2)]
