"""One look for all figures: colour-blind-safe, told apart in grey by markers, line styles and hatches."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter
from matplotlib.typing import LineStyleType

from kevin.core.config import Study
from kevin.core.files import atomic_path, write_csv
from kevin.report.notes import with_note
from kevin.report.scores import CEILING, first_seed

_TITLE_SIZE, _NOTE_SIZE, _LINE_SPACING = 11.5, 7.5, 1.25
INK, MUTED, FAINT = "#1f2430", "#5b6270", "#d9dce2"

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "text.parse_math": False,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "hatch.linewidth": 0.7,
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "pdf.fonttype": 42,
    "svg.hashsalt": "kevin",
}


class LineStyle(NamedTuple):
    color: str
    marker: str
    dashes: LineStyleType


# Okabe-Ito, ordered so that neighbours also differ in lightness.
_LINES = (
    LineStyle("#0072B2", "o", "-"),
    LineStyle("#D55E00", "s", (0, (5, 1.5))),
    LineStyle("#009E73", "^", (0, (1.2, 1.2))),
    LineStyle("#CC79A7", "D", (0, (6, 1.5, 1.2, 1.5))),
    LineStyle("#E69F00", "v", (0, (3, 1, 1, 1, 1, 1))),
    LineStyle("#56B4E9", "P", (0, (8, 2))),
    LineStyle("#000000", "X", (0, (2, 2))),
)
_CEILING = LineStyle("#4d4d4d", "", (0, (1, 2)))


def line_styles(policies: Sequence[str]) -> dict[str, LineStyle]:
    """A style for each policy, in order; the ceiling has its own. Colours repeat, with other dashes and markers."""
    real = [p for p in policies if p != CEILING]
    num = len(_LINES)
    styles = {}
    for i, p in enumerate(real):
        other = _LINES[(i + i // num) % num]
        styles[p] = LineStyle(_LINES[i % num].color, other.marker, other.dashes)
    return styles | ({CEILING: _CEILING} if CEILING in policies else {})


def alone(style: LineStyle, points: pd.DataFrame) -> str:
    """Marker of a curve that is a single point, which no line would show."""
    return style.marker if len(points) == 1 else ""


def run_styles(runs: Sequence[str], study: Study) -> dict[str, LineStyle]:
    """Styles of training runs: a run looks as the policy of its name does in other figures, seeds look alike."""
    firsts = {name: first_seed(name, study) for name in (*study.evaluate, *runs)}
    styles = line_styles(list(dict.fromkeys(firsts.values())))
    return {run: styles[firsts[run]] for run in runs}


@contextmanager
def look() -> Iterator[None]:
    """The study's matplotlib settings, and every figure closed at the end."""
    with plt.rc_context(_RC):
        try:
            yield
        finally:
            plt.close("all")


def grid(
    num_rows: int, num_columns: int, *, title: str, width: float, height: float
) -> tuple[Figure, list[list[Axes]]]:
    """Axes [row][column] of the given size each, in inches, under one title."""
    size = (width * num_columns + 0.4, height * num_rows + 0.9)
    figure, axes = plt.subplots(num_rows, num_columns, figsize=size, squeeze=False, layout="constrained")
    head(figure, title)
    return figure, [list(row) for row in axes]


def save(figure: Figure, data: pd.DataFrame, out_dir: Path, name: str, *, note: str | None = None) -> list[Path]:
    """Write ``<name>.png``, ``.pdf`` and the plotted data as ``.csv``; the same figure gives the same bytes.

    A ``note`` stands under its title and in a column of the data.
    """
    if note is not None:
        head(figure, " ".join(figure.get_suptitle().split()), note)
    paths = [out_dir / f"{name}.png", out_dir / f"{name}.pdf", out_dir / f"{name}.csv"]
    for path in paths[:2]:
        dates_off = {"Software": None} if path.suffix == ".png" else {"CreationDate": None, "ModDate": None}
        with atomic_path(path) as tmp:
            figure.savefig(tmp, metadata=dates_off)
    write_csv(paths[2], with_note(data, note))
    return paths


def head(figure: Figure, title: str, note: str | None = None) -> None:
    """Title of a figure, and small text under it; the figure grows for what is more than one line of title."""
    points = figure.get_figwidth() * 72
    titles = textwrap.wrap(title, int(points / (0.66 * _TITLE_SIZE)))
    notes = textwrap.wrap(note or "", int(points / (0.55 * _NOTE_SIZE)))
    # the layout leaves room for the title, so its empty lines make room for the note
    text = "\n".join([*titles, *[""] * math.ceil(len(notes) * _NOTE_SIZE / _TITLE_SIZE)])
    line = _LINE_SPACING * _TITLE_SIZE / 72
    figure.set_figheight(figure.get_figheight() + (text.count("\n") - figure.get_suptitle().count("\n")) * line)
    shown = figure.suptitle(text, x=0.01, ha="left", fontsize=_TITLE_SIZE, fontweight="bold")
    if notes:
        figure.draw_without_rendering()
        top = shown.get_window_extent().y1 - len(titles) * line * figure.dpi
        figure.text(0.01, top / figure.bbox.height, "\n".join(notes), fontsize=_NOTE_SIZE, color=MUTED, va="top")


def legend(figure: Figure, handles: Sequence[Artist], *, columns: int, title: str | None = None, **look: Any) -> None:
    """Legend below the axes, in as many of the columns as fit into the figure, under a title in as many lines."""
    title = textwrap.fill(title, int(figure.get_figwidth() * 72 / (0.55 * _NOTE_SIZE))) if title else None
    for number in range(min(columns, len(handles)), 0, -1):
        made = figure.legend(handles=handles, loc="outside lower left", ncols=number, fontsize=8.5,
                             title=title, title_fontsize=_NOTE_SIZE, alignment="left", **look)  # fmt: skip
        if number == 1 or made.get_window_extent().width <= figure.bbox.width:
            return
        made.remove()


def whole_steps(ax: Axes) -> None:
    """Ticks of an axis that counts."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def plain_log(axis: Axis) -> None:
    """Ticks of a logarithmic axis, within its limits, as plain numbers: at the powers of ten where there are enough of
    them, else at 1, 2 and 5 times these, else at 3 and 7 times too."""
    low, high = sorted(axis.get_view_interval())
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 2, 5), (1, 2, 3, 5, 7)):
        ticks = [m * 10.0**e for e in powers for m in steps if low <= m * 10.0**e <= high]
        if len(ticks) >= 3:
            break
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 1e5 else f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())
