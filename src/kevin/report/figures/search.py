"""What each way of spending kernels has found, by kernels and by seconds of the device."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter, StrMethodFormatter

from kevin.core.config import Study
from kevin.core.files import read_table
from kevin.report.figures.style import LineStyle, grid, legend, line_styles, look, save
from kevin.report.notes import NOTE
from kevin.report.scores import policy_label

_X = {"kernels": "kernels a task", "gpu_seconds": "device seconds a task"}
_Y = {"speedup": "best so far, mean\nspeedup over eager (×)", "correct": "tasks solved (%)"}


def make_search_figure(table: Path, out_dir: Path, *, study: Study) -> list[Path]:
    """Write ``search.png``, ``.pdf`` and ``.csv`` from ``search.csv``; returns the three paths."""
    frame = read_table(table)
    note = str(frame[NOTE].iloc[0]) if NOTE in frame and len(frame) else None
    data = frame.drop(columns=NOTE, errors="ignore")
    with look():
        return save(plot_search(data, study), data, out_dir, "search", note=note)


def plot_search(data: pd.DataFrame, study: Study) -> Figure:
    """A column of panels for each policy's kernels and seconds."""
    policies = list(dict.fromkeys(data["policy"]))
    columns = [(policy, x) for policy in policies for x in _X]
    figure, axes = grid(len(_Y), len(columns), title="Ways to spend the same kernels", width=3.2, height=2.5)
    styles = line_styles(list(dict.fromkeys(data["strategy"])))
    for j, (policy, x) in enumerate(columns):
        own = data[data["policy"] == policy]
        for i, (y, label) in enumerate(_Y.items()):
            _draw(axes[i][j], own, x, y, styles)
            if j == 0:
                axes[i][j].set_ylabel(label)
        axes[0][j].set_title(policy_label(policy, study) if x == "kernels" else "", fontsize=9)
        axes[-1][j].set_xlabel(_X[x])
    handles = [
        Line2D([], [], color=s.color, linestyle=s.dashes, marker=s.marker, label=name) for name, s in styles.items()
    ]
    several = data["seed"].isna().any()
    bands = "Bands: bootstrap 95 % interval over tasks" + (" and seeds; thin lines: single seeds" if several else "")
    legend(figure, handles, columns=4, title=bands, handlelength=3.6)
    return figure


def _draw(ax: Axes, own: pd.DataFrame, x: str, y: str, styles: dict[str, LineStyle]) -> None:
    """Of several seeds the mean with its band, and each as a thin line; kernels and seconds double along the axis."""
    for strategy, curves in own.groupby("strategy", sort=False):
        style = styles[str(strategy)]
        together = curves[curves["seed"].isna()]
        for _, curve in curves.groupby("seed", sort=False):
            if together.empty:
                _curve(ax, curve, x, y, style)
            else:
                ax.plot(curve[x], curve[y], color=style.color, linestyle=style.dashes, linewidth=0.7, alpha=0.6)
        if not together.empty:
            _curve(ax, together, x, y, style)
    ax.set_ylim(bottom=0)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    if y == "correct":
        ax.set_ylim(0, 1.03)
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=""))


def _curve(ax: Axes, curve: pd.DataFrame, x: str, y: str, style: LineStyle) -> None:
    ax.fill_between(curve[x], curve[f"{y}_low"], curve[f"{y}_high"], color=style.color, alpha=0.08, linewidth=0)
    ax.plot(curve[x], curve[y], color=style.color, linestyle=style.dashes, marker=style.marker, markersize=4.5)
