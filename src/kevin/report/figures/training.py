"""Training curves from the trainer's ``metrics.jsonl``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.report.figures.style import MUTED, alone, grid, legend, run_styles, whole_steps
from kevin.report.paper_marks import TRAINING_MARKS
from kevin.report.scores import first_seed, policy_label
from kevin.report.training_records import read_records

AXIS_LABELS = {
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


PAPER = "paper"


def training_data(paths: Sequence[Path]) -> pd.DataFrame:
    """Columns run, step, metric, value, mark; the run is the name of the file's folder. A step logged twice (after a
    resume) counts as logged last. What the paper says in numbers of these metrics follows as rows of run `PAPER`, a
    step and a ``mark`` without a value. Raises DataError for a file that cannot be read or holds none of the metrics.
    """
    rows = []
    for path in paths:
        for record in read_records(path):
            rows += [
                {"run": path.parent.name, "step": record["step"], "metric": m, "value": float(record[m])}
                for m in AXIS_LABELS
                if isinstance(record.get(m), int | float)
            ]
    if not rows:
        raise DataError(f"no training metric ({', '.join(AXIS_LABELS)}) in: {', '.join(map(str, paths)) or 'no file'}")
    logged = {str(row["metric"]) for row in rows}
    marks = [
        {"run": PAPER, "step": m.step, "metric": m.metric, "mark": m.text} for m in TRAINING_MARKS if m.metric in logged
    ]
    data = pd.DataFrame(rows).drop_duplicates(["run", "step", "metric"], keep="last")
    columns = ["run", "step", "metric", "value", "mark"]
    return pd.concat([data, pd.DataFrame(marks)], ignore_index=True).reindex(columns=columns)


def plot_training(data: pd.DataFrame, study: Study, *, window: int = 5) -> Figure:
    """A panel for each metric: every step faintly, the running mean of ``window`` steps on top."""
    marks = data[data["run"] == PAPER]
    data = data[data["run"] != PAPER]
    present = [m for m in AXIS_LABELS if m in set(data["metric"])]
    columns = min(3, len(present))
    num_rows = -(-len(present) // columns)
    figure, axes = grid(num_rows, columns, title="Training curves", width=3.4, height=2.5)
    runs = list(data["run"].unique())
    styles = run_styles(runs, study)
    flat = [ax for row in axes for ax in row]
    for ax, metric in zip(flat, present, strict=False):
        for run in runs:
            own = data[(data["run"] == run) & (data["metric"] == metric)].sort_values("step")
            style = styles[run]
            ax.plot(own["step"], own["value"], color=style.color, alpha=0.25, linewidth=0.8)
            smooth = own["value"].rolling(window, min_periods=1).mean()
            ax.plot(
                own["step"], smooth, color=style.color, linestyle=style.dashes, marker=alone(style, own), clip_on=False
            )
        if data.loc[data["metric"] == metric, "value"].eq(0).all():
            ax.set_ylim(0, 0.1)  # around 0 the axis would have negative shares
        ax.set_ylabel(AXIS_LABELS[metric])
        ax.set_xlabel("step")
        whole_steps(ax)
        _mark(ax, marks[marks["metric"] == metric])
    for ax in flat[len(present) :]:
        ax.axis("off")
    kinds = {first_seed(r, study): styles[r] for r in runs}
    seeds = Counter(first_seed(r, study) for r in runs)
    handles = [
        Line2D([], [], color=s.color, linestyle=s.dashes, label=policy_label(kind, study, seeds[kind]))
        for kind, s in kinds.items()
    ]
    text = f"Thick: running mean of {window} steps. Above panels, dotted where the axis reaches: the paper's trainings"
    legend(figure, handles, columns=3, title=text, handlelength=3.6)
    return figure


def _mark(ax: Axes, marks: pd.DataFrame) -> None:
    """What the paper says happened at which step of its own trainings; a line where our steps go so far."""
    if len(marks):
        text = "\n".join(f"paper: {mark}" for mark in marks["mark"])
        ax.set_title(text, loc="left", fontsize=7, fontweight="normal", color=MUTED)
    low, high = ax.get_xlim()
    for step in marks["step"]:
        if step <= high:
            ax.axvline(step, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
    ax.set_xlim(low, high)
