"""What becomes of kernels turn by turn: their outcomes, and what the next turn makes of them."""

from __future__ import annotations

import pandas as pd
import seaborn as sns
from matplotlib.patches import Patch

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.figures import look
from kevin.report.figures.scaling import Drawn, judged_scores, seed_groups, split_panels, split_titles
from kevin.report.palette import OUTCOMES
from kevin.report.scores import CEILING, split_label
from kevin.report.turns import share, turn_changes

ROWS = {
    "correct": "correct kernels (%)",
    "mended": "wrong kernels that the\nnext turn mends (%)",
    "kept": "correct kernels that\nstay correct (%)",
    "faster": "correct kernels that\nget 5 % faster (%)",
    "repeated": "correct kernels that\nare given again (%)",
}
"""Of `kevin.report.turns.SHARES`."""


def turns_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Columns split, policy, label, row, x (the turn), value, low, high; the kernels of all seeds count together."""
    rows = []
    for head, seeds in seed_groups(scores[scores["policy"] != CEILING], study):
        for turn, here in pd.concat([turn_changes(own) for own in seeds]).groupby("turn"):
            for row in ROWS:
                interval = share(here, row, study)
                if interval != metrics.NOTHING:
                    rows.append(head | {"row": row, "x": turn} | interval._asdict())
    return pd.DataFrame(rows).astype({"x": "float64"})


def turns(scores: pd.DataFrame, study: Study) -> Drawn:
    data = turns_data(judged_scores(scores), study)
    figure = look.panels(
        split_panels(data), look.policy_looks(look.labels_of(data), study),
        x="turn", rows={row: label for row, label in ROWS.items() if row in set(data["row"])},
        columns=split_titles(data), height=1.9, remark="Bars: bootstrap 95 % interval over tasks.",
    )  # fmt: skip
    look.whole_steps(figure.axes)
    look.percent_axis(figure.axes)
    return figure, data


def outcomes_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each split, policy, turn and outcome: ``num`` kernels, their ``share`` of those with a verdict; the
    kernels of all seeds together.

    Turns without a verdict (the harness failed) are left out and counted in ``num_missing``.
    """
    rows = []
    for head, seeds in seed_groups(scores[scores["policy"] != CEILING], study):
        for turn, own in pd.concat(seeds).groupby("turn"):
            judged = metrics.usable(own)
            for outcome in OUTCOMES:
                num = int((judged["outcome"] == outcome.value).sum())
                share_of = num / len(judged) if len(judged) else 0.0
                cells = {"num": num, "share": share_of, "num_missing": len(own) - len(judged)}
                rows.append(head | {"turn": turn, "outcome": outcome.value} | cells)
    return pd.DataFrame(rows)


def outcomes(scores: pd.DataFrame, study: Study) -> Drawn:
    data = outcomes_data(judged_scores(scores), study)
    seen = [o for o in reversed(OUTCOMES) if data.loc[data["outcome"] == o.value, "num"].sum() > 0]
    grid = sns.displot(
        data, x="turn", weights="share", hue="outcome", row="split", col="policy", kind="hist", multiple="stack",
        discrete=True, shrink=0.8, hue_order=[o.value for o in seen], height=2.3, aspect=1.1, legend=False, alpha=1,
        palette={o.value: OUTCOMES[o].color for o in seen}, edgecolor="white",
    )  # fmt: skip
    labels = look.labels_of(data)
    for (split, policy), ax in grid.axes_dict.items():
        ax.set_title(labels[str(policy)] if split == data["split"].iloc[0] else "")
        ax.set(xlabel="turn", ylabel="")
        if policy == data["policy"].iloc[0]:
            ax.set_ylabel(f"{split_label(str(split))}\nshare of kernels (%)")
        right = data[(data["split"] == split) & (data["policy"] == policy) & (data["outcome"] == "correct")]
        for turn, value in zip(right["turn"], right["share"], strict=True):
            if value > 0.09:
                ax.annotate(f"{100 * value:.0f}", (turn, value), (0, -3), textcoords="offset points", ha="center",
                            va="top", fontsize=8, color="white")  # fmt: skip
        ax.grid(visible=False, axis="x")
    look.percent_axis(grid.figure.axes, 1.0)
    look.whole_steps(grid.figure.axes)
    handles = [Patch(facecolor=OUTCOMES[o].color, label=OUTCOMES[o].label) for o in reversed(seen)]
    return look.finish(grid.figure, handles), data
