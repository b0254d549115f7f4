"""Scores -> the study's tables, every number at full precision with its bootstrap 95 % interval over tasks and seeds.

``primary``: what each policy finds with every number of kernels, and the study's one primary endpoint
(`kevin.report.primary`); all other tables are exploratory.

``table1``: all held-out tasks together; ``level1``, ``level2``, ...: one split. One row for each policy, baseline
(eager; torch.compile where it was measured) and subset (all tasks; without those of known flaws), then the paper's
Table 1, or what the authors' blog post says of that level. ``table2``: one budget of kernels split into trajectories x
turns, all held-out tasks together, then the paper's Table 2; ``serial_parallel``: the same split by split.
``differences``: policies against each other (`kevin.report.differences`); ``claims``: the paper's claims
(`kevin.report.claims`). ``pass_at_k``: first answers alone (`kevin.report.pass_at_k`). ``turns``, ``mended``: what
becomes of kernels on the next turn (`kevin.report.turns`). ``tasks``: one row for each task and policy.

The column ``source`` keeps ours and the paper's apart: tasks, hardware and models differ. ``num_seeds``: of how many
seeds of one recipe a row is made; where a recipe has several, each has a row and all together have one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.core.files import read_parquet
from kevin.report import metrics, paper
from kevin.report.answers import read_typed
from kevin.report.budgets import Budget, budgets_of_rollouts, budgets_of_search
from kevin.report.estimates import mean_estimate
from kevin.report.paper import OURS
from kevin.report.parts import ALL_SPLITS, subsets
from kevin.report.recipes import Rows, by_seed, rows_of
from kevin.report.scores import CEILING, policy_label

EAGER, COMPILE = "eager", "compile"
COMPILE_POLICY = "torch.compile"
"""Row that treats what torch.compile makes of a task as if a policy had written it."""


def read_baselines(path: Path | None) -> pd.DataFrame:
    """The baselines file, or an empty frame of its columns: task_id, baseline, median_us, ratio_to_eager, ..."""
    if path is None:
        return pd.DataFrame(columns=["task_id", "baseline", "median_us", "ratio_to_eager"])
    if path.suffix == ".csv":
        return read_typed(path, "baselines", {"median_us": "float64", "ratio_to_eager": "float64"})
    return read_parquet(path, "baselines")[0]


def baseline_ratios(baselines: pd.DataFrame, name: str) -> dict[str, float]:
    """T_baseline / T_eager by task id; a speedup over eager times this is the speedup over that baseline.

    The file's ``ratio_to_eager`` is the baseline's own speedup, T_eager / T_baseline.
    """
    rows = baselines[(baselines["baseline"] == name) & baselines["ratio_to_eager"].notna()]
    return dict(zip(rows["task_id"], 1 / rows["ratio_to_eager"].astype(float), strict=True))


def compile_speedups(baselines: pd.DataFrame) -> dict[str, float]:
    """Of torch.compile over eager by task id, where it was measured."""
    return {task: 1 / ratio for task, ratio in baseline_ratios(baselines, COMPILE).items()}


# --- policies: one split, or all ------------------------------------------------------------------------------------


def policies_table(
    scores: pd.DataFrame, baselines: pd.DataFrame, study: Study, theirs: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """Rows of one split, or of all (see the module's text), then ``theirs``. ``scores``: every policy."""
    ratios: dict[str, Mapping[str, float] | None] = {EAGER: None}
    if compiled := baseline_ratios(baselines, COMPILE):
        ratios[COMPILE_POLICY] = compiled
    rows: list[dict[str, Any]] = []
    for subset, chosen in subsets(scores):
        for own in _with_ceiling(chosen, study):
            rows += [
                _policy_row(own, factor, study) | _names(own, study) | {"baseline": name, "subset": subset}
                for name, factor in ratios.items()
            ]
        if compiled:
            rows.append(_compile_row(chosen, compiled, study) | {"subset": subset})
    ours = [{"source": OURS} | row for row in rows]
    return pd.DataFrame([*ours, *theirs], columns=_policy_columns(study)).astype({"num_seeds": "Int64"})


def _with_ceiling(scores: pd.DataFrame, study: Study) -> Iterator[Rows]:
    yield from rows_of(scores, study)
    if len(ceiling := scores[scores["policy"] == CEILING]):
        yield Rows(CEILING, CEILING, 0, (ceiling,))


def _names(own: Rows, study: Study) -> dict[str, Any]:
    label = policy_label(own.policy, study, own.num_seeds)
    return {"policy": own.policy, "label": label, "num_seeds": None if own.policy == CEILING else own.num_seeds}


def _policy_columns(study: Study) -> list[str]:
    names = ["correct", "speedup", *(f"fast_{p:g}" for p in study.report.thresholds), "geomean"]
    values = [f"{name}_{of}{end}" for name in names for of in ("best", "avg") for end in ("", "_low", "_high")]
    head = ["source", "policy", "label", "baseline", "subset", "num_tasks", "num_seeds", "trajectories", "turns"]
    return [*head, "num_turns", "num_turns_missing", *values]


def _policy_row(own: Rows, ratios: Mapping[str, float] | None, study: Study) -> dict[str, Any]:
    trajectories = [metrics.trajectory_best(seed, ratios=ratios) for seed in own.seeds]
    judged = pd.concat([metrics.usable(seed) for seed in own.seeds])
    if ratios is not None:
        judged = judged[judged["task_id"].isin(ratios.keys())]
    values = [metrics.task_values(seed, study.report.thresholds) for seed in trajectories]
    sizes = [int(seed.groupby("task_id").size().max()) for seed in trajectories if len(seed)]
    return _value_cells(values, study) | {
        "num_tasks": len(by_seed([v["correct_best"] for v in values])),
        "trajectories": max(sizes, default=0),
        "turns": int(judged["turn"].max()) if len(judged) else 0,
        "num_turns": len(judged),
        "num_turns_missing": sum(int(seed["outcome"].isna().sum()) for seed in own.seeds),
    }


def _compile_row(chosen: pd.DataFrame, ratios: Mapping[str, float], study: Study) -> dict[str, Any]:
    ids = [task for task in chosen["task_id"].unique() if task in ratios]
    frame = pd.DataFrame(
        {"task_id": ids, "trajectory": 0, "correct": True, "speedup": [1 / ratios[task] for task in ids]}
    )
    positive = [p for p in study.report.thresholds if p > 0]
    values = metrics.task_values(frame, positive).drop(columns=["correct_best", "correct_avg"])
    row = {"policy": COMPILE_POLICY, "label": COMPILE_POLICY, "baseline": EAGER, "num_tasks": len(ids)}
    return row | _value_cells([values], study)


def _value_cells(values: Sequence[pd.DataFrame], study: Study) -> dict[str, float]:
    """Of each seed's `metrics.task_values`."""
    cells: dict[str, float] = {}
    for column in values[0].columns:
        interval = mean_estimate(by_seed([v[column] for v in values]), study).interval
        name = str(column)
        if name.startswith("log_speedup"):
            name, interval = name.replace("log_speedup", "geomean"), metrics.Interval(*map(math.exp, interval))
        cells |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return cells


# --- one budget, serial or parallel -------------------------------------------------------------------------------


def serial_parallel_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """For each split and policy: a budget of kernels a task, spent in all ways that the rollouts have (`budgets`)."""
    rows = [row for split, own in scores.groupby("split", sort=False) for row in _budget_rows(str(split), own, study)]
    return pd.DataFrame(rows, columns=_BUDGET_COLUMNS).astype({"num_seeds": "Int64"})


def table2(scores: pd.DataFrame, study: Study, search: pd.DataFrame | None = None) -> pd.DataFrame:
    """The same of all held-out tasks together, then that of ``search`` (`read_plain_search`), then the paper's."""
    rows = _budget_rows(ALL_SPLITS, scores, study)
    if search is not None:
        for own in rows_of(search, study):
            (budgets,) = budgets_of_search([own.recipe], search)
            rows += [_budget_row(ALL_SPLITS, own, budget, study) for budget in budgets]
    return pd.DataFrame(rows + paper.table2(), columns=_BUDGET_COLUMNS).astype({"num_seeds": "Int64"})


_BUDGET_COLUMNS = [
    *("source", "split", "policy", "label", "num_seeds", "budget", "trajectories", "turns"),
    *(f"{name}{end}" for name in ("speedup", "correct") for end in ("", "_low", "_high")),
    "num_tasks",
]


def _budget_rows(split: str, scores: pd.DataFrame, study: Study) -> list[dict[str, Any]]:
    rows = []
    for own in rows_of(scores, study):
        (budgets,) = budgets_of_rollouts([own.seeds])
        rows += [_budget_row(split, own, budget, study) for budget in budgets]
    return rows


def _budget_row(split: str, own: Rows, budget: Budget, study: Study) -> dict[str, Any]:
    row = {"source": OURS, "split": split} | _names(own, study)
    row |= {"budget": budget.num_kernels, "trajectories": budget.trajectories, "turns": budget.turns}
    for column, values in (("speedup", budget.speedup), ("correct", budget.correct)):
        interval = mean_estimate(values, study).interval
        row |= {column: interval.value, f"{column}_low": interval.low, f"{column}_high": interval.high}
    return row | {"num_tasks": len(budget.speedup)}


# --- one row a task and policy ------------------------------------------------------------------------------------


def tasks_table(scores: pd.DataFrame, baselines: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Per task and policy: best and mean over its trajectories, beside the task's eager and compiled time."""
    eager = baselines[baselines["baseline"] == EAGER].set_index("task_id")["median_us"]
    compiled = baseline_ratios(baselines, COMPILE)
    rows = []
    for (split, policy), own in scores.groupby(["split", "policy"], sort=False):
        trajectories = metrics.trajectory_best(own)
        values = metrics.task_values(trajectories)
        facts = own.drop_duplicates("task_id").set_index("task_id")
        for task in (t for t in facts.index if t in values.index):
            ratio = compiled.get(task)
            rows.append(
                {
                    "split": split,
                    "task_id": task,
                    "level": facts.loc[task, "level"],
                    "flawed": facts.loc[task, "flawed"],
                    "policy": policy,
                    "label": policy_label(str(policy), study),
                    "num_seeds": None if policy == CEILING else 1,
                    "trajectories": int((trajectories["task_id"] == task).sum()),
                    **values.loc[task, ["correct_best", "correct_avg", "speedup_best", "speedup_avg"]],
                    "eager_us": eager.get(task, np.nan),
                    "compile_speedup": np.nan if ratio is None else 1 / ratio,
                }
            )
    return pd.DataFrame(rows).astype({"num_seeds": "Int64"})
