"""What more turns, more trajectories and more kernels find, how fast that is, and what became of all others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.report import metrics
from kevin.report.figures import look
from kevin.report.figures.look import COMPILE, Look
from kevin.report.metrics import by_seed, mean_estimate
from kevin.report.paper import OURS
from kevin.report.recipes import CEILING, OUTCOMES, first_seed, policy_label, split_label
from kevin.report.tables import compile_speedups

SPEEDUP, CORRECT = "speedup", "correct"
ROWS = {SPEEDUP: "mean speedup over\nPyTorch eager (×)", CORRECT: "tasks with a\ncorrect kernel (%)"}
OVER_TASKS = "Bars: bootstrap 95 % interval over tasks."
Drawn = tuple[Figure, pd.DataFrame]
"""A figure, and exactly what is plotted in it."""


def seed_groups(scores: pd.DataFrame, study: Study) -> Iterator[tuple[dict[str, Any], list[pd.DataFrame]]]:
    """The head of a curve's rows, and the scores of each seed that it is the mean of."""
    firsts = scores["policy"].map(lambda policy: first_seed(str(policy), study)).rename("first")
    for (split, policy), group in scores.groupby(["split", firsts], sort=False):
        seeds = [own for _, own in group.groupby("policy", sort=False)]
        yield {"split": split, "policy": policy, "label": policy_label(str(policy), study, len(seeds))}, seeds


def curve_cells(seeds: Iterable[pd.Series], study: Study) -> dict[str, float]:
    """Value and band in the columns of every curve, of each seed's values by task: their mean task by task, and an
    interval over tasks alone."""
    return mean_estimate(by_seed(seeds).mean(axis=1), study).interval._asdict()


def split_panels(data: pd.DataFrame, looks: Mapping[str, Look], **more: Any) -> Figure:
    """`look.panels` with a column for each split and a line for each policy."""
    titles = {str(split): split_label(str(split)) for split in data["split"].unique()}
    return look.panels(data.rename(columns={"split": "column", "policy": "key"}), looks, columns=titles, **more)


def judged_scores(frame: pd.DataFrame) -> pd.DataFrame:
    """Raises DataError where no policy has a verdict."""
    if frame.loc[frame["policy"] != CEILING, "outcome"].isna().all():
        raise DataError("none of the score files holds a verdict of a policy: there is nothing to plot")
    return frame


# --- turns against first answers ------------------------------------------------------------------------------------

FIRST, TURNS = "first answers", "turns"


def primary_data(table: pd.DataFrame) -> pd.DataFrame:
    """Columns policy, label, way, kernels, turns, value, low, high, of a written table ``primary``: the geometric mean
    speedup. torch.compile, where it was measured, is a row without kernels."""
    ours = table[table["source"] == OURS]
    played = ours[ours["kernels"].notna()]
    if played.empty:
        raise DataError("the table primary holds no kernels of a policy: there is nothing to plot")
    first = played[played["turns"] == 1].assign(way=FIRST)
    longest = played[(played["turns"] > 1) & (played["turns"] == played["turns"].max())].assign(way=TURNS)
    compiled = ours[ours["policy"] == COMPILE].assign(way=COMPILE)
    names = {"geomean": "value", "geomean_low": "low", "geomean_high": "high"}
    rows: pd.DataFrame = pd.concat([first, longest, compiled], ignore_index=True)
    return rows.rename(columns=names)[["policy", "label", "way", "kernels", "turns", "value", "low", "high"]]


def primary(table: pd.DataFrame, study: Study) -> Drawn:
    data = primary_data(table)
    played = data[data["way"] != COMPILE]
    own = look.policy_looks(look.labels_of(played), study)
    ways = {FIRST: (FIRST, "o", (0, (3, 1.5))), TURNS: (f"turns ({played['turns'].max():.0f} each)", "s", "-")}
    shown = {way: Look(text, look.INK, marker, dashes) for way, (text, marker, dashes) in ways.items()}
    given = played.assign(row="geomean", column=played["policy"], key=played["way"], x=played["kernels"])
    figure = look.panels(
        given, shown, x="kernels a task", width=2.5,
        rows={"geomean": "speedup over eager (×),\ngeometric mean, floor 1"},
        columns={policy: each.label for policy, each in own.items()},
        remark="Best kernel of a task among so many. Bars: 95 % interval over tasks and seeds.",
    )  # fmt: skip
    for ax, each in zip(figure.axes, own.values(), strict=True):
        for line in ax.get_lines():
            line.set_color(each.color)
        for bars in ax.collections:
            bars.set_color(each.color)
        for value in data.loc[data["way"] == COMPILE, "value"]:
            look.level(ax, value, COMPILE, ":")
    look.doubling_axis(figure.axes, played["kernels"])
    return figure, data


# --- more turns, more trajectories ----------------------------------------------------------------------------------


def _num_trajectories(scores: pd.DataFrame) -> int:
    """As many as all policies but the ceiling have."""
    return metrics.common_shape([own for policy, own in scores.groupby("policy") if policy != CEILING]).trajectories


def serial_scaling_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Columns split, policy, label, row, x, value, low, high, trajectories: the best of as many trajectories as all
    policies have, within the first x turns. The ceiling has no turns: one row without an x, the best of all."""
    rows = []
    num_trajectories = _num_trajectories(scores)
    for head, seeds in seed_groups(scores, study):
        ceiling = head["policy"] == CEILING
        longest = metrics.common_shape(seeds).turns
        for turns in [None] if ceiling else range(1, longest + 1):
            drawn = None if ceiling else num_trajectories
            values = [metrics.task_values(metrics.trajectory_best(own, turns), drawn) for own in seeds]
            for row in ROWS:
                cells = curve_cells((own[f"{row}_best"] for own in values), study)
                rows.append(head | {"row": row, "x": turns} | cells | {"trajectories": drawn})
    return pd.DataFrame(rows).astype({"x": "float64", "trajectories": "float64"})


def serial_scaling(scores: pd.DataFrame, study: Study) -> Drawn:
    data = serial_scaling_data(judged_scores(scores), study)
    (number,) = {int(n) for n in data["trajectories"].dropna()} or {0}
    which = "one trajectory" if number == 1 else f"{number} trajectories"
    lines = data[data["policy"] != CEILING]
    looks = look.policy_looks(look.labels_of(lines), study)
    figure = split_panels(lines, looks, x="turns", rows=ROWS, remark=f"Best of {which} of a task. {OVER_TASKS}")
    look.whole_steps(figure.axes)
    _limits(figure, data[data["policy"] == CEILING])
    return figure, data


def _limits(figure: Figure, ceiling: pd.DataFrame | None = None) -> None:
    """Of rows of speedups and of correct tasks: from 0, with the lines of PyTorch eager and of the ceiling."""
    count = len(figure.axes) // 2
    above, below = figure.axes[:count], figure.axes[count:]
    top = max(1.1, *(ax.get_ylim()[1] for ax in above))
    for ax in above:
        ax.set_ylim(0, top)
        look.level(ax, 1.0, "PyTorch eager")
    look.percent_axis(below)
    if ceiling is None or ceiling.empty:
        return
    for ax, (_, own) in zip(above, ceiling[ceiling["row"] == SPEEDUP].groupby("split", sort=False), strict=False):
        value = float(own["value"].iloc[0])
        if value > top:
            ax.annotate(f"ceiling {value:.3g}× ↑", (0.01, 0.98), xycoords="axes fraction", va="top", fontsize=7.5,
                        color=look.MUTED)  # fmt: skip
        else:
            look.level(ax, value, "ceiling", (0, (1, 1.5)))


def parallel_scaling_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Unbiased best@k of whole trajectories, for k up to what every task of the policy has; columns as above."""
    rows = []
    for head, seeds in seed_groups(scores[scores["policy"] != CEILING], study):
        trajectories = [metrics.trajectory_best(own) for own in seeds]
        for k in range(1, min(map(metrics.smallest_group, trajectories)) + 1):
            for row in ROWS:
                values = [metrics.best_of(own, row, k) for own in trajectories]
                rows.append(head | {"row": row, "x": k} | curve_cells(values, study))
    return pd.DataFrame(rows)


def parallel_scaling(scores: pd.DataFrame, study: Study) -> Drawn:
    data = parallel_scaling_data(judged_scores(scores), study)
    looks = look.policy_looks(look.labels_of(data), study)
    remark = f"Best of so many, unbiased estimate. {OVER_TASKS}"
    figure = split_panels(data, looks, x="trajectories of all turns", rows=ROWS, remark=remark)
    if data["x"].max() > 16:
        look.doubling_axis(figure.axes, data["x"])
    else:
        look.whole_steps(figure.axes)
    _limits(figure)
    return figure, data


# --- how fast -------------------------------------------------------------------------------------------------------

SLOWEST = 1 / 16
"""Where the axis of fast_p begins at the latest."""


def fast_p_data(scores: pd.DataFrame, compiled: pd.Series, study: Study) -> pd.DataFrame:
    """Share with a correct kernel of speedup >= x: of tasks (best of as many trajectories as all policies have), and of
    trajectories. Columns split, policy, label, row, x, value, low, high.

    Of the ceiling and of torch.compile only the best counts. The axis ends above the fastest kernel of a policy.

    Args:
        compiled: speedup of torch.compile by task.
    """
    policies = scores[scores["policy"] != CEILING]
    end = max(4.0, 1.1 * float(np.nan_to_num(policies["speedup"].max())))
    doubled = [2.0**i for i in range(int(math.log2(SLOWEST)), int(math.log2(end)) + 1)]
    every = [0.0, *np.geomspace(SLOWEST, end, 81), *doubled]
    points = sorted({float(f"{p:g}") for p in every})  # as the columns of `metrics.task_values` are named
    rows = []
    num_trajectories = _num_trajectories(scores)
    for head, seeds in seed_groups(scores, study):
        ceiling = head["policy"] == CEILING
        drawn = None if ceiling else num_trajectories
        values = [metrics.task_values(metrics.with_fast(metrics.trajectory_best(own), points), drawn) for own in seeds]
        for row in ("best",) if ceiling else ("best", "avg"):
            of_points = {p: [own[f"fast_{p:g}_{row}"] for own in values] for p in points}
            rows += [head | {"row": row, "x": p} | curve_cells(own, study) for p, own in of_points.items()]
    for split, own in scores.groupby("split", sort=False):
        known = compiled[compiled.index.isin(own["task_id"].unique())]
        head = {"split": split, "policy": COMPILE, "label": COMPILE, "row": "best"}
        rows += [head | {"x": p, "value": float((known >= p).mean())} for p in points if len(known)]
    return pd.DataFrame(rows)


def fast_p(scores: pd.DataFrame, baselines: pd.DataFrame, study: Study) -> Drawn:
    compiled = pd.Series(compile_speedups(baselines), dtype="float64")
    data = fast_p_data(judged_scores(scores), compiled, study)
    shown = data[data["x"] > 0]
    looks = {key: own._replace(marker="") for key, own in look.policy_looks(look.labels_of(data), study).items()}
    rows = {"best": "tasks (%),\nbest trajectory", "avg": "trajectories (%)"}
    remark = f"The left end is nearly the share of correct ones. {OVER_TASKS} At each power of two, side by side."
    figure = split_panels(shown, looks, x="p, speedup over PyTorch eager (×)", rows=rows, remark=remark, steps=True)
    look.percent_axis(figure.axes)
    for ax in figure.axes:
        ax.set_xscale("log")
        ax.set_xlim(SLOWEST, shown["x"].max())
        look.plain_log(ax.xaxis)
        ax.axvline(1.0, color=look.MUTED, linewidth=0.9, zorder=1)
    return figure, data


# --- what became of them ---------------------------------------------------------------------------------------------


def outcomes_data(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each split, policy, turn and outcome: ``num`` kernels, their ``share`` of those with a verdict; the
    kernels of all seeds together.

    Turns without a verdict (the harness failed) are left out and counted in ``num_missing``.
    """
    rows = []
    for head, seeds in seed_groups(scores[scores["policy"] != CEILING], study):
        for turn, own in pd.concat(seeds).groupby("turn"):
            judged = own["outcome"].value_counts().reindex([outcome.value for outcome in OUTCOMES], fill_value=0)
            known, missing = int(judged.sum()), int(own["outcome"].isna().sum())
            for outcome, num in judged.items():
                cells = {"turn": turn, "outcome": outcome, "num": num, "share": num / known if known else 0.0}
                rows.append(head | cells | {"num_missing": missing})
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


# --- strategies of search -------------------------------------------------------------------------------------------


def search(table: pd.DataFrame, study: Study) -> Drawn:
    """A column of panels for each policy's kernels and seconds. Of several seeds the mean with its interval."""
    spent = {"kernels": "kernels a task", "gpu_seconds": "device seconds a task"}
    rows = {SPEEDUP: "best so far, mean\nspeedup over eager (×)", CORRECT: "tasks solved (%)"}
    together = table.groupby("policy")["seed"].transform(lambda seeds: seeds.isna().any())
    single = table[~together | table["seed"].isna()]
    names = list(dict.fromkeys(single["strategy"].astype(str)))
    colors = sns.color_palette("dark", len(names))  # not those of policies: a strategy is none
    looks = {n: Look(n.replace("_", " "), colors[i], look.MARKERS[i % len(look.MARKERS)]) for i, n in enumerate(names)}
    parts = []
    for row in rows:
        cells = {row: "value", f"{row}_low": "low", f"{row}_high": "high", "strategy": "key"}
        for x in spent:
            own = single.rename(columns=cells).assign(row=row, x=single[x], column=single["policy"] + "\n" + x)
            parts.append(own[["row", "column", "key", "x", "value", "low", "high"]])
    titles = {
        f"{policy}\n{x}": f"{policy_label(str(policy), study)}\nby {spent[x]}"
        for policy in dict.fromkeys(table["policy"])
        for x in spent
    }
    remark = "Bars: bootstrap 95 % interval over tasks" + (" and seeds." if together.any() else ".")
    figure = look.panels(pd.concat(parts), looks, x="", rows=rows, columns=titles, width=3.0, remark=remark)
    for ax in figure.axes:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_ylim(bottom=0)
    look.percent_axis(figure.axes[len(titles) :])
    return figure, table
