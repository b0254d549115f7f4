"""The serial/parallel map: what k trajectories of t turns find, a law fitted to it, and the best split of a budget.

The law is y = a + b log2 k + c log2 t + d log2 k log2 t, by least squares over the measured cells. On k t = K, with
u = log2 t, it is a parabola in u: for d > 0 its top is at u = (c - b + d log2 K) / (2 d), for d <= 0 one end is best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.figures.curves import CORRECT, SPEEDUP, mean_by_task, seed_groups
from kevin.report.figures.style import INK, grid, legend
from kevin.report.records import records
from kevin.report.scores import CEILING, split_label

CELL, OPTIMUM = "cell", "optimum"
MIN_CELLS = 5
"""The law has four parameters: fewer cells say nothing of it."""
MIN_R2 = 0.8
"""A law that explains less of the cells' variance says nothing of where they are highest."""
_ROWS = {SPEEDUP: "mean speedup over eager (×)", CORRECT: "tasks with a correct kernel (%)"}
_LAW = ("a", "b", "c", "d")
_COLUMNS = ["split", "policy", "label", "row", "kind", "trajectories", "turns", "budget", "value", "low", "high",
            "is_best", "law", "turns_low", "turns_high", "determined", *_LAW, "r2"]  # fmt: skip


def doublings(longest: int) -> list[int]:
    """1, 2, 4, ... and ``longest`` itself."""
    return sorted({2**i for i in range(longest.bit_length()) if 2**i <= longest} | {longest}) if longest > 0 else []


# --- data -----------------------------------------------------------------------------------------------------------


def budget_map_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Rows of two kinds for each split, policy and ``row`` (speedup, correct).

    ``cell``: ``trajectories`` k and ``turns`` t, both at doublings, with the mean over tasks of the unbiased best@k of
    the first t turns, its interval, whether it is the best measured split of its ``budget`` k t (``is_best``; missing
    where the budget has one split only), and the ``law``'s value. ``optimum``: for each budget with several measured
    splits the law's best number of turns among those measured, with its bootstrap interval over tasks, the parameters
    and R². ``determined``: R² is at least `MIN_R2`, and the interval leaves out an end of what was measured. Without a
    law no such rows.
    """
    rows: list[dict[str, Any]] = []
    for head, seeds in seed_groups(scores[scores["policy"] != CEILING], study):
        for row, values in _surfaces(seeds):
            rows += [head | {"row": row} | r for r in _map_rows(values, study)]
    return pd.DataFrame(rows, columns=_COLUMNS).astype({"turns": "float64", "is_best": "object"})


def _surfaces(seeds: Sequence[pd.DataFrame]) -> Iterator[tuple[str, pd.DataFrame]]:
    """For each row of the figure the values of every task (rows) in every cell (columns: k, t), mean over seeds."""
    if any(metrics.usable(own).empty for own in seeds):
        return
    turns = doublings(int(min(metrics.usable(own)["turn"].max() for own in seeds)))
    found = {t: [metrics.trajectory_best(own, t) for own in seeds] for t in turns}
    sizes = doublings(min(metrics.smallest_group(own) for of_seeds in found.values() for own in of_seeds))
    for row in _ROWS:
        cells = {t: mean_by_task([_best_of(own, row, sizes) for own in of_seeds]) for t, of_seeds in found.items()}
        values = pd.concat(cells, axis=1).swaplevel(axis=1).dropna()
        yield row, values


def _best_of(trajectories: pd.DataFrame, column: str, sizes: Sequence[int]) -> pd.DataFrame:
    """Unbiased best@k of every task (rows) for every k of ``sizes`` (columns)."""
    weights: dict[tuple[int, int], np.ndarray] = {}
    found = {}
    for task, own in trajectories.groupby(metrics.TASK)[column]:
        ordered, n = np.sort(own.to_numpy(float)), len(own)
        for k in sizes:
            if (n, k) not in weights:
                weights[n, k] = metrics.best_of_k_weights(n, k)
        found[task] = [float(ordered @ weights[n, k]) for k in sizes]
    return pd.DataFrame.from_dict(found, orient="index", columns=list(sizes))


def _map_rows(values: pd.DataFrame, study: Study) -> list[dict[str, Any]]:
    if values.empty:
        return []
    cells = _cells_of(values)
    means = values.to_numpy().mean(axis=0).round(12)  # equal ones are equal: fewer turns then come first
    law = fit_law(values, study)
    rows = []
    for i, (k, t) in enumerate(cells):
        rivals = [(means[j], -tt) for j, (kk, tt) in enumerate(cells) if kk * tt == k * t]
        interval = metrics.mean_interval(
            values.iloc[:, i], num_resamples=study.report.num_bootstrap, seed=study.seed
        )._asdict()
        best = max(rivals) == (means[i], -t) if len(rivals) > 1 else None
        fitted = None if law is None else float(_design([(k, t)])[0] @ law.parameters)
        cell = {"kind": CELL, "trajectories": k, "turns": t, "budget": k * t, "is_best": best, "law": fitted}
        rows.append(cell | interval)
    if law is not None:
        facts = {"kind": OPTIMUM, "r2": law.r2} | dict(zip(_LAW, map(float, law.parameters), strict=True))
        rows += [facts | optimum._asdict() for optimum in _optima(law, cells)]
    return rows


def _cells_of(values: pd.DataFrame) -> list[tuple[int, int]]:
    """(k, t) of every column."""
    return list(zip(*(values.columns.get_level_values(i).astype(int) for i in (0, 1)), strict=True))


class Law(NamedTuple):
    parameters: np.ndarray
    """a, b, c, d."""
    resampled: np.ndarray
    """The same of resampled tasks, shape (num_resamples, 4)."""
    r2: float


class Optimum(NamedTuple):
    budget: int
    turns: float
    turns_low: float
    turns_high: float
    determined: bool


def fit_law(values: pd.DataFrame, study: Study) -> Law | None:
    """Least squares over the cells (columns: k, t) of the mean over tasks (rows).

    None where the cells cannot tell: fewer than `MIN_CELLS`, only one k or one t, or all means equal.
    """
    cells = _cells_of(values)
    means = values.to_numpy().mean(axis=0)
    spread = float(((means - means.mean()) ** 2).sum())
    if len(cells) < MIN_CELLS or min(len(set(side)) for side in zip(*cells, strict=True)) < 2 or spread < 1e-18:
        return None
    design = _design(cells)
    # linear in the values: the fit of a mean is the mean of the fits
    by_task = values.to_numpy() @ np.linalg.pinv(design).T
    parameters = by_task.mean(axis=0)
    weights = metrics.task_weights(len(by_task), study.report.num_bootstrap, study.seed)
    r2 = 1 - float(((means - design @ parameters) ** 2).sum()) / spread
    return Law(parameters, metrics.weighted_means(by_task.T, weights), r2)


def _design(cells: Sequence[tuple[int, int]]) -> np.ndarray:
    log_k, log_t = np.log2(np.array(cells, dtype=float)).T
    return np.stack([np.ones_like(log_k), log_k, log_t, log_k * log_t], axis=1)


def best_turns(parameters: np.ndarray, budget: int, least: float, most: float) -> np.ndarray:
    """Turns in ``least``..``most`` at which laws (rows of ``parameters``) are highest for ``budget`` kernels."""
    _, b, c, d = np.atleast_2d(parameters).T
    low, high = math.log2(least), math.log2(most)
    slope = c - b + d * math.log2(budget)  # of the law in u = log2 t on k t = budget, less 2 d u
    with np.errstate(divide="ignore", invalid="ignore"):
        top = np.clip(slope / (2 * d), low, high)
    at_end = np.where(slope * (high - low) - d * (high**2 - low**2) > 0, high, low)
    best: np.ndarray = 2.0 ** np.where(d > 0, top, at_end)
    return best


def _optima(law: Law, cells: Sequence[tuple[int, int]]) -> Iterator[Optimum]:
    for budget in sorted({k * t for k, t in cells}):
        splits = [t for k, t in cells if k * t == budget]
        if len(splits) < 2:
            continue
        least, most = min(splits), max(splits)
        low, high = np.percentile(best_turns(law.resampled, budget, least, most), [2.5, 97.5])
        turns = float(best_turns(law.parameters, budget, least, most)[0])
        at_ends = low <= least * 1.001 and high >= most / 1.001
        yield Optimum(budget, turns, float(low), float(high), law.r2 >= MIN_R2 and not at_ends)


# --- plot -----------------------------------------------------------------------------------------------------------

_RING, _LAW_COLOR, _BUDGET_COLOR = "#D55E00", "#CC79A7", "#8b93a1"


def plot_budget_map(data: pd.DataFrame) -> Figure:
    """A column for each policy; for each split a row of speedups and one of correct shares."""
    policies = list(data.drop_duplicates("policy")[["policy", "label"]].itertuples(index=False, name=None))
    rows = [(split, row) for split in data["split"].unique() for row in _ROWS]
    title = "Serial/parallel map: best of k trajectories after t turns, and the best split of a budget"
    figure, axes = grid(max(1, len(rows)), max(1, len(policies)), title=title, width=3.5, height=2.9)
    for i, (split, row) in enumerate(rows):
        shown = data[(data["split"] == split) & (data["row"] == row)]
        for j, (policy, label) in enumerate(policies):
            ax, own = axes[i][j], shown[shown["policy"] == policy]
            _panel(ax, own, row)
            ax.set_title(f"{split_label(split)} · {label}\n" if row == SPEEDUP else "\n", fontsize=9)
            ax.annotate(_says(own), (0, 1.02), xycoords="axes fraction", fontsize=7.5, color=INK)
            ax.set_ylabel(f"{_ROWS[row]}\nt, turns" if j == 0 else "t, turns")
            ax.set_xlabel("k, trajectories")
    handles = [
        Patch(facecolor="none", edgecolor=_RING, linewidth=2, label="best measured split of a budget"),
        Line2D([], [], color=_LAW_COLOR, marker="D", linewidth=2.2, label="the law's best turns, 95 % interval"),
        Line2D([], [], color=_BUDGET_COLOR, linestyle=(0, (2, 2)), linewidth=1, label="one budget, k · t"),
    ]
    law = "Law: a + b log2 k + c log2 t + d log2 k log2 t, least squares; intervals: bootstrap over tasks. "
    law += "Colours of speedups: each map's own"
    legend(figure, handles, columns=3, title=law)
    return figure


def _says(own: pd.DataFrame) -> str:
    """The law in a line: R², and the best turns of the largest budget that was split in most ways."""
    optima = own[own["kind"] == OPTIMUM]
    if optima.empty:
        return "" if own.empty else "no law: too few cells, or all alike"
    cells = own[own["kind"] == CELL]
    optimum = max(records(optima), key=lambda o: ((cells["budget"] == o["budget"]).sum(), o["budget"]))
    at = f"law R² {optimum['r2']:.2f}; {optimum['budget']:.0f} kernels: "
    if optimum["r2"] < MIN_R2:
        return f"law R² {optimum['r2']:.2f}: does not fit"
    if not optimum["determined"]:
        return f"{at}best turns not determined"
    return f"{at}best {optimum['turns']:.2g} turns [{optimum['turns_low']:.2g}, {optimum['turns_high']:.2g}]"


def _panel(ax: Axes, own: pd.DataFrame, row: str) -> None:
    ax.grid(visible=False)
    cells = own[own["kind"] == CELL]
    if cells.empty:
        ax.text(0.5, 0.5, "nothing measured", transform=ax.transAxes, ha="center", fontsize=8)
        return
    top = float(cells["value"].max()) if row == SPEEDUP else 1.0
    ks, ts = (sorted(cells[side].astype(int).unique()) for side in ("trajectories", "turns"))
    values = cells.pivot(index="turns", columns="trajectories", values="value").to_numpy()
    x_edges, y_edges = _edges(ks), _edges(ts)
    ax.pcolormesh(x_edges, y_edges, values, cmap="cividis", vmin=0, vmax=max(top, 1e-9))
    for cell in records(cells):
        i, j = ks.index(int(cell["trajectories"])), ts.index(int(cell["turns"]))
        text = f"{cell['value']:.2f}" if row == SPEEDUP else f"{100 * cell['value']:.0f}"
        color = "white" if cell["value"] < 0.55 * top else "black"
        corner = (x_edges[i + 1], y_edges[j + 1])  # off the lines, which go down to the right
        ax.annotate(text, corner, xytext=(-5, -5), textcoords="offset points", ha="right", va="top", fontsize=7.5,
                    color=color)  # fmt: skip
        if cell["is_best"] is True:
            place, inset = (x_edges[i], y_edges[j]), 0.05
            ax.add_patch(Rectangle((place[0] + inset, place[1] + inset), x_edges[i + 1] - x_edges[i] - 2 * inset,
                                   y_edges[j + 1] - y_edges[j] - 2 * inset, fill=False, edgecolor=_RING,
                                   linewidth=2))  # fmt: skip
    ends = (x_edges[0], x_edges[-1], y_edges[0], y_edges[-1])
    for budget in sorted(cells.loc[cells["is_best"].notna(), "budget"].unique()):
        n = math.log2(budget)
        xs = np.array([max(ends[0], n - ends[3]), min(ends[1], n - ends[2])])
        ax.plot(xs, n - xs, color=_BUDGET_COLOR, linestyle=(0, (2, 2)), linewidth=1, zorder=2)
    for o in records(own[(own["kind"] == OPTIMUM) & own["determined"].eq(True)]):
        n = math.log2(o["budget"])
        low, at, high = (math.log2(o[name]) for name in ("turns_low", "turns", "turns_high"))
        ax.plot([n - low, n - high], [low, high], color=_LAW_COLOR, linewidth=2.2, zorder=3, solid_capstyle="round")
        ax.plot([n - at], [at], "D", color=_LAW_COLOR, markeredgecolor="black", markersize=5, zorder=4)
    ax.set_xlim(*ends[:2])
    ax.set_ylim(*ends[2:])
    ax.set_xticks(np.log2(ks), [str(k) for k in ks])
    ax.set_yticks(np.log2(ts), [str(t) for t in ts])


def _edges(counts: Sequence[int]) -> np.ndarray:
    """Of cells around the logarithms of these counts."""
    at = np.log2(np.array(counts, dtype=float))
    if len(at) == 1:
        return np.array([at[0] - 0.5, at[0] + 0.5])
    middles = (at[1:] + at[:-1]) / 2
    return np.concatenate([[2 * at[0] - middles[0]], middles, [2 * at[-1] - middles[-1]]])
