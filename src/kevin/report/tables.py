"""Scores -> the study's tables as CSV, every number at full precision with its bootstrap 95 % interval over tasks.

``level1``, ``level2``: one row for each policy, baseline (eager; torch.compile where it was measured) and subset (all
tasks; without those of known flaws), then the paper's Table 1. ``serial_parallel``: one budget of kernels split into
trajectories x turns, then the paper's Table 2. ``pass_at_k``: first answers alone (`kevin.report.pass_at_k`).
``turns``, ``mended``: what becomes of kernels on the next turn (`kevin.report.turns`).
``tasks``: one row for each task and policy.
The column ``source`` keeps ours and the paper's apart: tasks, hardware and models differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError, UsageError
from kevin.core.files import read_parquet, write_csv
from kevin.report import metrics, paper
from kevin.report.metrics import Interval
from kevin.report.notes import read_note, with_note
from kevin.report.pass_at_k import pass_at_k_table
from kevin.report.scores import CEILING, policy_label, read_scores
from kevin.report.turns import mended_table, turns_table

OURS = "this study"
ALL_TASKS, UNFLAWED = "all tasks", "without flawed tasks"
EAGER, COMPILE = "eager", "compile"
COMPILE_POLICY = "torch.compile"
"""Row that treats what torch.compile makes of a task as if a policy had written it."""


def read_baselines(path: Path | None) -> pd.DataFrame:
    """The baselines file, or an empty frame of its columns: task_id, baseline, median_us, ratio_to_eager, ..."""
    if path is None:
        return pd.DataFrame(columns=["task_id", "baseline", "median_us", "ratio_to_eager"])
    return read_parquet(path, "baselines")[0]


def baseline_ratios(baselines: pd.DataFrame, name: str) -> dict[str, float]:
    """T_baseline / T_eager by task id; a speedup over eager times this is the speedup over that baseline.

    The file's ``ratio_to_eager`` is the baseline's own speedup, T_eager / T_baseline.
    """
    rows = baselines[(baselines["baseline"] == name) & baselines["ratio_to_eager"].notna()]
    return dict(zip(rows["task_id"], 1 / rows["ratio_to_eager"].astype(float), strict=True))


# --- one table a split --------------------------------------------------------------------------------------------


def level_table(scores: pd.DataFrame, baselines: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Rows of one split (see the module's text). ``scores``: every policy on that split."""
    ratios: dict[str, Mapping[str, float] | None] = {EAGER: None}
    if compiled := baseline_ratios(baselines, COMPILE):
        ratios[COMPILE_POLICY] = compiled
    rows: list[dict[str, Any]] = []
    for subset, chosen in _subsets(scores):
        for policy, own in chosen.groupby("policy", sort=False):
            rows += [
                _policy_row(own, factor, study)
                | {"policy": policy, "label": policy_label(str(policy), study), "baseline": name, "subset": subset}
                for name, factor in ratios.items()
            ]
        if compiled:
            rows.append(_compile_row(chosen, compiled, study) | {"subset": subset})
    ours = [{"source": OURS} | row for row in rows]
    return pd.DataFrame(ours + paper.table1(), columns=_level_columns(study))


def _subsets(scores: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    yield ALL_TASKS, scores
    if scores["flawed"].any() and not scores["flawed"].all():
        yield UNFLAWED, scores[~scores["flawed"]]


def _level_columns(study: Study) -> list[str]:
    names = ["correct", "speedup", *(f"fast_{p:g}" for p in study.report.thresholds), "geomean"]
    values = [f"{name}_{of}{end}" for name in names for of in ("best", "avg") for end in ("", "_low", "_high")]
    head = ["source", "policy", "label", "baseline", "subset", "num_tasks", "trajectories", "turns", "num_turns"]
    return [*head, "num_turns_missing", *values]


def _policy_row(own: pd.DataFrame, ratios: Mapping[str, float] | None, study: Study) -> dict[str, Any]:
    trajectories = metrics.trajectory_best(own, ratios=ratios)
    judged = metrics.usable(own)
    if ratios is not None:
        judged = judged[judged["task_id"].isin(ratios.keys())]
    values = metrics.task_values(trajectories, study.report.thresholds)
    sizes = trajectories.groupby("task_id").size()
    return _value_cells(values, study) | {
        "num_tasks": len(values),
        "trajectories": int(sizes.max()) if len(sizes) else 0,
        "turns": int(judged["turn"].max()) if len(judged) else 0,
        "num_turns": len(judged),
        "num_turns_missing": int(own["outcome"].isna().sum()),
    }


def _compile_row(chosen: pd.DataFrame, ratios: Mapping[str, float], study: Study) -> dict[str, Any]:
    ids = [task for task in chosen["task_id"].unique() if task in ratios]
    frame = pd.DataFrame(
        {"task_id": ids, "trajectory": 0, "correct": True, "speedup": [1 / ratios[task] for task in ids]}
    )
    positive = [p for p in study.report.thresholds if p > 0]
    values = metrics.task_values(frame, positive).drop(columns=["correct_best", "correct_avg"])
    row = {"policy": COMPILE_POLICY, "label": COMPILE_POLICY, "baseline": EAGER, "num_tasks": len(ids)}
    return row | _value_cells(values, study)


def _value_cells(values: pd.DataFrame, study: Study) -> dict[str, float]:
    cells: dict[str, float] = {}
    for column in values.columns:
        log = column.startswith("log_speedup")
        estimate: Callable[..., Interval] = metrics.geometric_interval if log else metrics.mean_interval
        interval = estimate(values[column], num_resamples=study.report.num_bootstrap, seed=study.seed)
        name = column.replace("log_speedup", "geomean")
        cells |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return cells


# --- one budget, serial or parallel -------------------------------------------------------------------------------


def serial_parallel_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """For each split and policy: a budget of kernels a task, spent on more trajectories or on more turns.

    The budget is the number of trajectories that every task has, k = budget / turns of them are drawn (the unbiased
    estimate of best@k), and of each the first turns are taken: a prompt does not say how many turns will follow, so
    the first t turns of a longer run are a run of t turns.
    """
    rows: list[dict[str, Any]] = []
    real = scores[scores["policy"] != CEILING]
    for (split, policy), own in real.groupby(["split", "policy"], sort=False):
        budget = metrics.smallest_group(metrics.trajectory_best(own, num_turns=1))
        longest = metrics.usable(own)["turn"].max() if budget else 0
        for turns in (t for t in range(1, budget + 1) if budget % t == 0 and t <= longest):
            head = {"source": OURS, "split": split, "policy": policy, "label": policy_label(str(policy), study)}
            rows.append(head | _budget_cells(own, budget // turns, turns, study))
    columns = ["source", "split", "policy", "label", "budget", "trajectories", "turns"]
    values = [f"{name}{end}" for name in ("speedup", "correct") for end in ("", "_low", "_high")]
    return pd.DataFrame(rows + paper.table2(), columns=[*columns, *values, "num_tasks"])


def _budget_cells(own: pd.DataFrame, k: int, turns: int, study: Study) -> dict[str, Any]:
    trajectories = metrics.trajectory_best(own, num_turns=turns)
    cells: dict[str, Any] = {"budget": k * turns, "trajectories": k, "turns": turns}
    for column in ("speedup", "correct"):
        by_task = metrics.best_of_k_by_task(trajectories, column, k)
        interval = metrics.mean_interval(by_task, num_resamples=study.report.num_bootstrap, seed=study.seed)
        cells |= {column: interval.value, f"{column}_low": interval.low, f"{column}_high": interval.high}
        cells["num_tasks"] = len(by_task)
    return cells


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
                    "trajectories": int((trajectories["task_id"] == task).sum()),
                    **values.loc[task, ["correct_best", "correct_avg", "speedup_best", "speedup_avg"]],
                    "eager_us": eager.get(task, np.nan),
                    "compile_speedup": np.nan if ratio is None else 1 / ratio,
                }
            )
    return pd.DataFrame(rows)


# --- files --------------------------------------------------------------------------------------------------------


def read_table(path: Path) -> pd.DataFrame:
    """A table that was written before. Raises DataError when it cannot be read."""
    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as e:
        raise DataError(f"{path}: cannot be read as a table ({e}); make it again with: snakemake {path}") from None


TABLES = ("level1", "level2", "serial_parallel", "turns", "mended", "pass_at_k", "tasks")


def make_table(
    name: str,
    scores: Sequence[Path],
    out: Path,
    *,
    study: Study,
    baselines: Path | None = None,
    summaries: Sequence[Path] = (),
) -> Path:
    """Write one table. Returns ``out``.

    Args:
        name: one of `TABLES`; ``level<L>`` uses the scores of that split only.
        scores: files of `kevin.report.scores.score_rollouts`, of any policies and splits.
        summaries: of the trainings behind the scores, see `kevin.report.notes`.
    """
    frame, measured = read_scores(scores, study), read_baselines(baselines)
    of_scores = {
        "serial_parallel": serial_parallel_table,
        "turns": turns_table,
        "mended": mended_table,
        "pass_at_k": pass_at_k_table,
    }
    if name in of_scores:
        table = of_scores[name](frame, study)
    elif name == "tasks":
        table = tasks_table(frame, measured, study)
    elif name.startswith("level"):
        own = frame[frame["split"] == name]
        if own.empty:
            raise DataError(f"table {name}: none of the score files holds the split {name}")
        table = level_table(own, measured, study)
    else:
        raise UsageError(f"no table {name!r}; there are {', '.join(TABLES)}")
    write_csv(out, with_note(table, read_note(summaries, study)))
    return out
