"""Figures of training runs, from the ``metrics.jsonl`` of their folders: curves, turns apart, stability, ablations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kevin.core.config import Study
from kevin.core.errors import DataError, UsageError
from kevin.report.figures import ablations, stability, style
from kevin.report.figures import training as curves
from kevin.report.notes import read_note
from kevin.report.scores import policy_label
from kevin.report.training_records import read_records

TRAINING_FIGURES = ("training", "training_turns", "stability", "ablations")

_BY_TURN = {"score": "mean score", "correct": "correct kernels (share)"}


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
        elif name == "stability":
            data = stability.stability_data(files, study)
            figure = stability.plot_stability(data, study)
        else:
            data = ablations.ablation_data(runs, study)
            figure = ablations.plot_ablations(data)
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
