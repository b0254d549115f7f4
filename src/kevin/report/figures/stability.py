"""Does training stay sane: the Not-Okay ratio by step, with and without the paper's two remedies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.report.figures.style import MUTED, alone, grid, legend, line_styles, plain_log, whole_steps
from kevin.report.figures.training import training_data
from kevin.report.paper_marks import REMEDY_GRAD_NORM, REMEDY_LOSS, TRAINING_MARKS, WARNING_STEPS
from kevin.report.scores import policy_label

REMEDIES = ("both remedies", "gradients not clipped", "loss not of constant length", "neither remedy")
UNKNOWN = "not in the configuration"
_PANELS = {
    "not_okay_ratio": "Not-Okay ratio",
    "correct": "correct kernels (share)",
    "grad_norm": "gradient norm, before clipping",
}
_PLATE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5}
"""Behind words that curves may cross."""


def remedies(run: str, study: Study) -> str:
    """Which of `REMEDIES` a run was trained with, by its configuration; `UNKNOWN` for a run that it does not have."""
    if run not in study.runs:
        return UNKNOWN
    train = study.for_run(run).train
    return REMEDIES[(train.max_grad_norm > REMEDY_GRAD_NORM) + 2 * (train.loss != REMEDY_LOSS)]


def stability_data(paths: Sequence[Path], study: Study) -> pd.DataFrame:
    """Columns run, remedies, step, metric, value: as logged, for Not-Okay ratio, correct share, gradient norm.

    Raises DataError where no run logged the Not-Okay ratio.
    """
    data = training_data(paths)
    data = data[data["metric"].isin(_PANELS) & data["mark"].isna()]
    if "not_okay_ratio" not in set(data["metric"]):
        raise DataError(f"no Not-Okay ratio in: {', '.join(map(str, paths))}")
    return data.assign(remedies=[remedies(str(run), study) for run in data["run"]])[
        ["run", "remedies", "step", "metric", "value"]
    ].reset_index(drop=True)


def plot_stability(data: pd.DataFrame, study: Study) -> Figure:
    """A line for each run in the look of its remedies; the limit at which this study ends a training is dashed."""
    figure, axes = grid(1, len(_PANELS), title="Stability of training and the paper's two remedies", width=3.6,
                        height=2.9)  # fmt: skip
    kinds = [kind for kind in (*REMEDIES, UNKNOWN) if kind in set(data["remedies"])]
    styles = line_styles((*REMEDIES, UNKNOWN))
    for ax, (metric, label) in zip(axes[0], _PANELS.items(), strict=True):
        shown = data[data["metric"] == metric]
        for run, own in shown.sort_values("step").groupby("run", sort=False):
            style = styles[str(own["remedies"].iloc[0])]
            ax.plot(own["step"], own["value"], color=style.color, linestyle=style.dashes, linewidth=1.5,
                    marker=alone(style, own), label=str(run), clip_on=False, zorder=2.6)  # fmt: skip
        ax.set_xlabel("step")
        ax.set_ylabel(label)
        whole_steps(ax)
    _limits(axes[0], data, study)
    absent = [kind for kind in REMEDIES if kind not in kinds]
    handles = [
        Line2D([], [], color=styles[k].color, linestyle=styles[k].dashes, label=_named(k, data, study)) for k in kinds
    ]
    text = f"The paper: {_collapses()}; the ratio rises about {WARNING_STEPS} steps before."
    if absent:
        text += f" Not among these runs: {', '.join(absent)}."
    legend(figure, handles, columns=2, title=text, handlelength=3.6)
    return figure


def _limits(axes: Sequence[Axes], data: pd.DataFrame, study: Study) -> None:
    okay, correct, norm = axes
    norms = data.loc[data["metric"] == "grad_norm", "value"]
    okay.set_ylim(0, max(0.1, min(1.0, okay.get_ylim()[1])))
    correct.set_ylim(0, 1)
    if study.train.stop_not_okay is not None:
        okay.axhline(study.train.stop_not_okay, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
        okay.set_ylim(0, max(okay.get_ylim()[1], 1.15 * study.train.stop_not_okay))
        okay.annotate("training ends", (0.99, study.train.stop_not_okay), xycoords=("axes fraction", "data"),
                      xytext=(0, 2), textcoords="offset points", ha="right", fontsize=7, color=MUTED,
                      bbox=_PLATE)  # fmt: skip
    if len(norms) and norms.gt(0).all():
        norm.set_yscale("log")
        norm.set_ylim(min(norms.min(), REMEDY_GRAD_NORM) / 1.3, max(norms.max(), REMEDY_GRAD_NORM) * 1.5)
        plain_log(norm.yaxis)
    norm.axhline(REMEDY_GRAD_NORM, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
    norm.annotate(f"clip at {REMEDY_GRAD_NORM}", (0.99, REMEDY_GRAD_NORM), xycoords=("axes fraction", "data"),
                  xytext=(0, 2), textcoords="offset points", ha="right", fontsize=7, color=MUTED,
                      bbox=_PLATE)  # fmt: skip


def _named(kind: str, data: pd.DataFrame, study: Study) -> str:
    runs = [policy_label(str(run), study) for run in data.loc[data["remedies"] == kind, "run"].unique()]
    return f"{kind}: {', '.join(runs[:3])}{f' and {len(runs) - 3} more' if len(runs) > 3 else ''}"


def _collapses() -> str:
    marks = [m for m in TRAINING_MARKS if m.metric == "not_okay_ratio"]
    return ", ".join(m.text for m in marks)
