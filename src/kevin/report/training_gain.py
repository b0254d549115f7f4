"""What training gained: a policy's mean score against that of the model it started from, paired over held-out tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.report.estimates import mean_estimate, minus
from kevin.report.notes import read_note
from kevin.report.publish import write_table
from kevin.report.recipes import by_seed, recipes
from kevin.report.scores import read_scores

COLUMNS = [
    "policy",
    "baseline",
    "mean_score_gain",
    "ci_low",
    "ci_high",
    "num_tasks",
    "policy_score",
    "baseline_score",
    "policy_correct",
    "baseline_correct",
    "num_seeds",
]
"""Gain and its bootstrap 95 % interval over tasks and seeds; then the means that it is the difference of."""


def trained_policies(study: Study) -> dict[str, str]:
    """Compared policies that a run made, each with the key of the policy that the run started from."""
    return {p: study.for_run(run).train.init for p in study.evaluate if (run := study.made_by(p)) is not None}


def rl_gain_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each trained policy, and of several seeds one for all. ``scores``: of any policies and splits.

    A task's value is the mean score of all its turns that have a verdict; policies and baseline share the tasks.
    """
    judged = scores[scores["score"].notna()]
    by_task = judged.assign(correct=(judged["outcome"] == "correct").astype(float)).groupby(["policy", "task_id"])
    values, correct = by_task["score"].mean(), by_task["correct"].mean()
    trained = trained_policies(study)
    known = set(judged["policy"])
    rows: list[list[object]] = []
    for recipe in recipes((p for p in trained if p in known and trained[p] in known), study):
        groups: list[tuple[str, ...]] = [(policy,) for policy in recipe.seeds]
        groups += [recipe.seeds] if recipe.num_seeds > 1 else []
        for seeds in groups:
            baseline = trained[seeds[0]]
            gained = by_seed([values[policy] for policy in seeds])
            shared = gained.dropna(how="all").index.intersection(values[baseline].index)
            before = by_seed([values[baseline]]).loc[shared]
            gain = minus(mean_estimate(gained.loc[shared], study), mean_estimate(before, study)).interval
            means = [
                float(by_seed([column[policy] for policy in group]).loc[shared].mean().mean())
                for column in (values, correct)
                for group in (seeds, (baseline,))
            ]
            rows.append([seeds[0], baseline, *gain, len(shared), *means, len(seeds)])
    return pd.DataFrame(rows, columns=COLUMNS)


def make_rl_gain(scores: Sequence[Path], out: Path, *, study: Study, summaries: Sequence[Path] = ()) -> Path:
    """Write rl_gain.csv, .md and .tex. Raises DataError when no trained policy and its baseline are in the scores."""
    table = rl_gain_table(read_scores(scores, study), study)
    if table.empty:
        raise DataError("none of the score files holds a trained policy and the one it started from")
    return write_table(out, "rl_gain", table, study, read_note(summaries, study, scores))
