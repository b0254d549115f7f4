"""What each change of the recipe does, beside what the paper found of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.types import Outcome
from kevin.report import metrics
from kevin.report.figures import style
from kevin.report.metrics import Interval
from kevin.report.training_records import read_records, read_step_turns

COMPARED = {"speedup": "mean speedup over eager,\n0 where wrong (×)", "correct": "correct kernels (share)"}
"""What runs with different rewards can be compared by: scores cannot."""
LAST_SHARE = 0.5
"""Of a run's steps, whose kernels stand for the run."""


class Family(NamedTuple):
    """Changes of the same thing."""

    title: str
    finding: str
    """What the paper says of them; empty where it does not know them."""
    keys: frozenset[str]
    """Keys of the configuration, one of which such a run changes."""


RECIPE = Family("The recipe", "", frozenset())
_FAMILIES = (
    ("Return: sum or max, γ", "paper: sum with γ = 0.4 was taken", "reward.returns reward.gamma"),
    ("Weight of correctness", "paper: 0.3 was taken; 0 and 1.0 dropped", "reward.correctness_weight"),
    ("Length penalty", "paper: tried and dropped", "reward.length_penalty"),
    ("KL to the initial policy", "paper: only slowed learning; dropped", "train.kl_beta"),
    ("Stability", "paper: both delay collapse from step ~40 to ~100", "train.loss train.max_grad_norm"),
    ("Clipping of ratios", "paper: 0.28 (clip-higher) was taken", "train.clip_low train.clip_high"),
    (
        "Learning rate",
        "paper: constant after a warm-up",
        "train.schedule train.learning_rate train.warmup_share train.adam_epsilon",
    ),
    ("Tokens with a gradient", "not in the paper", "train.high_entropy_share"),
    ("Turns in training", "paper: 1.10× against 0.85× of single-turn training", "train.num_turns"),
    ("Advantage", "not in the paper", "train.advantage train.flat_groups train.first_turn_kl"),
    (
        "Reward",
        "not in the paper",
        "reward.progress_weight reward.progress_over reward.progress_floor reward.speedup_cap",
    ),
    ("What later turns see", "not in the paper", "rollout.history rollout.profile_feedback"),
    ("Method", "not in the paper", "train.method"),
)
FAMILIES = tuple(Family(title, finding, frozenset(keys.split())) for title, finding, keys in _FAMILIES)
OTHER = Family("Other", "", frozenset())
SEEDS = frozenset({"train.seed"})


def family(run: str, study: Study) -> Family:
    """The first of `FAMILIES` whose keys a run sets; `RECIPE` for one that changes nothing but its seed."""
    changed = changes(run, study).keys() - SEEDS
    if not changed and run in study.runs:
        return RECIPE
    return next((f for f in FAMILIES if f.keys & changed), OTHER)


def changes(run: str, study: Study) -> dict[str, Any]:
    """Key -> value of what a run sets, the keys with their section."""
    if run not in study.runs:
        return {}
    own = study.runs[run]
    sections: Mapping[str, Mapping[str, Any]] = {"train": own.train, "reward": own.reward, "rollout": own.rollout}
    return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}


def ablation_data(runs: Sequence[Path], study: Study) -> pd.DataFrame:
    """Columns family, finding, run, changed, metric, value, low, high, interval, num_tasks.

    ``value``: mean over the kernels of the second half of the steps, with its bootstrap 95 % interval over tasks
    (``interval``: tasks). Where a run's turns are not there any more, the mean of what its steps logged, with the
    interval over these steps. ``changed``: what the run sets, as in the configuration. Raises DataError without runs.
    """
    rows: list[dict[str, Any]] = []
    for folder in runs:
        name = folder.name
        kind = family(name, study)
        head = {"family": kind.title, "finding": kind.finding, "run": name, "changed": _text(changes(name, study))}
        records = read_records(folder / "metrics.jsonl")
        last = records[-max(1, round(LAST_SHARE * len(records))) :]
        turns = read_step_turns(folder, [record["step"] for record in last], ["task_id", "outcome", "speedup"])
        for metric in COMPARED:
            cells: dict[str, Any]
            if turns is None:
                cells = {"interval": "steps"} | _over_steps(last, metric, study)._asdict()
            else:
                judged = turns[turns["outcome"].notna()]
                cells = {"interval": "tasks", "num_tasks": judged["task_id"].nunique()}
                cells |= _over_tasks(judged, metric, study)._asdict()
            rows.append(head | {"metric": metric} | cells)
    if not rows:
        raise DataError("no training run was given")
    order = {f.title: i for i, f in enumerate((RECIPE, *FAMILIES, OTHER))}
    columns = ["family", "finding", "run", "changed", "metric", "value", "low", "high", "interval", "num_tasks"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.sort_values("family", key=lambda titles: titles.map(order), kind="stable", ignore_index=True)


def _over_tasks(judged: pd.DataFrame, metric: str, study: Study) -> Interval:
    correct = judged["outcome"] == Outcome.CORRECT.value
    values = judged["speedup"].where(correct, 0.0) if metric == "speedup" else correct.astype(float)
    by_task = values.groupby(judged["task_id"]).agg(["sum", "count"])
    return metrics.share_interval(
        by_task["sum"], by_task["count"], num_resamples=study.report.num_bootstrap, seed=study.seed
    )


def _over_steps(records: Sequence[Mapping[str, Any]], metric: str, study: Study) -> Interval:
    judged = [r for r in records if "correct" in r]
    # a step's speedup is logged as the mean over correct kernels
    factor = [r.get("speedup", 0.0) if metric == "speedup" else 1.0 for r in judged]
    values = np.array([f * r["correct"] for f, r in zip(factor, judged, strict=True)], dtype=float)
    return metrics.mean_interval(values, num_resamples=study.report.num_bootstrap, seed=study.seed)


def _text(changed: Mapping[str, Any]) -> str:
    """``gamma 0.8, history view all``: as in the configuration, without sections."""
    parts = []
    for key, value in changed.items():
        inner = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else _number(value)
        parts.append(f"{key.partition('.')[2]} {inner}")
    return ", ".join(parts)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- plot -----------------------------------------------------------------------------------------------------------


def plot_ablations(data: pd.DataFrame) -> Figure:
    """A dot with its interval for each run, under its family; the recipe's value and interval run through all."""
    places: dict[str, float] = {}
    heads: list[tuple[float, str, str]] = []
    y = 0.0
    for (title, finding), own in data.groupby(["family", "finding"], sort=False):
        heads.append((y, str(title), str(finding)))
        for run in own["run"].unique():
            y += 1
            places[str(run)] = y
        y += 1.25
    figure, axes = style.grid(1, len(COMPARED), title="Training runs compared", width=5.2, height=0.9 + 0.24 * y)
    changed = data.drop_duplicates("run").set_index("run")["changed"]
    for ax, (metric, label) in zip(axes[0], COMPARED.items(), strict=True):
        _dots(ax, data[data["metric"] == metric], places)
        ax.set_xlabel(label)
        ax.set_ylim(y - 0.4, -0.6)
        names = [f"{run}: {changed[run]}" if changed[run] else run for run in places]
        ax.set_yticks(list(places.values()), names if ax is axes[0][0] else [""] * len(places), fontsize=8)
        ax.tick_params(axis="y", length=0)
    for at, title, finding in heads:
        axes[0][0].annotate(title, (0, at), xycoords=("axes fraction", "data"), xytext=(-6, 0), ha="right", va="center",
                            textcoords="offset points", fontsize=8.5, fontweight="bold",
                            annotation_clip=False)  # fmt: skip
        axes[0][0].annotate(finding, (0, at), xycoords=("axes fraction", "data"), xytext=(4, 0), va="center",
                            textcoords="offset points", fontsize=7.5, color=style.MUTED, style="italic",
                            annotation_clip=False, zorder=5, in_layout=False,
                            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5})  # fmt: skip
    over = " and ".join(sorted(data["interval"].unique(), reverse=True))
    figure.supxlabel(f"Second half of each run's steps; bars: bootstrap 95 % interval over {over}; shaded: the recipe",
                     x=0.01, ha="left", fontsize=7.5, color=style.MUTED)  # fmt: skip
    return figure


def _dots(ax: Axes, own: pd.DataFrame, places: Mapping[str, float]) -> None:
    look = style.line_styles(["x"])["x"]
    recipe = own[own["family"] == RECIPE.title]
    if len(recipe) == 1:
        ax.axvspan(recipe["low"].iloc[0], recipe["high"].iloc[0], color=look.color, alpha=0.1, linewidth=0)
        ax.axvline(recipe["value"].iloc[0], color=look.color, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    at = [places[str(run)] for run in own["run"]]
    ax.hlines(at, own["low"], own["high"], color=style.MUTED)
    ax.plot(own["value"], at, "o", color=look.color)
