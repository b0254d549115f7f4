"""What each task adds to a declared comparison, seed by seed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from kevin.core.types import Task
from kevin.report.figures import look
from kevin.report.figures.scaling import Drawn
from kevin.report.recipes import policy_label
from kevin.report.replicates import Found, Side, primary_sides

NAME = "by_task"
QUESTION = "How do the two trainings compare, task by task?"
ALL = "all tasks"
COLUMNS = ["task_id", "seed", "speedup", "against_speedup", "value", "low", "high"]
_LONGEST = 44
"""Letters of a task's name."""


def by_task_data(found: Found) -> pd.DataFrame:
    """Columns task_id, seed, speedup, against_speedup, value, low, high. A row for each task and each seed that both
    have: the speedup of the fastest kernel of ``report.primary.policy``, that of ``against``, both with eager as the
    floor, and their ratio. Last the ratio over all, with an interval where there are several seeds."""
    own, other = found.of_both("log_speedup", *primary_sides(found.study))
    rows = [
        {"task_id": task, "seed": seed, "speedup": ours, "against_speedup": theirs, "value": ours / theirs}
        for seed in own
        for task, ours, theirs in zip(own.index, np.exp(own[seed]), np.exp(other[seed]), strict=True)
        if not np.isnan(ours)
    ]
    total = {"task_id": ALL, **dict(zip(("value", "low", "high"), np.exp(found.difference(own, other)), strict=True))}
    return pd.DataFrame([*rows, total] if rows else [], columns=COLUMNS)


def by_task(found: Found, tasks: Sequence[Task]) -> Drawn:
    data = by_task_data(found)
    each, total = data[data["seed"].notna()], data[data["seed"].isna()]
    shown = each[each["task_id"].isin(each.loc[each["value"] != 1, "task_id"])]
    rows = {task.id: _row(task) for task in tasks}
    order = [*np.log(shown["value"]).groupby(shown["task_id"]).mean().sort_values(kind="stable").index, ALL]
    bottom = len(order) - 1
    figure, ax = plt.subplots(figsize=(7.0, 0.6 + 0.24 * len(order)))
    ax.set_yticks(range(len(order)), [rows.get(task, task) for task in order])
    ax.set_ylim(bottom + 0.6, -0.6)
    handles = []
    for color, (seed, own) in zip(sns.color_palette(look.PALETTE), shown.groupby("seed"), strict=False):
        floored = own[["speedup", "against_speedup"]].eq(1).any(axis=1)
        ax.scatter(
            own["value"], own["task_id"].map(order.index), s=38, zorder=3, edgecolors=[color],
            facecolors=["white" if hollow else color for hollow in floored],
        )  # fmt: skip
        handles.append(look.Look(f"seed {seed:.0f}", color, dashes="").handle())
    ax.plot([*total["low"], *total["high"]], [bottom] * 2 * len(total), color=look.INK, linewidth=1.6)
    ax.plot(total["value"], [bottom] * len(total), "D", color=look.INK, markersize=6)
    ax.axhline(bottom - 0.5, color=look.MUTED, linewidth=0.8)
    ax.axvline(1.0, color=look.MUTED, linewidth=1, zorder=1)
    ax.set_xscale("log")
    ax.set_xlim(min(0.5, 0.9 * shown["value"].min()), max(2.0, 1.1 * shown["value"].max()))
    look.plain_log(ax.xaxis)
    primary, turns = found.study.report.primary, found.shape(Side("", "turns"))
    multi, single = (policy_label(str(policy), found.study) for policy in (primary.policy, primary.against))
    ax.set_xlabel(f"{multi}'s {turns} over {single}'s {turns.num_kernels} first answers (×)")
    remark = "No seed of both is there yet. " if each.empty else ""
    remark += (
        "Ratio of speedups over eager of a task's fastest correct kernel, with eager as the floor: hollow "
        "where eager stands for either."
    )
    if same := each["task_id"].nunique() - bottom:
        remark += f" Left out are {same} tasks on which neither beats eager."
    if total["low"].notna().any():
        remark += " Bar: 95 % interval over tasks and seeds."
    return look.finish(figure, handles, remark), data


def _row(task: Task) -> str:
    own = task.id if task.name in task.id else f"{task.id} {task.name}"
    return textwrap.shorten(own.replace("_", " "), _LONGEST, placeholder=" …")


def write_by_task(found: Found, tasks: Sequence[Task], out_dir: Path) -> list[Path]:
    """``by_task.png``, ``.pdf`` and ``.csv``."""
    with look.theme():
        figure, data = by_task(found, tasks)
        return list(look.save(figure, data, out_dir, NAME, QUESTION))
