"""Figures of training runs, from the ``metrics.jsonl`` of their folders: curves, the turns apart, and ablations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kevin.core.config import Study
from kevin.core.errors import DataError, UsageError
from kevin.report import metrics
from kevin.report.figures import style
from kevin.report.figures import training as curves
from kevin.report.notes import read_note
from kevin.report.scores import policy_label
from kevin.report.training_records import read_records

TRAINING_FIGURES = ("training", "training_turns", "ablations")

_BY_TURN = {"score": "mean score", "correct": "correct kernels (share)"}
_COMPARED = {"speedup": "mean speedup, 0 where wrong", "correct": "correct kernels (share)"}
"""What runs with different rewards can be compared by: scores cannot."""
_LAST_SHARE = 0.5
"""Of a run's steps, whose mean stands for the run in the ablations."""


def make_training_figure(
    name: str, out_dir: Path, runs: Sequence[Path], *, study: Study, summaries: Sequence[Path] = ()
) -> list[Path]:
    """Write ``<name>.png``, ``.pdf`` and ``.csv``; returns their paths.

    Args:
        name: one of `TRAINING_FIGURES`.
        runs: folders of training runs; a folder's name is the run's.
        summaries: of these runs and of what they start from, see `kevin.report.notes`.
    """
    if name not in TRAINING_FIGURES:
        raise UsageError(f"no training figure {name!r}; there are {', '.join(TRAINING_FIGURES)}")
    files = [run / "metrics.jsonl" for run in runs]
    with style.look():
        if name == "training":
            data = curves.training_data(files)
            figure = curves.plot_training(data, study)
        elif name == "training_turns":
            data = by_turn_data(files)
            figure = plot_by_turn(data, study)
        else:
            data = ablation_data(files, study)
            figure = plot_ablations(data)
        return style.save(figure, data, out_dir, name, note=read_note(summaries, study))


def by_turn_data(files: Sequence[Path]) -> pd.DataFrame:
    """Columns run, metric (score, correct), turn, step, value."""
    rows = [
        {"run": path.parent.name, "metric": metric, "turn": int(key.rpartition("_")[2]), "step": record["step"],
         "value": value}
        for path in files
        for record in read_records(path)
        for key, value in record.items()
        for metric in _BY_TURN
        if key.startswith(f"{metric}_turn_")
    ]  # fmt: skip
    if not rows:
        raise DataError(f"no metric of single turns in: {', '.join(map(str, files)) or 'no file'}")
    return pd.DataFrame(rows)


def plot_by_turn(data: pd.DataFrame, study: Study, *, window: int = 5) -> Figure:
    """A row for each run, a column for each metric, a line for each turn: running means over ``window`` steps."""
    runs, turns = list(data["run"].unique()), sorted(data["turn"].unique())
    figure, axes = style.grid(len(runs), len(_BY_TURN), title="Training by turn", width=4.2, height=2.3)
    styles = style.line_styles([f"turn {t}" for t in turns])
    for row, run in zip(axes, runs, strict=True):
        row[0].set_title(policy_label(run, study))
        for ax, (metric, label) in zip(row, _BY_TURN.items(), strict=True):
            for turn in turns:
                own = data[(data["run"] == run) & (data["metric"] == metric) & (data["turn"] == turn)]
                own = own.sort_values("step")
                look = styles[f"turn {turn}"]
                smooth = own["value"].rolling(window, min_periods=1).mean()
                marker = style.alone(look, own)
                ax.plot(own["step"], smooth, color=look.color, linestyle=look.dashes, marker=marker)
            ax.set_xlabel("step")
            style.whole_steps(ax)
            ax.set_ylabel(label)
    handles = [Line2D([], [], color=s.color, linestyle=s.dashes, label=name) for name, s in styles.items()]
    style.legend(figure, handles, columns=4, title=f"Running means of {window} steps", handlelength=3.6)
    return figure


def ablation_data(files: Sequence[Path], study: Study) -> pd.DataFrame:
    """Columns run, changed, metric, value, low, high: means over the second half of the steps, with the bootstrap
    95 % interval over these steps. ``changed``: what the run sets, as in the configuration.
    """
    rows = []
    for path in files:
        records = read_records(path)
        last = records[-max(1, round(_LAST_SHARE * len(records))) :]
        name = path.parent.name
        run = study.runs.get(name)
        changed = {**run.train, **run.reward} if run is not None else {}
        judged = [r for r in last if "correct" in r]
        # a step's speedup is logged as the mean over correct kernels
        compared = {
            "speedup": [r.get("speedup", 0.0) * r["correct"] for r in judged],
            "correct": [r["correct"] for r in judged],
        }
        for metric in _COMPARED:
            values = np.array(compared[metric], dtype=float)
            interval = metrics.mean_interval(values, num_resamples=study.report.num_bootstrap, seed=study.seed)
            text = ", ".join(f"{k} {v}" for k, v in changed.items())
            rows.append({"run": name, "changed": text, "metric": metric} | interval._asdict())
    if not rows:
        raise DataError("no training run was given")
    return pd.DataFrame(rows)


def plot_ablations(data: pd.DataFrame) -> Figure:
    """A dot with its interval for each run, a panel for each metric."""
    runs = list(data["run"].unique())
    figure, axes = style.grid(
        1, len(_COMPARED), title="Training runs compared", width=4.2, height=0.8 + 0.32 * len(runs)
    )
    changed = data.drop_duplicates("run")["changed"]
    names = [f"{r}\n{c}" if c else r for r, c in zip(runs, changed, strict=True)]
    for ax, (metric, label) in zip(axes[0], _COMPARED.items(), strict=True):
        own = data[data["metric"] == metric].set_index("run").loc[runs]
        places = range(len(runs))
        ax.hlines(places, own["low"], own["high"], color=style.MUTED)
        ax.plot(own["value"], places, "o", color=style.line_styles(["x"])["x"].color)
        ax.set_yticks(list(places), names if ax is axes[0][0] else [""] * len(runs))
        ax.set_xlabel(label)
        ax.set_ylim(len(runs) - 0.5, -0.5)
    return figure
