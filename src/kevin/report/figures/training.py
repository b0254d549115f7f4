"""Training curves from the trainer's ``metrics.jsonl``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.report.figures.style import alone, grid, legend, run_styles, whole_steps
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


def training_data(paths: Sequence[Path]) -> pd.DataFrame:
    """Columns run, step, metric, value; the run is the name of the file's folder. A step logged twice (after a resume)
    counts as logged last. Raises DataError for a file that cannot be read or holds none of the metrics."""
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
    return pd.DataFrame(rows).drop_duplicates(["run", "step", "metric"], keep="last", ignore_index=True)


def plot_training(data: pd.DataFrame, study: Study, *, window: int = 5) -> Figure:
    """A panel for each metric: every step faintly, the running mean of ``window`` steps on top."""
    present = [m for m in AXIS_LABELS if m in set(data["metric"])]
    columns = min(3, len(present))
    num_rows = -(-len(present) // columns)
    figure, axes = grid(num_rows, columns, title="Training curves", width=3.4, height=2.3)
    runs = list(data["run"].unique())
    styles = run_styles(runs, study)
    flat = [ax for row in axes for ax in row]
    for ax, metric in zip(flat, present, strict=False):
        for run in runs:
            own = data[(data["run"] == run) & (data["metric"] == metric)].sort_values("step")
            style = styles[run]
            ax.plot(own["step"], own["value"], color=style.color, alpha=0.25, linewidth=0.8)
            smooth = own["value"].rolling(window, min_periods=1).mean()
            ax.plot(own["step"], smooth, color=style.color, linestyle=style.dashes, marker=alone(style, own))
        ax.set_ylabel(AXIS_LABELS[metric])
        ax.set_xlabel("step")
        whole_steps(ax)
    for ax in flat[len(present) :]:
        ax.axis("off")
    kinds = {first_seed(r, study): styles[r] for r in runs}
    seeds = Counter(first_seed(r, study) for r in runs)
    handles = [
        Line2D([], [], color=s.color, linestyle=s.dashes, label=policy_label(kind, study, seeds[kind]))
        for kind, s in kinds.items()
    ]
    legend(figure, handles, columns=3, title=f"Thick: running mean of {window} steps", handlelength=3.6)
    return figure
