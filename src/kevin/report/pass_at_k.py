"""pass@k of first answers: what a policy solves without any feedback, by the number of answers that it may give.

With c of a task's n first kernels correct, pass@k is 1 - C(n - c, k) / C(n, k), the unbiased estimate of Chen et al.
(2021); fast_1 is the same of kernels that are correct and at least as fast as PyTorch eager.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.scores import CEILING, seed_numbers

KS = (1, 4, 16)
COLUMNS = ["policy", "seed", "level", "k", "correct", "correct_low", "correct_high", "fast_1", "num_tasks"]


def pass_at_k_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each policy, level and k of `KS`; tasks with fewer than k judged first kernels are left out.

    ``policy``: of several seeds the one that they are seeds of; ``seed``: their number, from 0, as they are evaluated.
    The interval is a bootstrap over tasks.
    """
    rows: list[dict[str, Any]] = []
    real = scores[scores["policy"] != CEILING]
    seeds = seed_numbers([str(p) for p in real["policy"].unique()], study)
    for (policy, level), own in real.groupby(["policy", "level"], sort=False):
        first = metrics.trajectory_best(own, num_turns=1)
        first = first.assign(fast_1=metrics.fast(first, 1.0))
        sizes = first["task_id"].map(first.groupby("task_id").size())
        for k in KS:
            if (enough := first[sizes >= k]).empty:
                continue
            correct, fast = (metrics.best_of_k_by_task(enough, column, k) for column in ("correct", "fast_1"))
            interval = metrics.mean_interval(correct, num_resamples=study.report.num_bootstrap, seed=study.seed)
            rows.append(
                dict(zip(COLUMNS, [*seeds[str(policy)], level, k, *interval, fast.mean(), len(correct)], strict=True))
            )
    return pd.DataFrame(rows, columns=COLUMNS)
