"""One task told turn by turn: each policy's best trajectory, and the one that the authors published."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import read_columns
from kevin.core.types import Outcome, Turn
from kevin.report import paper
from kevin.report.figures.look import FAINT, INK, MUTED, Look, finish, labels_of, plain_log, policy_looks
from kevin.report.figures.roofline import memory_times, read_measured
from kevin.report.figures.scaling import Drawn
from kevin.report.forms import records
from kevin.report.paper import OURS
from kevin.report.recipes import OUTCOMES, policy_label
from kevin.report.tables import compile_speedups
from kevin.report.viewer import best_in_files, changed

_TOLD = ["trajectory", "turn", "outcome", "speedup", "summary", "feedback"]
_COLUMNS = ["source", "policy", "label", "task_id", *_TOLD, "compile_speedup", "bound_speedup", "diff_to", "diff"]


def case_study_data(
    files: Mapping[str, Sequence[Path]], baselines: pd.DataFrame, store: Path | None, study: Study
) -> pd.DataFrame:
    """One row a turn of each policy's best trajectory on ``tasks.case_study``, then the authors' trajectory.

    ``compile_speedup``: of torch.compile over eager on that task, where ``baselines`` holds it; ``bound_speedup``: of
    moving every tensor once at the speed of a copy, where verdicts in ``store`` tell. ``diff``: unified, from the last
    kernel before, that of turn ``diff_to``. Raises DataError when no policy answered that task.
    """
    task_id = study.tasks.case_study
    best_of = {policy: best_in_files(own, 1) for policy, own in files.items()}
    told = {policy: found[task_id] for policy, found in best_of.items() if task_id in found}
    if not told:
        raise DataError(f"no rollout file holds the case study's task {task_id}; see tasks.case_study")
    judged = [read_columns(path, "turns", ["task_id", "verdict_key"]) for own in files.values() for path in own]
    keys = [key for own in judged for key in own.loc[own["task_id"] == task_id, "verdict_key"].dropna()]
    lines = {
        "compile_speedup": compile_speedups(baselines).get(task_id),
        "bound_speedup": _bound_speedup(keys, store),
    }
    rows: list[dict[str, Any]] = []
    for policy, (best, *_) in told.items():
        facts = {"source": OURS, "policy": policy, "label": policy_label(policy, study), "task_id": task_id} | lines
        rows += [facts | t.model_dump(include=set(_TOLD)) | _diff(best[:i], t) for i, t in enumerate(best)]
    lines = {"compile_speedup": paper.COMPILE_LINE, "bound_speedup": paper.BOUND_LINE}
    for s in paper.LAYER_NORM:
        rows.append(
            s._asdict() | {"source": paper.BLOG_SOURCE, "policy": "paper", "label": "Kevin, as published"} | lines
        )
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    frame["outcome"] = frame["outcome"].map(lambda o: Outcome(o).value, na_action="ignore")
    return frame


def _diff(past: Sequence[Turn], turn: Turn) -> dict[str, Any]:
    before, text = changed(past, turn)
    return {} if text is None else {"diff_to": before, "diff": text}


def _bound_speedup(keys: Sequence[str], store: Path | None) -> float | None:
    """Eager's median time beside these kernels over the shortest time that the memory needs, see `memory_times`."""
    if store is None:
        return None
    measured = read_measured(store, keys)
    shortest = memory_times(measured.assign(task_id=""), {})
    return float(measured["eager_us"].median() / shortest[""]) if shortest else None


# --- plot -----------------------------------------------------------------------------------------------------------

_WRAP, _MAX_LINES = 25, 5


def layernorm_case_study(
    files: Mapping[str, Sequence[Path]], baselines: pd.DataFrame, store: Path | None, study: Study
) -> Drawn:
    """Speedups by turn, ours and the authors' apart; below a strip of cards for each policy, one card a turn."""
    data = case_study_data(files, baselines, store, study)
    strips = list(data.groupby("policy", sort=False))
    longest = max(4, int(data.groupby("policy")["turn"].count().max()))
    figure = plt.figure(figsize=(1.75 * longest + 0.3, 1.72 * len(strips) + 3.0))
    places = figure.add_gridspec(len(strips) + 1, 2, height_ratios=[2.7, *[1.72] * len(strips)])
    task = data["task_id"].dropna().iloc[0]
    ours = data[data["source"] == OURS]
    _curves(figure.add_subplot(places[0, 0]), ours, policy_looks(labels_of(ours), study), f"This study: {task}")
    reference = figure.add_subplot(places[0, 1])
    published = {"paper": Look("Kevin, as published", MUTED)}
    _curves(reference, data[data["source"] != OURS], published, "Authors' blog: KernelBench 1/40")
    reference.set_xlabel(f"turn\n({paper.LINES_SOURCE})")
    for i, (_, strip) in enumerate(strips):
        ax = figure.add_subplot(places[i + 1, :])
        first = strip.iloc[0]
        theirs = first["source"] != OURS
        where = f"reference: {first['source']}" if theirs else f"trajectory {int(first['trajectory'])}"
        ax.set_title(f"{first['label']}", fontsize=9.5)
        ax.set_title(where, loc="right", fontsize=7.5, fontweight="normal", color=MUTED)
        for x, row in enumerate(records(strip)):
            _card(ax, x, row, published=theirs)
        ax.set_xlim(-0.02, longest)
        ax.set_ylim(0, 1)
        ax.axis("off")
    return finish(figure), data


_LINES = {
    "compile_speedup": ("torch.compile", (0, (5, 2))),
    "bound_speedup": ("memory at a copy's speed", (0, (1, 1.5))),
}


def _curves(ax: Axes, data: pd.DataFrame, looks: Mapping[str, Look], title: str) -> None:
    """Speedups of correct turns; a cross at the bottom for a turn that is not."""
    lines = {text: (data[name].iloc[0], dashes) for name, (text, dashes) in _LINES.items() if data[name].notna().any()}
    levels = [*data["speedup"].dropna(), 1.0, *(value for value, _ in lines.values())]
    low, high = min(levels) / 2.2, max(levels) * 9  # room for the legend
    ax.set_title(title, fontsize=9.5)
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    for text, (value, dashes) in {"eager": (1.0, "-"), **lines}.items():
        label = f"{text} {value:.3g}×"
        ax.axhline(value, color=MUTED, linestyle=dashes, linewidth=1, zorder=1, label=label)
    for i, (policy, style) in enumerate(looks.items()):
        own = data[data["policy"] == policy]
        correct = own[own["speedup"].notna()]
        ax.plot(correct["turn"], correct["speedup"], **style.drawn)
        wrong = own[own["speedup"].isna()]["turn"]
        at = [low * (high / low) ** (0.03 + 0.04 * i)] * len(wrong)
        ax.plot(wrong, at, "x", color=style.color, markersize=6, markeredgewidth=1.6)
    ax.set_xticks(range(1, int(data["turn"].max()) + 1))
    ax.set_xlabel("turn")
    ax.set_ylabel("speedup over eager (×)\n(cross: not correct)")
    plain_log(ax.yaxis)
    ax.legend(fontsize=7, loc="upper left", ncols=2, framealpha=0.8, edgecolor="none")


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
