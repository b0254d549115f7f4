"""How fast correct kernels are: the distribution of their speedups, by policy and level."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from kevin.core.config import Study
from kevin.core.types import Outcome
from kevin.report.figures.curves import seed_groups
from kevin.report.figures.style import MUTED, LineStyle, grid, legend, line_styles, plain_log
from kevin.report.scores import CEILING, split_label

COMPILE = "torch.compile"
MAX_POINTS = 400
"""Of a curve; one of more kernels is drawn through as many of its quantiles."""
_COMPILE_LOOK = LineStyle("#7a4fa3", "", (0, (3, 1.5)))
_COLUMNS = ["split", "policy", "label", "num_kernels", "num_tasks", "speedup", "share"]


def speedup_distribution_data(scores: pd.DataFrame, baselines: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Points of each curve: ``share`` of the kernels is at most ``speedup`` times as fast as eager.

    A policy's kernels are all its correct ones, of every turn and seed alike; those of the ceiling and of torch.compile
    (where ``baselines`` holds it) are one for each task, the fastest.
    """
    rows: list[dict[str, Any]] = []
    correct = scores[scores["outcome"] == Outcome.CORRECT.value]
    for head, seeds in seed_groups(correct, study):
        own = pd.concat(seeds)
        speedups = own.groupby("task_id")["speedup"].max() if head["policy"] == CEILING else own["speedup"]
        rows += _curve(head, speedups, own["task_id"].nunique())
    compiled = baselines[baselines["baseline"] == "compile"].set_index("task_id")["ratio_to_eager"].dropna()
    for split, own in scores.groupby("split", sort=False):
        known = compiled[compiled.index.isin(own["task_id"].unique())]
        rows += _curve({"split": split, "policy": COMPILE, "label": f"{COMPILE}, by task"}, known, len(known))
    return pd.DataFrame(rows, columns=_COLUMNS)


def _curve(head: dict[str, Any], speedups: pd.Series, num_tasks: int) -> list[dict[str, Any]]:
    ordered = np.sort(speedups.to_numpy(float))
    num = min(len(ordered), MAX_POINTS)
    facts = head | {"num_kernels": len(ordered), "num_tasks": num_tasks}
    shares = [(i + 1) / num for i in range(num)]
    return [facts | {"speedup": float(ordered[math.ceil(s * len(ordered)) - 1]), "share": s} for s in shares]


def plot_speedup_distribution(data: pd.DataFrame, splits: list[str]) -> Figure:
    """A panel for each of ``splits``, also where no kernel is correct."""
    title = "Speedups of correct kernels over PyTorch eager: share at most so fast"
    figure, axes = grid(1, len(splits), title=title, width=4.4, height=3.2)
    policies = [str(p) for p in data["policy"].unique() if p != COMPILE]
    styles = line_styles(policies) | ({COMPILE: _COMPILE_LOOK} if COMPILE in set(data["policy"]) else {})
    for ax, split in zip(axes[0], splits, strict=True):
        own = data[data["split"] == split]
        ax.set_title(split_label(split))
        ax.set_xlabel("speedup over PyTorch eager (×)")
        _panel(ax, own, styles)
    axes[0][0].set_ylabel("share of correct kernels (%)")
    labels = data.drop_duplicates("policy").set_index("policy")["label"]
    handles = [Line2D([], [], color=s.color, linestyle=s.dashes, label=labels[p]) for p, s in styles.items()]
    handles.append(Line2D([], [], color=MUTED, linewidth=0.9, label="PyTorch eager (1×)"))
    note = "Left is slower. Dots: medians. The ceiling counts each task's fastest kernel"
    legend(figure, handles, columns=3, title=note, handlelength=3.6)
    return figure


def _panel(ax: Axes, own: pd.DataFrame, styles: dict[str, LineStyle]) -> None:
    ax.set_ylim(0, 1.03)
    ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=""))
    if own.empty:
        ax.text(0.5, 0.5, "no correct kernel", transform=ax.transAxes, ha="center", color=MUTED)
        return
    ax.set_xscale("log")
    ax.axvline(1, color=MUTED, linewidth=0.9, zorder=1)
    for policy, curve in own.groupby("policy", sort=False):
        style = styles[str(policy)]
        xs = np.concatenate([curve["speedup"].iloc[:1], curve["speedup"]])
        ys = np.concatenate([[0.0], curve["share"]])
        ax.plot(xs, ys, color=style.color, linestyle=style.dashes, drawstyle="steps-post")
        median = curve["speedup"].iloc[math.ceil(len(curve) / 2) - 1]
        ax.plot([median], [0.5], "o", color=style.color, markeredgecolor="white", markersize=6, zorder=3)
    low, high = min(0.9, own["speedup"].min() / 1.15), max(1.1, own["speedup"].max() * 1.15)
    ax.set_xlim(low, high)
    plain_log(ax.xaxis)
