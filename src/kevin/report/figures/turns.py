"""What becomes of a kernel on the next turn, and the best so far: a curve for each policy, over its seeds."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.figures.curves import SPEEDUP, plot_panels, serial_scaling_data
from kevin.report.figures.style import whole_steps
from kevin.report.records import records
from kevin.report.scores import CEILING, first_seed, policy_label
from kevin.report.turns import share, turn_changes

PANELS = {"kernels": "correct", "mended": "mended", "kept": "kept", "faster": "faster", "repeated": "repeated"}
"""Rows of the figure, below the best speedup so far, and what of `kevin.report.turns.SHARES` they show."""


def turns_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Columns split, policy, label, row, x (the turn), value, low, high; the kernels of all seeds count together."""
    real = scores[scores["policy"] != CEILING]
    best = serial_scaling_data(real, study)
    rows = records(best[best["row"] == SPEEDUP].drop(columns="trajectories"))
    firsts = real["policy"].map(lambda policy: first_seed(str(policy), study)).rename("first")
    for (split, policy), group in real.groupby(["split", firsts], sort=False):
        seeds = [turn_changes(own) for _, own in group.groupby("policy", sort=False)]
        head = {"split": split, "policy": policy, "label": policy_label(str(policy), study, len(seeds))}
        for turn, here in pd.concat(seeds).groupby("turn"):
            for row, name in PANELS.items():
                interval = share(here, name, study)
                if interval != metrics.NOTHING:
                    rows.append(head | {"row": row, "x": turn} | interval._asdict())
    return pd.DataFrame(rows).astype({"x": "float64"})


def plot_turns(data: pd.DataFrame) -> Figure:
    figure = plot_panels(data, "What becomes of kernels, turn by turn", "turn", markers=True)
    for ax in figure.axes:
        whole_steps(ax)
        ax.set_xlim(data["x"].min() - 0.2, data["x"].max() + 0.2)
    return figure
