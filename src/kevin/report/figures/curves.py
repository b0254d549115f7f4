"""Curves with 95 % bands: against turns (serial), against trajectories (parallel), and fast_p against p."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.figures.style import MUTED, LineStyle, grid, legend, line_styles, whole_steps
from kevin.report.metrics import Shape
from kevin.report.scores import CEILING, first_seed, policy_label, split_label

SPEEDUP, CORRECT = "speedup", "correct"
AXIS_LABELS = {
    SPEEDUP: "mean speedup over\nPyTorch eager (×)",
    CORRECT: "tasks with a\ncorrect kernel (%)",
    "best": "tasks (%),\nbest trajectory",
    "avg": "trajectories (%)",
    "kernels": "correct kernels (%)",
    "mended": "wrong kernels that the\nnext turn mends (%)",
    "kept": "correct kernels that\nstay correct (%)",
    "faster": "correct kernels that\nget 5 % faster (%)",
    "repeated": "correct kernels that\nare given again (%)",
}


def seed_groups(scores: pd.DataFrame, study: Study) -> Iterator[tuple[dict[str, Any], list[pd.DataFrame]]]:
    """The head of a curve's rows, and the scores of each seed that it is the mean of."""
    firsts = scores["policy"].map(lambda policy: first_seed(str(policy), study)).rename("first")
    for (split, policy), group in scores.groupby(["split", firsts], sort=False):
        seeds = [own for _, own in group.groupby("policy", sort=False)]
        yield {"split": split, "policy": policy, "label": policy_label(str(policy), study, len(seeds))}, seeds


Values = TypeVar("Values", pd.Series, pd.DataFrame)


def mean_by_task(seeds: Iterable[Values]) -> Values:
    """Task by task."""
    means: Values = pd.concat(list(seeds)).groupby(level=0, sort=False).mean()
    return means


def _cells(values: pd.Series, study: Study) -> dict[str, float]:
    """Value and band in the columns of every curve."""
    return metrics.mean_interval(values, num_resamples=study.report.num_bootstrap, seed=study.seed)._asdict()


# --- data: columns split, policy, label, row, x, value, low, high --------------------------------------------------


def serial_scaling_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Best of as many trajectories as all policies have, within the first x turns. The ceiling has no turns: one row
    without an x, the best of all."""
    rows = []
    num_trajectories = _num_trajectories(scores)
    for head, seeds in seed_groups(scores, study):
        ceiling = head["policy"] == CEILING
        longest = metrics.common_shape(seeds).turns
        for turns in [None] if ceiling else range(1, longest + 1):
            shape = _ALL if turns is None else Shape(num_trajectories, turns)
            values = mean_by_task(metrics.task_values_at(own, shape) for own in seeds)
            per_task = math.nan if ceiling else num_trajectories
            for row in (SPEEDUP, CORRECT):
                cells = _cells(values[f"{row}_best"], study)
                rows.append(head | {"row": row, "x": turns} | cells | {"trajectories": per_task})
    return pd.DataFrame(rows).astype({"x": "float64"})


_ALL = Shape(sys.maxsize, sys.maxsize)
"""More than any rollout has."""


def _num_trajectories(scores: pd.DataFrame) -> int:
    """As many as all policies but the ceiling have."""
    return metrics.common_shape([own for policy, own in scores.groupby("policy") if policy != CEILING]).trajectories


def parallel_scaling_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Unbiased best@k of whole trajectories, for k up to what every task of the policy has."""
    rows = []
    for head, seeds in seed_groups(scores[scores["policy"] != CEILING], study):
        trajectories = [metrics.trajectory_best(own) for own in seeds]
        for k in range(1, min(map(metrics.smallest_group, trajectories)) + 1):
            for row in (SPEEDUP, CORRECT):
                cells = _cells(mean_by_task(metrics.best_of_k_by_task(t, row, k) for t in trajectories), study)
                rows.append(head | {"row": row, "x": k} | cells)
    return pd.DataFrame(rows)


def fast_p_data(scores: pd.DataFrame, study: Study, num_points: int = 81) -> pd.DataFrame:
    """Share with a correct kernel of speedup >= x: of tasks (best of as many trajectories as all policies have), and of
    trajectories.

    Of the ceiling only the best counts. The axis ends above the fastest kernel of a policy, between 2 and 6.
    """
    fastest = scores.loc[scores["policy"] != CEILING, "speedup"].max()
    end = 2.0 if math.isnan(fastest) else min(6.0, max(2.0, math.ceil(2.1 * fastest) / 2))
    points = [float(p) for p in np.linspace(0, end, num_points)]
    rows = []
    num_trajectories = _num_trajectories(scores)
    for head, seeds in seed_groups(scores, study):
        shape = _ALL if head["policy"] == CEILING else _ALL._replace(trajectories=num_trajectories)
        values = mean_by_task(metrics.task_values_at(own, shape, points) for own in seeds)
        for row in ("best",) if head["policy"] == CEILING else ("best", "avg"):
            rows += [head | {"row": row, "x": p} | _cells(values[f"fast_{p:g}_{row}"], study) for p in points]
    return pd.DataFrame(rows)


# --- plots ----------------------------------------------------------------------------------------------------------


def plot_serial_scaling(data: pd.DataFrame) -> Figure:
    (number,) = {int(n) for n in data["trajectories"].dropna()} or {0}
    which = "one trajectory" if number == 1 else f"{number} trajectories"
    title = f"Serial scaling: best of {which}, by number of turns"
    figure = plot_panels(data, title, "turns", markers=True)
    for ax in figure.axes:
        whole_steps(ax)
    return figure


def plot_parallel_scaling(data: pd.DataFrame) -> Figure:
    figure = plot_panels(
        data, "Parallel scaling: best of k trajectories (unbiased estimate)", "k, trajectories", markers=True
    )
    for ax in figure.axes:
        if data["x"].max() > 16:
            ax.set_xscale("log", base=2)
        else:
            whole_steps(ax)
    return figure


def plot_fast_p(data: pd.DataFrame) -> Figure:
    title = "fast_p: share with a correct kernel at least p times as fast as PyTorch eager"
    return plot_panels(data, title, "p, speedup over PyTorch eager (×)", markers=False)


def plot_panels(data: pd.DataFrame, title: str, x_label: str, *, markers: bool) -> Figure:
    """One panel for each value of ``row`` and each split."""
    splits, panels = list(data["split"].unique()), list(data["row"].unique())
    figure, axes = grid(len(panels), len(splits), title=title, width=4.1, height=2.6)
    styles = line_styles(list(data["policy"].unique()))
    for i, panel in enumerate(panels):
        for j, split in enumerate(splits):
            ax, own = axes[i][j], data[(data["row"] == panel) & (data["split"] == split)]
            for _, curve in own[own["x"].notna()].groupby("policy", sort=False):
                _draw(ax, curve, styles, markers=markers)
            _finish(ax, panel, own)
            if i == 0:
                ax.set_title(split_label(str(split)))
            if i == len(panels) - 1:
                ax.set_xlabel(x_label)
            if j == 0:
                ax.set_ylabel(AXIS_LABELS[panel])
    _legend(figure, data, markers)
    return figure


def _draw(ax: Axes, curve: pd.DataFrame, styles: dict[str, LineStyle], *, markers: bool) -> None:
    """One policy's line and band; later ones are thinner, so that equal curves can be seen to lie on each other."""
    policy = str(curve["policy"].iloc[0])
    style, rank = styles[policy], list(styles).index(policy)
    if policy != CEILING:
        ax.fill_between(
            curve["x"],
            curve["low"],
            curve["high"],
            color=style.color,
            alpha=0.13 if len(styles) <= 4 else 0.07,
            linewidth=0,
            step=None if markers else "pre",
        )
    ax.plot(
        curve["x"],
        curve["value"],
        color=style.color,
        linestyle=style.dashes,
        linewidth=max(1.2, 2.4 - 0.25 * rank),
        marker=style.marker if markers else "",
        markersize=max(4.0, 8.0 - 0.9 * rank),
        drawstyle="default" if markers else "steps-pre",
    )


def _finish(ax: Axes, panel: str, own: pd.DataFrame) -> None:
    """Limits, units, the line of PyTorch eager and that of the ceiling."""
    if panel == SPEEDUP:
        policies = own[own["policy"] != CEILING]
        top = max(1.1, float(policies["high"].max()) * 1.08)
        ax.axhline(1.0, color=MUTED, linewidth=0.9, zorder=1)
    else:
        top = 1.03
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=""))
    for value in own.loc[own["x"].isna(), "value"]:
        if panel == SPEEDUP and value > 1.5 * top:
            ax.annotate(f"ceiling {value:.3g}× ↑", (0.01, 0.99), xycoords="axes fraction", ha="left", va="top",
                        fontsize=7.5, color=MUTED)  # fmt: skip
        else:
            style = line_styles([CEILING])[CEILING]
            ax.axhline(value, color=style.color, linestyle=style.dashes, linewidth=1.6)
            top = max(top, value * 1.05)
    ax.set_ylim(0, top)


def _legend(figure: Figure, data: pd.DataFrame, markers: bool) -> None:
    labels = data.drop_duplicates("policy").set_index("policy")["label"]
    styles = line_styles(list(labels.index))
    handles = [
        Line2D([], [], color=s.color, linestyle=s.dashes, marker=s.marker if markers else "", label=labels[p])
        for p, s in styles.items()
    ]
    if SPEEDUP in set(data["row"]):
        handles.append(Line2D([], [], color=MUTED, linewidth=0.9, label="PyTorch eager (1×)"))
    legend(figure, handles, columns=4, title="Bands: bootstrap 95 % interval over tasks", handlelength=3.6)
