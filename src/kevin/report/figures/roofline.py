"""Correct kernels against what their device can do: measured times, and shares of its peaks, from the verdicts.

Williams et al. (2009), with a device's peaks as the judge measures them: the speed of a copy, and of a large matrix
product. A verdict holds shares of both, every tensor moved once, so the ratio of the two shares is the arithmetic
intensity over that at which the roofs meet. Data that stay in a cache, and algebra that saves products, beat a roof.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kevin.core.config import Study
from kevin.core.types import Outcome
from kevin.report.figures.style import MUTED, LineStyle, grid, legend, line_styles, plain_log
from kevin.report.scores import CEILING, first_seed, policy_label, split_label
from kevin.report.verdicts import memory_times, read_measured

EAGER = "eager"
_EAGER_LOOK = LineStyle("#4d4d4d", "x", "")
_COLUMNS = ["split", "policy", "label", "task_id", "device", "kernel_us", "memory_us", "product_share", "intensity",
            "is_fastest"]  # fmt: skip


def roofline_data(
    scores: pd.DataFrame, store: Path, study: Study, *, traffic: Mapping[str, int] = MappingProxyType({})
) -> pd.DataFrame:
    """One row for the fastest correct kernel of each trajectory, and one of eager (policy `EAGER`) for each task.

    ``memory_us``: every tensor moved once at the speed of a copy, see `memory_times`. ``product_share``: of the speed
    of a matrix product, the fastest that was measured beside the task's kernels; with ``intensity`` (1: where the roofs
    meet) NaN for tasks without products. ``is_fastest``: of the policy's kernels for the task. Verdicts without a
    roofline (older ones, or not in ``store``) are left out.

    Args:
        traffic: bytes of a task's tensors, by task id, where known.
    """
    correct = scores[(scores["outcome"] == Outcome.CORRECT.value) & scores["verdict_key"].notna()]
    best = correct.loc[correct.groupby(["split", "policy", "task_id", "trajectory"], sort=False)["speedup"].idxmax()]
    measured = read_measured(store, best["verdict_key"])
    found = best.merge(measured[measured["bandwidth_share"].notna()], on="verdict_key")
    firsts = [first_seed(str(policy), study) for policy in found["policy"]]
    seeds = found["policy"].groupby(firsts).nunique()
    found["policy"] = firsts
    fastest = found.groupby(["split", "policy", "task_id"])["kernel_us"].transform("min")
    memory_us = found["task_id"].map(memory_times(found, traffic)).astype("float64")
    products_us = (found["kernel_us"] * found["flop_share"]).groupby(found["task_id"]).transform("min")
    frame = pd.DataFrame(
        {
            **{name: found[name] for name in ("split", "policy", "task_id", "device", "kernel_us")},
            "label": [policy_label(p, study, int(seeds[p])) for p in found["policy"]],
            "memory_us": memory_us,
            "product_share": products_us / found["kernel_us"],
            "intensity": products_us / memory_us,
            "is_fastest": found["kernel_us"] == fastest,
        },
        columns=_COLUMNS,
    )
    return pd.concat([_eager(frame, found["eager_us"]), frame], ignore_index=True)


def _eager(frame: pd.DataFrame, eager_us: pd.Series) -> pd.DataFrame:
    """A point of eager for each task: its median time beside these kernels."""
    rows = frame.assign(product_share=frame["product_share"] * frame["kernel_us"] / eager_us, kernel_us=eager_us)
    values = ["kernel_us", "memory_us", "product_share", "intensity"]
    by_task = rows.groupby(["split", "task_id"], sort=False)
    made = by_task[values].median().join(by_task["device"].first()).reset_index()
    return made.assign(policy=EAGER, label="PyTorch eager", is_fastest=True)[_COLUMNS]


def plot_roofline(data: pd.DataFrame, splits: list[str]) -> Figure:
    """For each split the time of tasks without products against their memory time, and the roofline of the others."""
    devices = ", ".join(sorted(data["device"].unique()))
    title = f"Correct kernels and the roofline of {devices}" if devices else "Correct kernels and the device's roofline"
    figure, axes = grid(2, len(splits), title=title, width=4.4, height=3.1)
    policies = [str(p) for p in data["policy"].unique() if p != EAGER]
    ordered = [p for p in policies if p != CEILING] + [p for p in policies if p == CEILING]
    styles = {EAGER: _EAGER_LOOK} | line_styles(ordered)
    for j, split in enumerate(splits):
        own = data[data["split"] == split]
        axes[0][j].set_title(f"{split_label(split)}: tasks without products")
        axes[1][j].set_title(f"{split_label(split)}: tasks with products")
        _times(axes[0][j], own[own["intensity"].isna()], styles)
        _roof(axes[1][j], own[own["intensity"].notna()], styles)
    labels = data.drop_duplicates("policy").set_index("policy")["label"]
    handles = [
        Line2D([], [], color=s.color, marker=s.marker or ".", linestyle="", label=labels[p])
        for p, s in styles.items()
        if p in labels
    ]
    handles.append(Line2D([], [], color="black", linewidth=1.2, label="what the device can do"))
    note = "Full: a policy's fastest kernel for a task; faint: the fastest of other trajectories"
    legend(figure, handles, columns=4, title=note)
    return figure


def _scatter(ax: Axes, own: pd.DataFrame, x: str, y: str, styles: dict[str, LineStyle]) -> None:
    for fastest in (False, True):
        for policy, style in styles.items():
            points = own[(own["policy"] == policy) & (own["is_fastest"] == fastest)]
            ax.plot(points[x], points[y], linestyle="", marker=style.marker or ".", color=style.color,
                    markersize=5.5 if fastest else 3.5, alpha=0.85 if fastest else 0.25, markeredgewidth=1 if
                    policy == EAGER else 0, rasterized=len(points) > 500, zorder=3 if fastest else 2)  # fmt: skip


def _empty(ax: Axes, text: str) -> None:
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=MUTED, fontsize=8.5)


def _labelled(ax: Axes, own: pd.DataFrame, x: str, y: str) -> bool:
    """Logarithmic axes with their labels; where there is nothing to draw the panel says so, and False is returned."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if own.empty:
        _empty(ax, "no verdict of such a kernel holds a roofline")
        return False
    ax.set_xscale("log")
    ax.set_yscale("log")
    return True


def _times(ax: Axes, own: pd.DataFrame, styles: dict[str, LineStyle]) -> None:
    if not _labelled(ax, own, "every tensor moved once, at a copy's speed (µs)", "measured time of a call (µs)"):
        return
    _scatter(ax, own, "memory_us", "kernel_us", styles)
    ends = np.array([own["memory_us"].min() / 1.3, own["memory_us"].max() * 1.3])
    low = min(own["kernel_us"].min() / 1.3, ends[0])
    for factor, color in ((1, "black"), (10, MUTED), (100, MUTED)):
        if factor > 1 and ends[0] * factor > own["kernel_us"].max():
            continue
        ax.plot(ends, factor * ends, color=color, linewidth=1.2 if factor == 1 else 0.8,
                linestyle="-" if factor == 1 else (0, (4, 3)), zorder=1)  # fmt: skip
        if factor > 1:
            ax.annotate(f"{factor}×", (ends[0], factor * ends[0]), xytext=(2, 3), textcoords="offset points",
                        fontsize=7.5, color=MUTED)  # fmt: skip
    ax.set_xlim(*ends)
    ax.set_ylim(low, max(own["kernel_us"].max(), ends[1]) * 1.3)
    plain_log(ax.xaxis)
    plain_log(ax.yaxis)


def _roof(ax: Axes, own: pd.DataFrame, styles: dict[str, LineStyle]) -> None:
    if not _labelled(
        ax, own, "arithmetic intensity (1: where the roofs meet)", "share of a large matrix\nproduct's speed"
    ):
        return
    _scatter(ax, own, "intensity", "product_share", styles)
    low, high = min(0.3, own["intensity"].min() / 1.5), max(3.0, own["intensity"].max() * 1.5)
    ax.plot([low, 1, high], [low, 1, 1], color="black", linewidth=1.2, zorder=1)
    ax.set_xlim(low, high)
    ax.set_ylim(min(low, own["product_share"].min() / 1.5), max(1.5, own["product_share"].max() * 1.5))
    plain_log(ax.xaxis)
    plain_log(ax.yaxis)
