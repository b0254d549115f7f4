"""What became of the kernels: share of each outcome by turn."""

from __future__ import annotations

import textwrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.figures.style import grid, legend, whole_steps
from kevin.report.palette import OUTCOMES
from kevin.report.scores import CEILING, policy_label, split_label


def outcomes_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Columns split, policy, label, turn, outcome, num, share; shares of a turn's verdicts sum to 1.

    Turns without a verdict (the harness failed) are left out and counted in ``num_missing``.
    """
    rows = []
    for (split, policy, turn), own in scores[scores["policy"] != CEILING].groupby(
        ["split", "policy", "turn"], sort=False
    ):
        judged = metrics.usable(own)
        for outcome in OUTCOMES:
            num = int((judged["outcome"] == outcome.value).sum())
            rows.append(
                {
                    "split": split,
                    "policy": policy,
                    "label": policy_label(str(policy), study),
                    "turn": turn,
                    "outcome": outcome.value,
                    "num": num,
                    "share": num / len(judged) if len(judged) else 0.0,
                    "num_missing": len(own) - len(judged),
                }
            )
    return pd.DataFrame(rows)


def plot_outcomes(data: pd.DataFrame) -> Figure:
    """A panel for each policy and split; a single policy's splits stand side by side."""
    splits, policies = list(data["split"].unique()), list(data["policy"].unique())
    labels = data.drop_duplicates("policy").set_index("policy")["label"]
    panels = [[(s, p) for p in policies] for s in splits]
    if len(policies) == 1:
        panels = [[(s, policies[0]) for s in splits]]
    width = 3.6 if len(panels[0]) <= 2 else 2.3
    figure, axes = grid(len(panels), len(panels[0]), title="Outcomes by turn", width=width, height=2.5)
    seen = [o for o in OUTCOMES if data.loc[data["outcome"] == o.value, "num"].sum() > 0]
    for i, row in enumerate(panels):
        for j, (split, policy) in enumerate(row):
            own = data[(data["split"] == split) & (data["policy"] == policy)]
            _stack(axes[i][j], own)
            if len(policies) == 1:
                axes[i][j].set_title(f"{split_label(split)} · {labels[policy]}", fontsize=9)
            elif i == 0:
                axes[i][j].set_title(textwrap.fill(labels[policy], 24), fontsize=9)
            if j == 0:
                level = "" if len(policies) == 1 else f"{split_label(split)}\n"
                axes[i][j].set_ylabel(f"{level}share of kernels (%)")
            if i == len(panels) - 1:
                axes[i][j].set_xlabel("turn")
    handles = [
        Patch(facecolor=OUTCOMES[o].color, hatch=OUTCOMES[o].hatch, edgecolor="white", label=OUTCOMES[o].label)
        for o in reversed(seen)
    ]
    legend(figure, handles, columns=len(handles), handlelength=2.4, handleheight=1.3)
    return figure


def _stack(ax: Axes, own: pd.DataFrame) -> None:
    bottom = pd.Series(0.0, index=sorted(own["turn"].unique()))
    for outcome, style in OUTCOMES.items():
        share = own[own["outcome"] == outcome.value].set_index("turn")["share"].reindex(bottom.index, fill_value=0.0)
        if share.sum() == 0:
            continue
        ax.bar(bottom.index, share, bottom=bottom, width=0.78, color=style.color, hatch=style.hatch,
               edgecolor="white", linewidth=0.8)  # fmt: skip
        if outcome.value == "correct":
            for turn, value in share.items():
                if value > 0.09:
                    ax.annotate(f"{100 * value:.0f}", (float(str(turn)), value), (0, -3), textcoords="offset points",
                                ha="center", va="top", fontsize=8, color="white", fontweight="bold")  # fmt: skip
        bottom = bottom + share
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=""))
    whole_steps(ax)
    ax.grid(visible=False, axis="x")
