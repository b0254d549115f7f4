"""Scores -> the study's tables, every number at full precision with its bootstrap 95 % interval over tasks and seeds.

``table1``: all held-out tasks together; ``level1``, ``level2``, ...: one split. One row for each policy, baseline
(eager; torch.compile where it was measured) and subset (all tasks; without those of known flaws), then the paper's
Table 1, or what the authors' blog post says of that level. ``table2``: one budget of kernels split into trajectories x
turns, all held-out tasks together, then the paper's Table 2; ``serial_parallel``: the same split by split.
``differences``: policies against each other; ``pass_at_k``: first answers alone; ``tasks``: one row for each task and
policy. What other modules make, `kevin.report.catalogue` names.

The column ``source`` keeps ours and the paper's apart: tasks, hardware and models differ. ``num_seeds``: of how many
seeds of one recipe a row is made; where a recipe has several, each has a row and all together have one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.core.files import read_parquet
from kevin.report import metrics, paper
from kevin.report.budgets import Budget, budgets_of_rollouts, budgets_of_search
from kevin.report.metrics import Shape, by_seed, mean_estimate, minus, smallest_shown, with_ends
from kevin.report.paper import OURS
from kevin.report.recipes import (
    ALL_SPLITS,
    CEILING,
    Recipe,
    Scored,
    parts,
    policy_label,
    recipes,
    rows_by_split,
    rows_of,
    subsets,
)
from kevin.report.scores import read_typed
from kevin.report.turns import counts, share_of, turn_changes

EAGER, COMPILE = "eager", "compile"
COMPILE_POLICY = "torch.compile"
"""Row that treats what torch.compile makes of a task as if a policy had written it."""


def read_baselines(path: Path | None) -> pd.DataFrame:
    """The baselines file, or an empty frame of its columns: task_id, baseline, median_us, ratio_to_eager, ..."""
    columns = ["task_id", "baseline", "median_us", "ratio_to_eager"]
    if path is None:
        return pd.DataFrame(columns=columns)
    if path.suffix == ".csv":
        return read_typed(path, "baselines", {"median_us": "float64", "ratio_to_eager": "float64"}, columns)
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
        for row in [*rows_of(chosen, study), *_ceiling(chosen)]:
            rows += [
                _names(row[0], study) | {"baseline": name, "subset": subset} | _policy_cells(row[1], factor, study)
                for name, factor in ratios.items()
            ]
        if compiled:
            rows.append({"subset": subset} | _compile_row(chosen, compiled, study))
    values = ["correct", "speedup", *(f"fast_{p:g}" for p in study.report.thresholds), "geomean"]
    columns = [
        *("source", "policy", "label", "baseline", "subset", "num_tasks", "num_seeds", "trajectories", "turns"),
        *("num_turns", "num_turns_missing", *with_ends(*(f"{name}_{of}" for name in values for of in ("best", "avg")))),
    ]
    ours = [{"source": OURS} | row for row in rows]
    return pd.DataFrame([*ours, *theirs], columns=columns).astype({"num_seeds": "Int64"})


def _ceiling(scores: pd.DataFrame) -> list[Scored]:
    own = scores[scores["policy"] == CEILING]
    return [(Recipe(CEILING, (CEILING,)), [own])] if len(own) else []


def _names(row: Recipe, study: Study) -> dict[str, Any]:
    num_seeds = None if row.kind == CEILING else row.num_seeds
    return {"policy": row.policy, "label": row.label(study), "num_seeds": num_seeds}


def _policy_cells(seeds: Sequence[pd.DataFrame], ratios: Mapping[str, float] | None, study: Study) -> dict[str, Any]:
    trajectories = [metrics.trajectory_best(seed, ratios=ratios) for seed in seeds]
    judged = pd.concat([metrics.usable(seed) for seed in seeds])
    if ratios is not None:
        judged = judged[judged["task_id"].isin(ratios.keys())]
    sizes = [int(seed.groupby("task_id").size().max()) for seed in trajectories if len(seed)]
    return _value_cells(trajectories, study.report.thresholds, study) | {
        "num_tasks": len({task for seed in trajectories for task in seed["task_id"]}),
        "trajectories": max(sizes, default=0),
        "turns": int(judged["turn"].max()) if len(judged) else 0,
        "num_turns": len(judged),
        "num_turns_missing": sum(int(seed["outcome"].isna().sum()) for seed in seeds),
    }


def _compile_row(chosen: pd.DataFrame, ratios: Mapping[str, float], study: Study) -> dict[str, Any]:
    """What torch.compile made of these tasks; whether that is correct, nobody asked."""
    ids = [task for task in chosen["task_id"].unique() if task in ratios]
    frame = pd.DataFrame({"task_id": ids, "trajectory": 0, "correct": True})
    frame["speedup"] = [1 / ratios[task] for task in ids]
    cells = _value_cells([frame], [p for p in study.report.thresholds if p > 0], study)
    row = {"policy": COMPILE_POLICY, "label": COMPILE_POLICY, "baseline": EAGER, "num_tasks": len(ids)}
    return row | {name: value for name, value in cells.items() if not name.startswith("correct")}


def _value_cells(trajectories: Sequence[pd.DataFrame], thresholds: Sequence[float], study: Study) -> dict[str, float]:
    """Of each seed's trajectories; the geometric mean is over correct ones alone."""
    values = []
    for own in trajectories:
        logs = np.log(own["speedup"].where(own["correct"]))
        values.append(metrics.task_values(metrics.with_fast(own, thresholds).assign(geomean=logs)))
    cells = metrics.cells({name: mean_estimate((own[name] for own in values), study) for name in map(str, values[0])})
    return {name: math.exp(value) if name.startswith("geomean") else value for name, value in cells.items()}


# --- one budget, serial or parallel -------------------------------------------------------------------------------


def serial_parallel_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """For each split and policy: a budget of kernels a task, spent in all ways that the rollouts have (`budgets`)."""
    splits = scores.groupby("split", sort=False)
    return _budget_table([row for split, own in splits for row in _budget_rows(str(split), own, study)])


def table2(scores: pd.DataFrame, study: Study, search: pd.DataFrame) -> pd.DataFrame:
    """The same of all held-out tasks together, then that of ``search`` (`read_plain_search`), then the paper's."""
    rows = _budget_rows(ALL_SPLITS, scores, study)
    for row, _ in rows_of(search, study):
        rows += [_budget_row(ALL_SPLITS, row, found, study) for found in budgets_of_search(row, search)]
    return _budget_table(rows + paper.table2())


def _budget_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    columns = ["source", "split", "policy", "label", "num_seeds", "budget", "trajectories", "turns"]
    columns += [*with_ends("speedup", "correct"), "num_tasks"]
    return pd.DataFrame(rows, columns=columns).astype({"num_seeds": "Int64"})


def _budget_rows(split: str, scores: pd.DataFrame, study: Study) -> list[dict[str, Any]]:
    rows = rows_of(scores, study)
    return [_budget_row(split, row, found, study) for row, seeds in rows for found in budgets_of_rollouts(seeds)]


def _budget_row(split: str, row: Recipe, budget: Budget, study: Study) -> dict[str, Any]:
    head = {"source": OURS, "split": split} | _names(row, study)
    head |= {"budget": budget.shape.num_kernels} | budget.shape._asdict() | {"num_tasks": len(budget.values)}
    return head | metrics.cells({name: mean_estimate(budget.values[name], study) for name in ("speedup", "correct")})


# --- one row a task and policy ------------------------------------------------------------------------------------


def tasks_table(scores: pd.DataFrame, baselines: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Per task and policy: best and mean over its trajectories, beside the task's eager and compiled time."""
    facts = scores.drop_duplicates(["split", "policy", "task_id"])[["split", "task_id", "level", "flawed", "policy"]]
    found = []
    for policy, own in scores.groupby("policy", sort=False):
        trajectories = metrics.trajectory_best(own)
        sizes = trajectories.groupby("task_id").size().rename("trajectories")
        found.append(metrics.task_values(trajectories).join(sizes).assign(policy=policy).reset_index())
    table = facts.merge(pd.concat(found), on=["policy", "task_id"])
    policies = table["policy"]
    table = table.assign(
        label=[policy_label(policy, study) for policy in policies],
        num_seeds=pd.Series(1, table.index, dtype="Int64").where(policies != CEILING),
        eager_us=table["task_id"].map(baselines[baselines["baseline"] == EAGER].set_index("task_id")["median_us"]),
        compile_speedup=table["task_id"].map(compile_speedups(baselines)).astype("float64"),
    )
    columns = ["split", "task_id", "level", "flawed", "policy", "label", "num_seeds", "trajectories"]
    values = ["correct_best", "correct_avg", "speedup_best", "speedup_avg", "eager_us", "compile_speedup"]
    return table[columns + values]


# --- first answers alone ------------------------------------------------------------------------------------------

KS = (1, 4, 16)


def pass_at_k_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each policy, split and k of `KS`; tasks with fewer than k judged first kernels are left out.

    With c of a task's n first kernels correct, pass@k is 1 - C(n - c, k) / C(n, k), the unbiased estimate of Chen et
    al. (2021); ``fast_1`` is the same of kernels that are correct and at least as fast as PyTorch eager.
    ``level``: KernelBench's or the catalog's; none for a split of new tasks beside KernelBench's.
    ``policy``: of several seeds the one that they are seeds of; ``seed``: their number, from 0, as they are evaluated,
    none where they are together. The interval is over tasks and seeds.
    """
    rows: list[dict[str, Any]] = []
    for head, seeds in rows_by_split(scores.sort_values("split", kind="stable"), study):
        split = head["split"]
        head |= {"level": int(split[5:]) if split.startswith("level") else None}
        firsts = [metrics.with_fast(metrics.trajectory_best(own, num_turns=1), [1.0]) for own in seeds]
        for k in KS:
            enough = [own[own.groupby("task_id")["task_id"].transform("size") >= k] for own in firsts]
            if num_tasks := len({task for own in enough for task in own["task_id"]}):
                correct, fast = (
                    mean_estimate((metrics.best_of(own, name, k) for own in enough), study)
                    for name in ("correct", "fast_1")
                )
                rows.append(head | {"k": k, "num_tasks": num_tasks, "fast_1": fast.value})
                rows[-1] |= metrics.cells({"correct": correct})
    columns = ["policy", "seed", "level", "k", *with_ends("correct"), "fast_1", "num_tasks", "num_seeds", "split"]
    return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64", "level": "Int64"})


# --- policies against each other ----------------------------------------------------------------------------------


MEANS = tuple(f"{name}_{of}" for name in ("correct", "speedup", "fast_1") for of in ("best", "avg"))
SHARES = ("mended", "kept", "improved")
METRICS = (*MEANS, *SHARES)
_DIFFERENCES = [
    *("policy", "against", "metric", "split", "subset", *with_ends("difference")),
    *("excludes_zero", "detectable", "num_tasks", "num_seeds", "num_seeds_against"),
]


def differences_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each pair of recipes (the later one in ``evaluate`` against the earlier one), measure, split and
    subset of the tasks that both have answered.

    `MEANS` are those of the tables of policies, best of a task's trajectories and their mean, at as many trajectories
    and turns as both have; `SHARES` those of `kevin.report.turns`, all turns together. Each resample draws the same
    tasks for both policies, and seeds of each apart. ``excludes_zero``: whether the interval does; ``detectable``: the
    smallest difference that so many tasks and seeds could have shown. A difference of which a policy has no such
    kernels, or that no task is shared for, has no numbers.
    """
    found = recipes(scores["policy"].unique(), study)
    frames = {str(policy): own for policy, own in scores.groupby("policy", sort=False)}
    shares = {policy: counts(turn_changes(own)) for policy, own in frames.items()}

    @cache
    def means(policy: str, shape: Shape) -> pd.DataFrame:
        return metrics.values_at(frames[policy], shape)

    rows: list[list[Any]] = []
    for split, part in parts(scores):
        for subset, chosen in subsets(part):
            tasks = pd.Index(chosen["task_id"].unique())
            for against, policy in combinations(found, 2):
                sides = (policy, against)
                shape = metrics.common_shape([frames[seed] for side in sides for seed in side.seeds])
                for metric in METRICS:
                    own = [[shares[p] if metric in SHARES else means(p, shape) for p in side.seeds] for side in sides]
                    cells = _difference(metric, own, tasks, study)
                    head = [policy.policy, against.policy, metric, split, subset]
                    rows.append([*head, *cells, policy.num_seeds, against.num_seeds])
    return pd.DataFrame(rows, columns=_DIFFERENCES)


def _difference(metric: str, sides: Sequence[Sequence[pd.DataFrame]], tasks: pd.Index, study: Study) -> list[Any]:
    """Difference, its ends, whether they exclude 0, what could have been shown, and the number of tasks; of two sides,
    each the values of its seeds."""
    column = (metric, "count") if metric in SHARES else metric
    values = [by_seed([own[column] for own in seeds]) for seeds in sides]
    shared = values[0].index.intersection(values[1].index).intersection(tasks).sort_values()
    if not len(shared):
        return [None, None, None, None, None, 0]
    estimates = [
        share_of(seeds, metric, study, shared, stream)
        if metric in SHARES
        else mean_estimate(own.loc[shared], study, stream)
        for stream, (seeds, own) in enumerate(zip(sides, values, strict=True))
    ]
    interval = minus(*estimates).interval
    excludes = None if math.isnan(interval.value) else bool(interval.low > 0 or interval.high < 0)
    return [*interval, excludes, smallest_shown(interval.low, interval.high), len(shared)]
