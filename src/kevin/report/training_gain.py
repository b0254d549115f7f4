"""What training gained: a policy's mean score against that of the model it started from, paired over held-out tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import write_csv
from kevin.report import metrics
from kevin.report.notes import read_note, with_note
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
]
"""Gain and its bootstrap 95 % interval over tasks; then the means that it is the difference of."""


def trained_policies(study: Study) -> dict[str, str]:
    """Compared policies that a run made, each with the key of the policy that the run started from."""
    return {p: study.for_run(run).train.init for p in study.evaluate if (run := study.made_by(p)) is not None}


def rl_gain_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each trained policy. ``scores``: of any policies and held-out splits.

    A task's value is the mean score of all its turns that have a verdict; policies and baseline share the tasks.
    """
    judged = scores[scores["score"].notna()]
    values = judged.groupby(["policy", "task_id"])["score"].mean()
    correct = (judged["outcome"] == "correct").groupby([judged["policy"], judged["task_id"]]).mean()
    rows = []
    for policy, baseline in trained_policies(study).items():
        if not {policy, baseline} <= set(judged["policy"]):
            continue
        gain = metrics.paired_difference(
            values[policy], values[baseline], num_resamples=study.report.num_bootstrap, seed=study.seed
        )
        shared = values[policy].index.intersection(values[baseline].index)
        rows.append(
            [
                policy,
                baseline,
                *gain,
                *(
                    float(pd.Series(column[p])[shared].mean())
                    for column in (values, correct)
                    for p in (policy, baseline)
                ),
            ]
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def make_rl_gain(scores: Sequence[Path], out: Path, *, study: Study, summaries: Sequence[Path] = ()) -> Path:
    """Write rl_gain.csv. Raises DataError when no trained policy and its baseline are among the scores."""
    table = rl_gain_table(read_scores(scores, study), study)
    if table.empty:
        raise DataError("none of the score files holds a trained policy and the one it started from")
    write_csv(out, with_note(table, read_note(summaries, study)))
    return out
