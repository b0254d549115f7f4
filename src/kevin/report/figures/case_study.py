"""One task told turn by turn: each policy's best trajectory, and the one that the authors published."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.types import Outcome, Turn
from kevin.report import paper
from kevin.report.figures.style import FAINT, INK, MUTED, head
from kevin.report.palette import OUTCOMES
from kevin.report.records import records
from kevin.report.scores import policy_label
from kevin.report.trajectories import best_trajectories

OURS = "this study"
_COLUMNS = ["source", "policy", "label", "task_id", "trajectory", "turn", "outcome", "speedup", "summary", "feedback"]


def case_study_data(turns_by_policy: Mapping[str, Sequence[Turn]], study: Study) -> pd.DataFrame:
    """One row a turn of each policy's best trajectory on ``tasks.case_study``, then the authors' trajectory.

    Raises DataError when no policy answered that task.
    """
    task_id = study.tasks.case_study
    rows = []
    for policy, turns in turns_by_policy.items():
        for best in best_trajectories(turns, task_id, 1):
            facts = {"source": OURS, "policy": policy, "label": policy_label(policy, study), "task_id": task_id}
            rows += [facts | t.model_dump(include=set(_COLUMNS) - facts.keys()) for t in best]
    if not rows:
        raise DataError(f"no rollout file holds the case study's task {task_id}; see tasks.case_study")
    for t in paper.LAYER_NORM:
        rows.append(t._asdict() | {"source": paper.BLOG_SOURCE, "policy": "paper", "label": "Kevin, as published"})
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    frame["outcome"] = frame["outcome"].map(lambda o: Outcome(o).value, na_action="ignore")
    return frame


# --- plot -----------------------------------------------------------------------------------------------------------

_WRAP, _MAX_LINES = 25, 5


def plot_case_study(data: pd.DataFrame) -> Figure:
    """A strip of cards for each policy, one card a turn."""
    strips = list(data.groupby("policy", sort=False))
    longest = int(data.groupby("policy")["turn"].count().max())
    figure, axes = plt.subplots(
        len(strips), 1, figsize=(1.75 * longest + 0.3, 1.72 * len(strips) + 0.7), squeeze=False, layout="constrained"
    )
    task = data["task_id"].dropna().iloc[0]
    head(figure, f"Case study {task}: best trajectory, turn by turn")
    for ax, (_, strip) in zip(axes[:, 0], strips, strict=True):
        first = strip.iloc[0]
        published = first["source"] != OURS
        where = f"reference: {first['source']}" if published else f"trajectory {int(first['trajectory'])}"
        ax.set_title(f"{first['label']}", fontsize=9.5)
        ax.set_title(where, loc="right", fontsize=7.5, fontweight="normal", color=MUTED)
        for i, row in enumerate(records(strip)):
            _card(ax, i, row, published=published)
        ax.set_xlim(-0.02, longest)
        ax.set_ylim(0, 1)
        ax.axis("off")
    return figure


def _card(ax: Axes, x: int, row: dict[str, object], *, published: bool) -> None:
    known = isinstance(row["outcome"], str)
    style = OUTCOMES[Outcome(str(row["outcome"]))] if known else None
    color = style.color if style else FAINT
    box = FancyBboxPatch((x + 0.02, 0.02), 0.93, 0.94, boxstyle="round,pad=0,rounding_size=0.04", linewidth=1,
                         facecolor="#f3f4f7" if published else "white", edgecolor=FAINT)  # fmt: skip
    ax.add_patch(box)
    ax.add_patch(Rectangle((x + 0.05, 0.89), 0.87, 0.04, facecolor=color, hatch=style.hatch if style else "",
                           edgecolor="white", linewidth=0))  # fmt: skip
    correct = row["outcome"] == Outcome.CORRECT
    headline = f"{row['speedup']:.2f}×" if correct else (style.label if style else "no verdict")
    ax.text(x + 0.06, 0.83, f"turn {row['turn']}", fontsize=7.5, color=MUTED, va="top")
    icon = style.icon if style else "–"
    ax.text(x + 0.91, 0.84, icon, fontsize=10, color=INK, va="top", ha="right", fontweight="bold")
    ax.text(x + 0.06, 0.70, headline, fontsize=14 if correct else 10, fontweight="bold", va="top", color=INK)
    ax.text(x + 0.06, 0.47, _story(row, correct=correct), fontsize=7, va="top", color=INK, linespacing=1.25)


def _story(row: dict[str, object], *, correct: bool) -> str:
    """The author's summary; without one, what the judge said."""
    text = str(row["summary"] or "").strip()
    if not text and not correct:
        text = str(row["feedback"] or "").strip().split("\n", maxsplit=1)[0]
    text = "".join(c if c.isprintable() else " " for c in text)
    lines = textwrap.wrap(text or "(no summary)", _WRAP, break_long_words=True)
    if len(lines) > _MAX_LINES:
        lines = [*lines[: _MAX_LINES - 1], lines[_MAX_LINES - 1][: _WRAP - 2] + " …"]
    return "\n".join(lines)
