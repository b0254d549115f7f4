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
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.budgets import every_budget
from kevin.report.figures.look import finish, labels_of
from kevin.report.figures.scaling import CORRECT, SPEEDUP, Drawn, judged_scores, seed_groups
from kevin.report.forms import records
from kevin.report.recipes import CEILING, split_label

CELL, OPTIMUM = "cell", "optimum"
MIN_CELLS = 5
"""The law has four parameters: fewer cells say nothing of it."""
MIN_R2 = 0.8
"""A law that explains less of the cells' variance says nothing of where they are highest."""
_ROWS = {SPEEDUP: "mean speedup over eager (×)", CORRECT: "tasks with a correct kernel (%)"}
_LAW = ("a", "b", "c", "d")
_COLUMNS = ["split", "policy", "label", "row", "kind", "trajectories", "turns", "budget", "value", "low", "high",
            "is_best", "law", "turns_low", "turns_high", "determined", *_LAW, "r2"]  # fmt: skip


# --- data -----------------------------------------------------------------------------------------------------------


def budget_map_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Rows of two kinds for each split, policy and ``row`` (speedup, correct).

    ``cell``: ``trajectories`` k and ``turns`` t, both at doublings, with the mean over tasks of the unbiased best@k of
    the first t turns, its interval, whether no measured split of its ``budget`` k t is better (``is_best``; missing
    where the budget has one split only), and the ``law``'s value. ``optimum``: for each budget with several measured
    splits the law's best number of turns among those measured, with its bootstrap interval over tasks, the parameters
    and R². ``determined``: R² is at least `MIN_R2`, and the interval leaves out an end of what was measured. Without a
    law no such rows.
    """
    rows: list[dict[str, Any]] = []
    for head, seeds in seed_groups(scores[scores["policy"] != CEILING], study):
        budgets = every_budget([seeds])
        for row in _ROWS if budgets else ():
            # tasks x (k, t), mean over seeds
            values = {shape: budget.values[[row]].mean(axis=1) for shape, budget in budgets.items()}
            rows += [head | {"row": row} | r for r in _map_rows(pd.concat(values, axis=1).dropna(), study)]
    return pd.DataFrame(rows, columns=_COLUMNS).astype({"turns": "float64", "is_best": "object"})


def _map_rows(values: pd.DataFrame, study: Study) -> list[dict[str, Any]]:
    """Of tasks x (k, t)."""
    if values.empty:
        return []
    cells: list[Any] = list(values.columns)
    means = values.to_numpy().mean(axis=0).round(12)  # equal ones are equal
    law = fit_law(values, study)
    rows = []
    for i, (k, t) in enumerate(cells):
        rivals = [means[j] for j, (kk, tt) in enumerate(cells) if kk * tt == k * t]
        interval = metrics.mean_estimate(values.iloc[:, i], study).interval._asdict()
        best = bool(max(rivals) == means[i]) if len(rivals) > 1 else None
        fitted = None if law is None else float(_design([(k, t)])[0] @ law.parameters)
        cell = {"kind": CELL, "trajectories": k, "turns": t, "budget": k * t, "is_best": best, "law": fitted}
        rows.append(cell | interval)
    if law is not None:
        facts = {"kind": OPTIMUM, "r2": law.r2} | dict(zip(_LAW, map(float, law.parameters), strict=True))
        rows += [facts | optimum for optimum in _optima(law, cells)]
    return rows


class Law(NamedTuple):
    parameters: np.ndarray
    """a, b, c, d."""
    resampled: np.ndarray
    """The same of resampled tasks, shape (num_resamples, 4)."""
    r2: float


def fit_law(values: pd.DataFrame, study: Study) -> Law | None:
    """Least squares over the cells (columns: k, t) of the mean over tasks (rows).

    None where the cells cannot tell: fewer than `MIN_CELLS`, only one k or one t, or all means equal.
    """
    cells: list[Any] = list(values.columns)
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


def _optima(law: Law, cells: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    for budget in sorted({k * t for k, t in cells}):
        splits = [t for k, t in cells if k * t == budget]
        if len(splits) > 1:
            least, most = min(splits), max(splits)
            low, high = np.percentile(best_turns(law.resampled, budget, least, most), [2.5, 97.5])
            turns = float(best_turns(law.parameters, budget, least, most)[0])
            is_open = low <= least * 1.001 and high >= most / 1.001
            found = {"budget": budget, "turns": turns, "turns_low": float(low), "turns_high": float(high)}
            yield found | {"determined": law.r2 >= MIN_R2 and not is_open}


# --- plot -----------------------------------------------------------------------------------------------------------


def serial_parallel_map(scores: pd.DataFrame, study: Study) -> Drawn:
    """A column for each policy; for each split a row of speedups and one of correct shares."""
    data = budget_map_data(judged_scores(scores), study)
    labels = labels_of(data)
    rows = [(split, row) for split in data["split"].unique() for row in _ROWS]
    figure, axes = plt.subplots(
        max(1, len(rows)), max(1, len(labels)), squeeze=False,
        figsize=(3.3 * max(1, len(labels)) + 0.4, 2.6 * max(1, len(rows))),
    )  # fmt: skip
    for of_row, (split, row) in zip(axes, rows, strict=False):
        for ax, (policy, label) in zip(of_row, labels.items(), strict=True):
            own = data[(data["split"] == split) & (data["row"] == row) & (data["policy"] == policy)]
            _panel(ax, own, row)
            title = f"{label}: {split_label(str(split))}" if row == SPEEDUP else ""
            ax.set_title("\n".join(filter(None, [title, _says(own)])), fontsize=8.5)
            ax.set_xlabel("trajectories")
            ax.set_ylabel(f"{_ROWS[row]}\nturns" if ax is of_row[0] else "turns")
    remark = (
        "Unbiased best of the trajectories after so many turns. Bold, with a star: the best measured split of a budget "
        "(turns times trajectories), or all that are as good. Law: a + b log2 k + c log2 t + d log2 k log2 t, least "
        f"squares; it names no split where it explains less than {MIN_R2:.0%} of the cells' variance, or where its "
        "interval reaches from one end to the other."
    )
    return finish(figure, (), remark), data


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
        return f"{at}not determined"
    return f"{at}best {optimum['turns']:.2g} turns [{optimum['turns_low']:.2g}, {optimum['turns_high']:.2g}]"


def _panel(ax: Axes, own: pd.DataFrame, row: str) -> None:
    cells = own[own["kind"] == CELL]
    if cells.empty:
        ax.axis("off")
        ax.text(0.5, 0.5, "nothing measured", transform=ax.transAxes, ha="center", fontsize=8)
        return
    show = "{:.2f}" if row == SPEEDUP else "{:.0f}"
    scale = 1 if row == SPEEDUP else 100
    texts = [show.format(scale * c["value"]) + ("*" if c["is_best"] is True else "") for c in records(cells)]
    table = cells.assign(text=texts, best=cells["is_best"].eq(True)).astype({"turns": int, "trajectories": int})
    values, words, best = (
        table.pivot(index="turns", columns="trajectories", values=v) for v in ("value", "text", "best")
    )
    top = float(cells["value"].max()) if row == SPEEDUP else 1.0
    sns.heatmap(values, vmin=0, vmax=max(top, 1e-9), cmap="mako", annot=words, fmt="", cbar=False, linewidths=1, ax=ax,
                annot_kws={"fontsize": 8})  # fmt: skip
    for text, is_best in zip(ax.texts, best.to_numpy().ravel(), strict=True):
        text.set_fontweight("bold" if is_best else "normal")
    ax.invert_yaxis()
    ax.tick_params(rotation=0)
