"""Hacks by training step, and what this judge and one without guards pay for a kernel."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from kevin.core.config import Study
from kevin.core.files import read_table
from kevin.report.audit import ALL, ANY, PAID
from kevin.report.figures.style import LineStyle, alone, grid, legend, line_styles, look, save, whole_steps
from kevin.report.notes import NOTE
from kevin.report.scores import policy_label

_MOST_KINDS = 5
"""That get a line; the others are in the table."""
_PAYS = {"paid": "paid by this judge", "paid_unguarded": "paid without guards"}


def make_audit_figure(table: Path, out_dir: Path, *, study: Study) -> list[Path]:
    """Write ``audit.png``, ``.pdf`` and ``.csv`` from ``audit.csv``; returns the three paths."""
    frame = read_table(table)
    note = str(frame[NOTE].iloc[0]) if NOTE in frame and len(frame) else None
    data = frame.drop(columns=NOTE, errors="ignore")
    data = data[data["step"].notna()]
    with look():
        return save(plot_audit(data, study), data, out_dir, "audit", note=note)


def plot_audit(data: pd.DataFrame, study: Study) -> Figure:
    """A column for each run: shares of kinds above, mean reward of a kernel below."""
    runs = list(dict.fromkeys(data["run"]))
    kinds = [k for k in dict.fromkeys(data["kind"]) if k not in (ALL, ANY, PAID)][:_MOST_KINDS]
    shown = [*([] if len(kinds) == 1 else [ANY]), PAID, *kinds]
    figure, axes = grid(2, len(runs), title="Reward hacking by training step", width=4.2, height=2.4)
    styles = line_styles([*shown, *_PAYS.values()])
    highest = data.loc[data["kind"].isin(shown), "share_high"].max()
    means = _mean_scores(data)
    for j, run in enumerate(runs):
        own = data[data["run"] == run]
        axes[0][j].set_title(f"{policy_label(run, study)}: guards {own['guards'].iloc[0]}", fontsize=9)
        for kind in shown:
            _draw_share(axes[0][j], own[own["kind"] == kind].sort_values("step"), styles[kind])
        axes[0][j].set_ylim(0, min(1.03, 1.05 * highest))
        axes[0][j].yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0 if highest > 0.05 else 1, symbol=""))
        paid = means.loc[run]
        for column, name in _PAYS.items():
            look_of = styles[name]
            marker = alone(look_of, paid)
            axes[1][j].plot(paid.index, paid[column], color=look_of.color, linestyle=look_of.dashes, marker=marker)
        axes[1][j].set_ylim(0, 1.05 * max(means.max().max(), 0.01))
        for i in (0, 1):
            whole_steps(axes[i][j])
        axes[1][j].set_xlabel("step")
    axes[0][0].set_ylabel("kernels (%)")
    axes[1][0].set_ylabel("mean score of a kernel")
    handles = [
        Line2D([], [], color=s.color, linestyle=s.dashes, label=name.replace("_", " ")) for name, s in styles.items()
    ]
    legend(
        figure, handles, columns=4, title="Above: kinds, 95 % Wilson intervals; below: what is paid", handlelength=3.6
    )
    return figure


def _mean_scores(data: pd.DataFrame) -> pd.DataFrame:
    """Columns of `_PAYS` by run and step; without guards over the turns whose pay is known."""
    every = data[data["kind"] == ALL].set_index(["run", "step"])
    known = every["num_judged"] - every["num_unmeasured"]
    return pd.DataFrame(
        {"paid": every["paid"] / every["num_judged"], "paid_unguarded": every["paid_unguarded"] / known}
    )


def _draw_share(ax: Axes, own: pd.DataFrame, style: LineStyle) -> None:
    ax.fill_between(own["step"], own["share_low"], own["share_high"], color=style.color, alpha=0.08, linewidth=0)
    ax.plot(own["step"], own["share"], color=style.color, linestyle=style.dashes, marker=alone(style, own))
