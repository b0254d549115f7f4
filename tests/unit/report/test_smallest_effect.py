"""The smallest effect that the replicates can show, as docs/replicates.md says: simulated from the rows at hand.

Those are of results/reference/nvidia-h200: three trainings of each kind from one base model, each with 16 trajectories
of eight turns and 128 first answers of 20 tasks. A simulated study draws its tasks from these 20 and its seeds from
these three, of each task four trajectories and 32 first answers, and is estimated as the table of replicates is. Seeds
lie further apart than three of them show, by sqrt(3 / 2). What a base model of its own adds to each seed is not in
these rows.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pandas as pd
import pytest
from cli_fixtures import ROOT
from report_fixtures import make_study

from kevin.report.metrics import mean_estimate

ROWS = ROOT / "results/reference/nvidia-h200/kernelbench"
NUM_TASKS, NUM_STUDIES, POWER = 24, 1000, 0.8
SEEDS = {"rl_multi": ("rl_multi", "rl_multi_1", "rl_multi_2"), "rl_single": ("rl_single", "rl_single_1", "rl_single_2")}


def log_best(name: str, policies: tuple[str, ...], rng: np.random.Generator, num: int, k: int) -> np.ndarray:
    """Of each policy and task ``num`` draws of k trajectories: log speedup of the fastest kernel, 0 at least."""
    frame = pd.read_csv(ROWS / name, usecols=["policy", "task_id", "trajectory", "outcome", "speedup"])
    frame["log"] = np.log(frame["speedup"].where(frame["outcome"] == "correct", 1.0).clip(lower=1.0))
    best = frame.groupby(["policy", "task_id", "trajectory"])["log"].max().unstack("trajectory")
    own = np.stack([best.loc[policy].to_numpy() for policy in policies])
    draws = [rng.permuted(own, axis=2)[:, :, :k].max(axis=2) for _ in range(num)]
    return np.stack(draws, axis=2)


@cache
def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Turns of the one arm, and first answers of the other: seeds x tasks x draws, seeds set further apart."""
    rng = np.random.default_rng(0)
    turns = log_best("answers.csv", SEEDS["rl_multi"], rng, 300, 4)
    first = log_best("first_answers_128.csv", SEEDS["rl_single"], rng, 300, 32)

    def apart(values: np.ndarray) -> np.ndarray:
        means = values.mean(axis=2, keepdims=True)
        middle = means.mean(axis=0, keepdims=True)
        return values + (np.sqrt(3 / 2) - 1) * (means - middle)

    return apart(turns), apart(first)


def smallest_effect(num_seeds: int) -> float:
    """As a ratio of geometric means: so large an effect's interval lies above 1 in four of five studies."""
    study, rng = make_study(2), np.random.default_rng(num_seeds)
    turns, first = drawn()
    truth = turns.mean() - first.mean()
    lower = []
    for _ in range(NUM_STUDIES):
        tasks = rng.integers(turns.shape[1], size=NUM_TASKS)
        sides = []
        for side in (turns, first):
            seeds = rng.integers(len(side), size=num_seeds)
            sides.append(side[seeds[:, None], tasks, rng.integers(side.shape[2], size=(num_seeds, NUM_TASKS))])
        lower.append(mean_estimate(pd.DataFrame((sides[0] - sides[1]).T), study).interval.low - truth)
    return float(np.exp(-np.quantile(lower, 1 - POWER)))


def test_the_page_says_the_simulated_numbers() -> None:
    """Three seconds."""
    said = re.findall(r"(\d\.\d\d) with (four|six) seeds", (ROOT / "docs/replicates.md").read_text())
    assert [word for _, word in said] == ["four", "six"]
    for number, word in said:
        found = smallest_effect({"four": 4, "six": 6}[word])
        assert found == pytest.approx(float(number), abs=0.006), word
