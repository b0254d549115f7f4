"""What a policy finds with so many kernels, as first answers and as trajectories of most turns: a panel a policy."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kevin.report.figures.style import MUTED, grid, legend, line_styles, plain_log
from kevin.report.paper import OURS
from kevin.report.primary import COMPILED

FIRST, TURNS = "first answers", "turns"
COLUMNS = ["policy", "label", "way", "kernels", "turns", "value", "low", "high"]


def primary_data(table: pd.DataFrame) -> pd.DataFrame:
    """Columns policy, label, way, kernels, turns, value, low, high, of a written table ``primary``: the geometric mean
    speedup. torch.compile, where it was measured, is a row without kernels."""
    ours = table[table["source"] == OURS]
    played = ours[ours["kernels"].notna()]
    first = played[played["turns"] == 1].assign(way=FIRST)
    longest = played[(played["turns"] > 1) & (played["turns"] == played["turns"].max())].assign(way=TURNS)
    compiled = ours[ours["policy"] == COMPILED].assign(way=COMPILED)
    names = {"geomean": "value", "geomean_low": "low", "geomean_high": "high"}
    rows: pd.DataFrame = pd.concat([first, longest, compiled], ignore_index=True)
    return rows.rename(columns=names)[COLUMNS]


def plot_primary(data: pd.DataFrame) -> Figure:
    played = data[data["way"] != COMPILED]
    compiled = data[data["way"] == COMPILED]
    policies = dict(zip(played["policy"], played["label"], strict=True))
    title = "Do turns find faster kernels than as many first answers?"
    figure, (axes,) = grid(1, len(policies), title=title, width=2.5, height=2.1)
    styles = line_styles([FIRST, TURNS])
    for ax, (policy, label) in zip(axes, policies.items(), strict=True):
        for way, own in played[played["policy"] == policy].groupby("way"):
            style = styles[str(way)]
            ax.plot(own["kernels"], own["value"], color=style.color, marker=style.marker, linestyle=style.dashes)
            ax.fill_between(own["kernels"], own["low"], own["high"], color=style.color, alpha=0.12, linewidth=0)
        for value in compiled["value"]:
            ax.axhline(value, color=MUTED, linewidth=1, linestyle=":")
        ax.set_title(label, fontsize=9)
        ax.set_xscale("log", base=2)
        ax.set_xlabel("kernels a task")
        ax.sharey(axes[0])
        plain_log(ax.xaxis)
        ax.set_xticks(sorted(set(played["kernels"])), minor=False)
    axes[0].set_ylabel("speedup over eager (×),\ngeometric mean, floor 1")
    longest = played["turns"].max()
    shown = {FIRST: FIRST, TURNS: f"trajectories of {longest:.0f} turns"}
    handles = [
        Line2D([], [], color=styles[way].color, marker=styles[way].marker, linestyle=styles[way].dashes, label=text)
        for way, text in shown.items()
    ]
    if len(compiled):
        handles.append(Line2D([], [], color=MUTED, linewidth=1, linestyle=":", label=COMPILED))
    legend(figure, handles, columns=3, title="bands: 95 % intervals over tasks and seeds")
    return figure
