"""What each task adds to a declared comparison, seed by seed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from kevin.core.config import Study
from kevin.core.types import Task
from kevin.report.figures import look
from kevin.report.figures.scaling import Drawn
from kevin.report.metrics import mean_estimate
from kevin.report.recipes import policy_label
from kevin.report.replicates import Found, Side

NAME = "by_task"
QUESTION = "Which tasks make the difference between training over turns and over one?"
ALL = "all tasks"
_LONGEST = 44
"""Letters of a task's name."""


def by_task_data(found: Found, study: Study) -> pd.DataFrame:
    """Columns task_id, seed, value, low, high: by how much the fastest kernel of ``report.primary.policy`` is as fast
    as that of ``against``, a ratio with eager as the floor, of each seed of both; and last of all tasks and seeds, with
    an interval where there are two seeds. No row where no seed has both."""
    sides = Side(str(study.report.primary.policy), "turns"), Side(str(study.report.primary.against), "first")
    own, other = found.of_both("log_speedup", *sides)
    logs = own - other
    rows = logs.rename_axis("task_id").melt(ignore_index=False, var_name="seed").reset_index().dropna()
    if logs.empty:
        return rows.reindex(columns=["task_id", "seed", "value", "low", "high"])
    total = mean_estimate(logs, study).interval._asdict() | {"task_id": ALL}
    if logs.notna().any().sum() < 2:
        del total["low"], total["high"]
    frame = pd.concat([rows, pd.DataFrame([total])], ignore_index=True)
    ratios = ["value", "low", "high"]
    return frame.assign(**{name: np.exp(frame[name]) if name in frame else np.nan for name in ratios})


def by_task(found: Found, study: Study, tasks: Sequence[Task]) -> Drawn:
    data = by_task_data(found, study)
    each, total = data[data["seed"].notna()], data[data["seed"].isna()]
    shown = each[each["task_id"].isin(each.loc[each["value"] != 1, "task_id"])]
    rows = {task.id: _row(task) for task in tasks} | {ALL: ALL}
    means = np.log(shown["value"]).groupby(shown["task_id"]).mean().sort_values(kind="stable")
    order = [*means.index.map(rows), ALL]
    figure, ax = plt.subplots(figsize=(7.0, 0.6 + 0.24 * len(order)))
    sns.stripplot(
        x=shown["value"], y=shown["task_id"].map(rows), hue=shown["seed"].map("seed {:.0f}".format),
        order=order, jitter=False, size=6, alpha=0.85, ax=ax,
    )  # fmt: skip
    bottom = len(order) - 1
    ax.set_yticks(range(len(order)), order)  # where there is nothing to show too
    ax.set_ylim(bottom + 0.6, -0.6)
    ax.plot([*total["low"], *total["high"]], [bottom] * 2 * len(total), color=look.INK, linewidth=1.6)
    ax.plot(total["value"], [bottom] * len(total), "D", color=look.INK, markersize=6)
    ax.axhline(bottom - 0.5, color=look.MUTED, linewidth=0.8)
    ax.axvline(1.0, color=look.MUTED, linewidth=1, zorder=1)
    ax.set_xscale("log")
    look.plain_log(ax.xaxis)
    primary, turns = study.report.primary, found.shape(Side("", "turns"))
    multi, single = (policy_label(str(policy), study) for policy in (primary.policy, primary.against))
    ax.set(ylabel="", xlabel=f"{multi}'s {turns} over {single}'s {turns.num_kernels} first answers (×)")
    handles, _ = ax.get_legend_handles_labels()
    if legend := ax.get_legend():
        legend.remove()
    remark = "No seed of both is there yet. " if each.empty else ""
    remark += "Ratio of speedups over eager of a task's fastest correct kernel, with eager as the floor."
    if same := each["task_id"].nunique() - len(means):
        remark += f" Tasks on which neither arm beats eager, 1 in every seed, are left out: {same}."
    if total["low"].notna().any():
        remark += " Bar: 95 % interval over tasks and seeds."
    return look.finish(figure, handles, remark), data


def _row(task: Task) -> str:
    own = task.id if task.name in task.id else f"{task.id} {task.name}"
    return textwrap.shorten(own.replace("_", " "), _LONGEST, placeholder=" …")


def write_by_task(found: Found, study: Study, tasks: Sequence[Task], out_dir: Path) -> list[Path]:
    """``by_task.png``, ``.pdf`` and ``.csv``."""
    with look.theme():
        figure, data = by_task(found, study, tasks)
        return list(look.save(figure, data, out_dir, NAME, QUESTION))
