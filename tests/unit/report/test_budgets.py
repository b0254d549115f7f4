"""Equal numbers of kernels, spent on trajectories or on turns: from one rollout, and from rollouts of strategies."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report_fixtures import make_turn, scored, trained_study

from kevin.core.errors import DataError
from kevin.core.files import write_turns
from kevin.core.types import Outcome
from kevin.report.budgets import budgets_of_rollouts, budgets_of_search, plain_strategies, read_plain_search
from kevin.report.claims import SHOWN, claims_table
from kevin.report.recipes import recipes
from kevin.report.tables import table2

TASKS = [f"t{i}" for i in range(6)]
STRATEGIES = {
    "parallel": {"rollout": {"num_turns": 1}},
    "serial": {},
    "beam": {"method": "beam"},
    "shuffled": {"rollout": {"feedback": "shuffled"}},
}
SPEEDUPS = {"parallel": [[1.0]] * 8, "serial": [[None, None, 1.0, 3.0], [1.0, 1.0, 1.0, 1.0]], "beam": [[9.0, 9.0]] * 4}


def test_a_rollouts_budgets_are_the_mean_over_all_subsets_of_its_trajectories() -> None:
    rng = np.random.default_rng(2)
    turns = rng.choice([0.0, 0.5, 1.0, 2.0], size=(4, 4))
    own = scored("multi", {"t": [[None if v == 0 else float(v) for v in row] for row in turns]})
    ((parallel, mixed, serial),) = budgets_of_rollouts([[own]])
    for budget, k, depth in ((parallel, 4, 1), (mixed, 2, 2), (serial, 1, 4)):
        best = turns[:, :depth].max(axis=1)
        chosen = [max(subset) for subset in combinations(best, k)]
        assert (budget.trajectories, budget.turns, budget.num_kernels) == (k, depth, 4)
        assert budget.speedup.to_numpy().tolist() == [[pytest.approx(np.mean(chosen))]]
        assert budget.correct.to_numpy().tolist() == [[pytest.approx(np.mean([v > 0 for v in chosen]))]]


def write_search(root: Path) -> list[Path]:
    """Eight kernels a task under each strategy, for two seeds of a policy and for single-turn RL."""
    paths = []
    for policy in ("multi", "multi_1", "single"):
        for strategy, trajectories in SPEEDUPS.items():
            own = [[1.0, 1.0, 1.0, 1.0]] * 2 if policy == "single" and strategy == "serial" else trajectories
            turns = [
                make_turn(task, n, t, Outcome.CORRECT if v else Outcome.INCORRECT, v)
                for task in TASKS
                for n, row in enumerate(own)
                for t, v in enumerate(row, start=1)
            ]
            paths.append(root / strategy / f"{policy}-level1" / "turns.parquet")
            write_turns(paths[-1], turns, {"policy": policy, "strategy": strategy, "split": "level1"})
    return paths


def test_rollouts_that_differ_in_their_turns_alone_are_compared_at_their_own_budget(tmp_path: Path) -> None:
    study = trained_study(2, search={"strategies": STRATEGIES})
    assert plain_strategies(study) == ["parallel", "serial"]
    search = read_plain_search(write_search(tmp_path), study)
    multi, single = recipes(["multi", "multi_1", "single"], study)
    ((parallel, serial), own) = budgets_of_search([multi, single], search)
    assert (parallel.name, serial.name) == ("8 × 1", "2 × 4") and parallel.num_kernels == serial.num_kernels == 8
    assert set(serial.speedup.to_numpy().ravel()) == {3.0} and serial.speedup.shape == (6, 2)
    assert set(own[1].speedup.to_numpy().ravel()) == {1.0}
    assert budgets_of_search([multi, single], search[search["policy"] != "single"]) == [[], []]

    scores = pd.concat([scored(p, {task: [[1.0], [1.0]] for task in TASKS}) for p in study.evaluate])
    rows = table2(scores, study, search).query("budget == 8")
    heads = [("multi", 1), ("multi_1", 1), ("multi", 2), ("single", 1)]
    wanted = [[policy, num_seeds, k] for policy, num_seeds in heads for k in (8, 2)]
    assert rows[["policy", "num_seeds", "trajectories"]].to_numpy().tolist() == wanted
    claims = claims_table(scores, study, "m", search).set_index("claim")
    serial_claim = claims.loc["A serial budget beats a parallel one, after multi-turn RL"]
    assert serial_claim["ours"] == pytest.approx(3.0) and serial_claim["setting"] == "2 × 4 and 8 × 1"
    assert serial_claim["verdict"] == SHOWN and serial_claim["num_seeds"] == 2
    more = claims.loc["Turns are worth more after multi- than after single-turn RL"]
    assert more["ours"] == pytest.approx(2.0) and more["verdict"] == SHOWN


def test_a_file_that_is_no_rollout_of_a_strategy_is_named(tmp_path: Path) -> None:
    write_turns(tmp_path / "turns.parquet", [make_turn("t", 0, 1, Outcome.CORRECT, 1.0)], {"policy": "base"})
    with pytest.raises(DataError, match=r"turns\.parquet: not a rollout of a strategy"):
        read_plain_search([tmp_path / "turns.parquet"], trained_study(1))
