"""Correct kernels against what their device can do: measured times, and shares of its peaks, from the verdicts.

Williams et al. (2009), with a device's peaks as the judge measures them: the speed of a copy, and of a large matrix
product. A verdict holds shares of both, every tensor moved once, so the ratio of the two shares is the arithmetic
intensity over that at which the roofs meet. Data that stay in a cache, and algebra that saves products, beat a roof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from kevin.core.config import Study
from kevin.core.types import Outcome, Task
from kevin.report.figures.look import FAINT, MUTED, Look, finish, labels_of, plain_log, policy_looks
from kevin.report.figures.scaling import Drawn, judged_scores
from kevin.report.recipes import first_seed, policy_label, split_label
from kevin.report.scores import read_verdict

# --- what the verdicts hold beside the speedup --------------------------------------------------------------------

COLUMNS = {
    "verdict_key": "str",
    "device": "str",
    "kernel_us": "float64",
    "eager_us": "float64",
    "bandwidth_share": "float64",
    "flop_share": "float64",
}


def read_measured(store: Path, keys: Iterable[str]) -> pd.DataFrame:
    """One row for each of these verdicts that the store holds and that was timed; columns `COLUMNS`.

    ``kernel_us``, ``eager_us``: median time of a call. ``bandwidth_share``: of the speed of a copy, with every tensor
    moved once; ``flop_share``: of the speed of a large matrix product, none for a task without products (see
    `kevin.judge.device.roofline`). Shares that an older verdict lacks are NaN. Raises DataError for a damaged file.
    """
    found = ((key, read_verdict(store, key)) for key in dict.fromkeys(keys))
    rows = [
        {
            "verdict_key": key,
            "device": verdict.device_name,
            "kernel_us": verdict.timing.median_us,
            "eager_us": verdict.reference_timing.median_us,
            "bandwidth_share": verdict.details.get("bandwidth_share"),
            "flop_share": verdict.details.get("flop_share"),
        }
        for key, verdict in found
        if verdict is not None and verdict.timing is not None and verdict.reference_timing is not None
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def traffic_bytes(tasks: Iterable[Task]) -> dict[str, int]:
    """Of every input, parameter and output, each moved once, by task id; tasks without a spec are left out."""
    return {task.id: task.spec.num_bytes for task in tasks if task.spec is not None}


def memory_times(measured: pd.DataFrame, traffic: Mapping[str, int]) -> dict[str, float]:
    """Microseconds in which a copy moves every tensor of a task once, by task id.

    Every process of the judge measures its own copy, some on a busy machine, so the fastest one stands for the device:
    of all these verdicts where the task's ``traffic`` is known, else of its own. ``measured``: of one device, rows of
    `read_measured` with a ``task_id``; those without a ``bandwidth_share`` tell nothing.
    """
    own_us = measured["kernel_us"] * measured["bandwidth_share"]
    shortest = own_us.groupby(measured["task_id"]).min().dropna()
    peak = (measured["task_id"].map(traffic).astype("float64") / own_us).max()
    known = shortest.index.to_series().map(traffic).astype("float64") / peak
    return {str(task): float(us) for task, us in known.fillna(shortest).items()}


# --- data ---------------------------------------------------------------------------------------------------------


EAGER = "eager"
_COLUMNS = ["split", "policy", "label", "task_id", "device", "kernel_us", "memory_us", "product_share", "intensity",
            "is_fastest"]  # fmt: skip


def roofline_data(scores: pd.DataFrame, store: Path, study: Study, traffic: Mapping[str, int]) -> pd.DataFrame:
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


def roofline(scores: pd.DataFrame, store: Path, tasks: Sequence[Task], study: Study) -> Drawn:
    """For each split the time of tasks without products against their memory time, and the roofline of the others."""
    splits = list(dict.fromkeys(judged_scores(scores)["split"]))
    data = roofline_data(scores, store, study, traffic_bytes(tasks))
    labels = labels_of(data)
    looks = {EAGER: Look(labels.pop(EAGER), MUTED, "x", "")} if EAGER in labels else {}
    looks |= {
        policy: own._replace(marker=own.marker or ".", dashes="") for policy, own in policy_looks(labels, study).items()
    }
    figure, axes = plt.subplots(2, len(splits), squeeze=False, figsize=(4.4 * len(splits) + 0.4, 6.2))
    for j, split in enumerate(splits):
        own = data[data["split"] == split]
        axes[0][j].set_title(f"{split_label(split)}: tasks without products")
        axes[1][j].set_title(f"{split_label(split)}: tasks with products")
        _times(axes[0][j], own[own["intensity"].isna()], looks)
        _roof(axes[1][j], own[own["intensity"].notna()], looks)
    devices = ", ".join(sorted(data["device"].unique()))
    remark = (
        f"Measured on {devices or 'no device yet'}. Line: what memory and arithmetic allow, by a copy of large tensors "
        "and a large product. Shaded: beyond it lie kernels whose data stay in the cache, or that save work by algebra."
        " Full: a policy's fastest kernel for a task; faint: the fastest of other trajectories."
    )
    return finish(figure, [own.handle() for own in looks.values()], remark), data


def _scatter(ax: Axes, own: pd.DataFrame, x: str, y: str, looks: Mapping[str, Look]) -> None:
    for fastest in (False, True):
        for policy, each in looks.items():
            points = own[(own["policy"] == policy) & (own["is_fastest"] == fastest)]
            ax.plot(points[x], points[y], linestyle="", marker=each.marker, color=each.color,
                    markersize=5.5 if fastest else 3.5, alpha=0.85 if fastest else 0.25, zorder=3 if fastest else 2,
                    markeredgewidth=float(policy == EAGER), rasterized=len(points) > 500)  # fmt: skip


def _labelled(ax: Axes, own: pd.DataFrame, x: str, y: str) -> bool:
    """Logarithmic axes with their labels; where there is nothing to draw the panel says so, and False is returned."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if own.empty:
        text = "no verdict of such a kernel holds a roofline"
        ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=MUTED, fontsize=8.5)
        return False
    ax.set_xscale("log")
    ax.set_yscale("log")
    return True


def _times(ax: Axes, own: pd.DataFrame, looks: Mapping[str, Look]) -> None:
    if not _labelled(ax, own, "every tensor moved once, at a copy's speed (µs)", "measured time of a call (µs)"):
        return
    _scatter(ax, own, "memory_us", "kernel_us", looks)
    ends = np.array([own["memory_us"].min() / 1.3, own["memory_us"].max() * 1.3])
    low, high = min(own["kernel_us"].min(), ends[0]) / 1.3, max(own["kernel_us"].max(), ends[1]) * 1.3
    ax.plot(ends, ends, color="black", linewidth=1.2, zorder=1)
    ax.fill_between(ends, low, ends, color=FAINT, alpha=0.5, linewidth=0, zorder=0)
    for factor in (10, 100):
        if ends[0] * factor < high:
            ax.plot(ends, factor * ends, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
            ax.annotate(f"{factor} times as long", (ends[0], factor * ends[0]), xytext=(2, 3), fontsize=7,
                        textcoords="offset points", color=MUTED)  # fmt: skip
    ax.set_xlim(*ends)
    ax.set_ylim(low, high)
    plain_log(ax.xaxis)
    plain_log(ax.yaxis)


def _roof(ax: Axes, own: pd.DataFrame, looks: Mapping[str, Look]) -> None:
    x, y = "arithmetic intensity (1: where the roofs meet)", "share of a large matrix\nproduct's speed"
    if not _labelled(ax, own, x, y):
        return
    _scatter(ax, own, "intensity", "product_share", looks)
    low, high = min(0.3, own["intensity"].min() / 1.5), max(3.0, own["intensity"].max() * 1.5)
    bottom, top = min(low, own["product_share"].min() / 1.5), max(1.5, own["product_share"].max() * 1.5)
    ax.plot([low, 1, high], [low, 1, 1], color="black", linewidth=1.2, zorder=1)
    ax.fill_between([low, 1, high], [low, 1, 1], top, color=FAINT, alpha=0.5, linewidth=0, zorder=0)
    ax.set_xlim(low, high)
    ax.set_ylim(bottom, top)
    plain_log(ax.xaxis)
    plain_log(ax.yaxis)
