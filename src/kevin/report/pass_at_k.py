"""pass@k of first answers: what a policy solves without any feedback, by the number of answers that it may give.

With c of a task's n first kernels correct, pass@k is 1 - C(n - c, k) / C(n, k), the unbiased estimate of Chen et al.
(2021); fast_1 is the same of kernels that are correct and at least as fast as PyTorch eager.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.estimates import mean_estimate
from kevin.report.recipes import by_seed, rows_by

KS = (1, 4, 16)
COLUMNS = [
    *("policy", "seed", "level", "k", "correct", "correct_low", "correct_high", "fast_1", "num_tasks", "num_seeds"),
    "split",
]


def pass_at_k_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each policy, split and k of `KS`; tasks with fewer than k judged first kernels are left out.

    ``level``: KernelBench's or the catalog's; none for a split of new tasks beside KernelBench's.
    ``policy``: of several seeds the one that they are seeds of; ``seed``: their number, from 0, as they are evaluated,
    none where they are together. The interval is over tasks and seeds.
    """
    rows: list[list[Any]] = []
    for split, row in rows_by(scores.sort_values("split", kind="stable"), "split", study):
        level = int(split[5:]) if split.startswith("level") else None
        firsts = [_first(own) for own in row.seeds]
        for k in KS:
            enough = [first[first["num_answers"] >= k] for first in firsts]
            if all(first.empty for first in enough):
                continue
            correct, fast = (
                mean_estimate(by_seed([metrics.best_of_k_by_task(f, c, k) for f in enough]), study)
                for c in ("correct", "fast_1")
            )
            num_tasks = len({task for first in enough for task in first["task_id"]})
            rows.append([row.kind, row.seed, level, k, *correct.interval, fast.value, num_tasks, row.num_seeds, split])
    return pd.DataFrame(rows, columns=COLUMNS).astype({"seed": "Int64", "level": "Int64"})


def _first(own: pd.DataFrame) -> pd.DataFrame:
    """First answers, with ``fast_1`` and how many their task has."""
    first = metrics.trajectory_best(own, num_turns=1)
    sizes = first["task_id"].map(first.groupby("task_id").size())
    return first.assign(fast_1=metrics.fast(first, 1.0), num_answers=sizes)
