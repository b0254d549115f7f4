"""What happened while policies trained: curves by step, runs compared, and hacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.types import Outcome
from kevin.report.figures import look
from kevin.report.figures.look import Look
from kevin.report.figures.scaling import Drawn
from kevin.report.forms import plain
from kevin.report.metrics import Interval, mean_estimate, ratio
from kevin.report.paper import REMEDY_GRAD_NORM, REMEDY_LOSS, TRAINING_MARKS, WARNING_STEPS
from kevin.report.recipes import policy_label
from kevin.report.training import ALL, ANY, KIND_NAMES, PAID, read_records, read_step_turns

METRICS = {
    "score": "mean score",
    "correct": "correct kernels (share)",
    "speedup": "mean speedup over eager (×)",
    "completion_tokens": "response length (tokens)",
    "not_okay_ratio": "Not-Okay ratio",
    "grad_norm": "gradient norm",
    "entropy": "entropy (nats per token)",
    "clip_ratio": "clipped tokens (share)",
}
"""What is drawn, where a run logged it, in this order."""
SMOOTH_FROM = 40
"""Steps from which on a running mean over a tenth of them is drawn over what was logged."""
PAPER = "paper"
REMEDIES = ("both remedies", "gradients not clipped", "loss not of constant length", "neither remedy")
_DASHES = dict(zip((*REMEDIES, ""), ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (7, 3))), strict=True))


def training_data(runs: Sequence[Path]) -> pd.DataFrame:
    """Columns run, step, metric, value, mark; the run is the name of its folder. A step logged twice (after a resume)
    counts as logged last. What the paper says in numbers of these metrics follows as rows of run `PAPER`, a step and a
    ``mark`` without a value. Raises DataError for a file that cannot be read or holds none of the metrics.
    """
    rows = [
        {"run": run.name, "step": record["step"], "metric": m, "value": float(record[m])}
        for run in runs
        for record in read_records(run / "metrics.jsonl")
        for m in METRICS
        if isinstance(record.get(m), int | float)
    ]
    if not rows:
        raise DataError(f"no training metric ({', '.join(METRICS)}) in: {', '.join(map(str, runs)) or 'no run'}")
    logged = {str(row["metric"]) for row in rows}
    marks = [
        {"run": PAPER, "step": m.step, "metric": m.metric, "mark": m.text} for m in TRAINING_MARKS if m.metric in logged
    ]
    data = pd.DataFrame(rows).drop_duplicates(["run", "step", "metric"], keep="last")
    columns = ["run", "step", "metric", "value", "mark"]
    return pd.concat([data, pd.DataFrame(marks)], ignore_index=True).reindex(columns=columns)


def run_looks(runs: Sequence[str], study: Study) -> dict[str, Look]:
    """A run looks as the policy that it made does in other figures."""
    return look.policy_looks({run: policy_label(run, study) for run in runs}, study)


def remedies(run: str, study: Study) -> str:
    """Which of `REMEDIES` a run was trained with, by its configuration; nothing of a run that it does not have."""
    if run not in study.runs:
        return ""
    train = study.for_run(run).train
    return REMEDIES[(train.max_grad_norm > REMEDY_GRAD_NORM) + 2 * (train.loss != REMEDY_LOSS)]


def training(runs: Sequence[Path], study: Study) -> Drawn:
    """A line for each run in its colour; runs that differ in their remedies are dashed by them, and say so."""
    data = training_data(runs)
    marks, shown = data[data["run"] == PAPER], data[data["run"] != PAPER]
    present = [m for m in METRICS if m in set(shown["metric"])]
    looks = run_looks(list(shown["run"].unique()), study)
    kinds = {run: remedies(run, study) for run in looks}
    if len(set(kinds.values())) > 1:
        looks = {
            run: line._replace(label=": ".join(filter(None, (line.label, kinds[run]))), dashes=_DASHES[kinds[run]])
            for run, line in looks.items()
        }
    grid = sns.FacetGrid(
        shown, col="metric", col_order=present, col_wrap=min(4, len(present)), sharey=False, height=2.2, aspect=1.45
    )
    for metric, ax in grid.axes_dict.items():
        for run, line in looks.items():
            own = shown[(shown["run"] == run) & (shown["metric"] == metric)].sort_values("step")
            curve(ax, own["step"], own["value"], line)
        ax.set_title(METRICS[str(metric)])
        ax.set(xlabel="step", ylabel="")
        if shown.loc[shown["metric"] == metric, "value"].eq(0).all():
            ax.set_ylim(0, 0.1)  # around 0 the axis would have negative shares
        _mark(ax, marks[marks["metric"] == metric])
    _limits(grid.axes_dict, study)
    look.whole_steps(grid.figure.axes)
    told = "; ".join(dict.fromkeys(marks["mark"]))
    remark = f"Dotted, where the axis reaches so far, what the paper says of its own trainings: {told}."
    if "not_okay_ratio" in present:
        remark += f" Its Not-Okay ratio rises about {WARNING_STEPS} steps before a collapse."
    if shown.groupby("run")["step"].nunique().max() >= SMOOTH_FROM:
        remark = f"Thick: running mean of a tenth of the steps. {remark}"
    handles = [line.handle() for line in looks.values()]
    return look.finish(grid.figure, handles, remark), data


def curve(ax: Axes, steps: pd.Series, values: pd.Series, line: Look) -> None:
    """As logged; of many steps faintly, with a running mean on top."""
    if len(values) < SMOOTH_FROM:
        ax.plot(steps, values, color=line.color, linestyle=line.dashes, marker=line.marker, markersize=3.5)
        return
    ax.plot(steps, values, color=line.color, alpha=0.3, linewidth=0.8)
    smooth = values.rolling(len(values) // 10, min_periods=1).mean()
    ax.plot(steps, smooth, color=line.color, linestyle=line.dashes, linewidth=1.8)


def _mark(ax: Axes, marks: pd.DataFrame) -> None:
    """Where the paper says that something happened in its own trainings, as far as our steps go."""
    low, high = ax.get_xlim()
    for step in marks["step"]:
        if step <= high:
            ax.axvline(step, color=look.MUTED, linewidth=1, linestyle=(0, (1, 2)))
    ax.set_xlim(low, high)


def _limits(axes: Mapping[Any, Axes], study: Study) -> None:
    """At which Not-Okay ratio a training ends, and to what norm the paper clips gradients: where the axis reaches."""
    for metric, at, text in (
        ("not_okay_ratio", study.train.stop_not_okay, "training ends"),
        ("grad_norm", REMEDY_GRAD_NORM, f"clip at {REMEDY_GRAD_NORM}"),
    ):
        if metric in axes and at is not None and at <= axes[metric].get_ylim()[1]:
            look.level(axes[metric], at, text, (0, (4, 3)), right=True)


# --- runs compared --------------------------------------------------------------------------------------------------

COMPARED = {"speedup": "mean speedup over eager, 0 where wrong (×)", "correct": "correct kernels (share)"}
"""What runs with different rewards can be compared by: scores cannot."""
LAST_SHARE = 0.5
"""Of a run's steps, whose kernels stand for the run."""


RECIPE, OTHER = "The recipe", "Other"
FAMILIES = {
    RECIPE: ("", ""),
    "Return: sum or max, γ": ("paper: sum with γ = 0.4 was taken", "reward.returns reward.gamma"),
    "Weight of correctness": ("paper: 0.3 was taken; 0 and 1.0 dropped", "reward.correctness_weight"),
    "Length penalty": ("paper: tried and dropped", "reward.length_penalty"),
    "KL to the initial policy": ("paper: only slowed learning; dropped", "train.kl_beta"),
    "Stability": ("paper: both delay collapse from step ~40 to ~100", "train.loss train.max_grad_norm"),
    "Clipping of ratios": ("paper: 0.28 (clip-higher) was taken", "train.clip_low train.clip_high"),
    "Learning rate": (
        "paper: constant after a warm-up",
        "train.schedule train.learning_rate train.warmup_share train.adam_epsilon",
    ),
    "Tokens with a gradient": ("not in the paper", "train.high_entropy_share"),
    "Turns in training": ("paper: 1.10× against 0.85× of single-turn training", "train.num_turns"),
    "Advantage": ("not in the paper", "train.advantage train.flat_groups train.first_turn_kl"),
    "Reward": (
        "not in the paper",
        "reward.progress_weight reward.progress_over reward.progress_floor reward.speedup_cap",
    ),
    "What later turns see": ("not in the paper", "rollout.history rollout.profile_feedback"),
    "Method": ("not in the paper", "train.method"),
    OTHER: ("", ""),
}
"""Changes of the same thing, by title: what the paper says of them, empty where it does not know them, and the keys of
the configuration one of which such a run changes."""
SEEDS = frozenset({"train.seed"})


def family(run: str, study: Study) -> str:
    """The first of `FAMILIES` whose keys a run sets; `RECIPE` for one that changes nothing but its seed."""
    changed = changes(run, study).keys() - SEEDS
    if not changed and run in study.runs:
        return RECIPE
    return next((title for title, (_, keys) in FAMILIES.items() if changed & set(keys.split())), OTHER)


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
        title = family(name, study)
        head = {"family": title, "finding": FAMILIES[title][0], "run": name, "changed": _text(changes(name, study))}
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
    columns = ["family", "finding", "run", "changed", "metric", "value", "low", "high", "interval", "num_tasks"]
    frame = pd.DataFrame(rows, columns=columns)
    order = list(FAMILIES).index
    return frame.sort_values("family", key=lambda titles: titles.map(order), kind="stable", ignore_index=True)


def _over_tasks(judged: pd.DataFrame, metric: str, study: Study) -> Interval:
    correct = judged["outcome"] == Outcome.CORRECT.value
    values = judged["speedup"].where(correct, 0.0) if metric == "speedup" else correct.astype(float)
    by_task = values.groupby(judged["task_id"]).agg(["sum", "count"])
    return ratio(mean_estimate(by_task["sum"], study), mean_estimate(by_task["count"], study)).interval


def _over_steps(records: Sequence[Mapping[str, Any]], metric: str, study: Study) -> Interval:
    judged = [r for r in records if "correct" in r]
    # a step's speedup is logged as the mean over correct kernels
    factor = [r.get("speedup", 0.0) if metric == "speedup" else 1.0 for r in judged]
    values = pd.Series([f * r["correct"] for f, r in zip(factor, judged, strict=True)], dtype=float)
    return mean_estimate(values, study).interval


def _text(changed: Mapping[str, Any]) -> str:
    """``gamma 0.8, history view all``: as in the configuration, without sections."""

    def said(value: Any) -> str:
        if isinstance(value, Mapping):
            return ", ".join(f"{k} {v}" for k, v in value.items())
        return f"{value:g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{key.partition('.')[2]} {said(value)}" for key, value in changed.items())


def ablations(runs: Sequence[Path], study: Study) -> Drawn:
    """A dot with its interval for each run, under its family; the recipe's value and interval run through all."""
    data = ablation_data(runs, study)
    lines: list[str] = []
    places: dict[str, int] = {}
    for (title, finding), own in data.groupby(["family", "finding"], sort=False):
        lines.append(f"{title}" + (f" ({finding})" if finding else ""))
        for run, changed in dict(zip(own["run"], own["changed"], strict=True)).items():
            places[str(run)] = len(lines)
            lines.append(f"{run}: {changed}" if changed else str(run))
    heads = set(range(len(lines))) - set(places.values())
    height = 0.9 + 0.22 * len(lines)
    grid = sns.FacetGrid(data, col="metric", col_order=list(COMPARED), sharex=False, height=height, aspect=3.6 / height)
    color = sns.color_palette(look.PALETTE)[0]
    for metric, ax in grid.axes_dict.items():
        own = data[data["metric"] == metric]
        recipe = own[own["family"] == RECIPE]
        if len(recipe) == 1:
            ax.axvspan(recipe["low"].iloc[0], recipe["high"].iloc[0], color=color, alpha=0.1, linewidth=0)
            ax.axvline(recipe["value"].iloc[0], color=color, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        at = [places[str(run)] for run in own["run"]]
        ax.hlines(at, own["low"], own["high"], color=look.MUTED)
        ax.plot(own["value"], at, "o", color=color, markersize=5)
        ax.set_title("")
        ax.set(xlabel=COMPARED[str(metric)], ylabel="", ylim=(len(lines) - 0.4, -0.6))
        ax.set_yticks(range(len(lines)), lines)
        ax.grid(visible=False, axis="y")
        for place, label in enumerate(ax.get_yticklabels()):
            label.set_fontweight("bold" if place in heads else "normal")
    over = " and ".join(sorted(data["interval"].unique(), reverse=True))
    remark = f"Second half of each run's steps; bars: bootstrap 95 % interval over {over}; shaded: the recipe."
    return look.finish(grid.figure, (), remark), data


# --- hacks ----------------------------------------------------------------------------------------------------------

_MOST_KINDS = 5
"""That get a line; the others are in the table."""


def audit(table: pd.DataFrame, study: Study) -> Drawn:
    """A column for each run: shares of kinds above, mean score of a kernel below."""
    data = table[table["step"].notna()]
    runs = list(dict.fromkeys(data["run"]))
    kinds = [k for k in dict.fromkeys(data["kind"]) if k not in (ALL, ANY, PAID)][:_MOST_KINDS]
    shown = [*([] if len(kinds) == 1 else [ANY]), PAID, *kinds]
    colors = sns.color_palette("dark")
    looks = {kind: Look(KIND_NAMES.get(kind, plain(kind)), colors[i], "") for i, kind in enumerate(shown)}
    looks["paid"] = Look("paid by this judge", look.INK, "")
    looks["paid_unguarded"] = Look("paid without guards", look.INK, "", (0, (4, 2)))
    shares = data[data["kind"].isin(shown)].rename(columns={"kind": "key", "share": "value"})
    every = data[data["kind"] == ALL]
    judged = {"paid": every["num_judged"], "paid_unguarded": every["num_judged"] - every["num_unmeasured"]}
    paid = [every.assign(key=name, value=every[name] / of, row="paid") for name, of in judged.items()]
    parts = pd.concat([shares.assign(row="share"), *paid])
    parts = parts.assign(x=parts["step"], column=parts["run"])[["row", "column", "key", "x", "value"]]
    guards = dict(zip(data["run"], data["guards"], strict=True))
    figure = look.panels(
        parts, looks, x="step", width=4.0,
        rows={"share": "kernels (%)", "paid": "mean score of a kernel"},
        columns={run: f"{policy_label(run, study)}: guards {guards[run]}" for run in runs},
        remark="The table has the intervals.",
    )  # fmt: skip
    look.whole_steps(figure.axes)
    highest = float(shares["value"].max())
    look.percent_axis(figure.axes[: len(runs)], min(1.03, max(0.01, 1.1 * highest)))
    for ax in figure.axes[len(runs) :]:
        ax.set_ylim(bottom=0)
    return figure, data
