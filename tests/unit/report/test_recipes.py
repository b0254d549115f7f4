"""Rows of policies and of their seeds together, wherever tables list them."""

from __future__ import annotations

import pandas as pd
from report_fixtures import make_study, scored, trained_study

from kevin.report.recipes import recipes, rows_by, rows_of

TASKS = [f"t{i}" for i in range(6)]


def same(policy: str, trajectories: list[list[float | None]], **more: str) -> pd.DataFrame:
    return scored(policy, dict.fromkeys(TASKS, trajectories), **more)


def test_recipes_are_in_order_and_without_the_ceiling() -> None:
    study = trained_study(3)
    found = recipes(["single", "multi_2", "base", "ceiling", "multi"], study)
    assert [(r.policy, r.seeds) for r in found] == [
        ("single", ("single",)), ("multi", ("multi_2", "multi")), ("base", ("base",))
    ]  # fmt: skip
    assert found[1].label(study) == "multi (2 seeds)" and recipes(["other"], make_study(1))[0].num_seeds == 1


def test_each_seed_has_a_row_and_several_have_one_together() -> None:
    study = trained_study(2)
    scores = pd.concat([same(p, [[1.0]]) for p in ("base", "multi", "multi_1")])
    rows = list(rows_of(scores, study))
    assert [(r.policy, r.kind, r.seed, r.num_seeds) for r in rows] == [
        ("base", "base", 0, 1), ("multi", "multi", 0, 1), ("multi_1", "multi", 1, 1), ("multi", "multi", None, 2)
    ]  # fmt: skip
    assert [len(own) for own in rows[3].seeds] == [6, 6]


def test_a_seed_keeps_its_number_where_another_one_is_missing() -> None:
    study = trained_study(2)
    parts = (("multi", "level1"), ("multi_1", "level1"), ("multi_1", "level2"))
    scores = pd.concat([same(policy, [[1.0]], split=split) for policy, split in parts])
    found = [(split, r.policy, r.seed, r.num_seeds) for split, r in rows_by(scores, "split", study)]
    assert found == [
        ("level1", "multi", 0, 1), ("level1", "multi_1", 1, 1), ("level2", "multi_1", 1, 1),
        ("level1", "multi", None, 2),
    ]  # fmt: skip
