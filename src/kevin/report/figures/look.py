"""How every figure looks: one theme, one colour for a policy, names beside the lines where these are few; its files.

Importing this module chooses the backend of matplotlib that draws without a screen.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter
from matplotlib.transforms import ScaledTranslation

from kevin.core.config import Study
from kevin.core.files import atomic_path, write_csv
from kevin.report.captions import with_note
from kevin.report.recipes import CEILING, first_seed

PALETTE = "colorblind"
INK, MUTED, FAINT = "#1f2430", "#5b6270", "#d9dce2"
COMPILE = "torch.compile"
FEW = 3
"""Lines up to which names stand beside them and every interval is drawn; of more there is a legend, and the last
intervals alone, since all would hide the lines."""
_NAMED = "named"
"""Group of the lines that get their names beside them."""
_HEIGHT = 2.5
"""Inches of a panel."""
_TITLE_SIZE, _NAME_SIZE, _NOTE_SIZE = 11.5, 8.5, 7.5
MARKERS = "os^DvPX"
_DODGE = 3.5
"""Points by which the marks of neighbours are moved apart, so that their intervals do not cover each other."""
_RC: dict[str, Any] = {
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.edgecolor": MUTED,
    "font.family": "DejaVu Sans",
    "grid.color": FAINT,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.color": MUTED,
    "ytick.labelsize": 8.5,
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "pdf.fonttype": 42,
}


class Look(NamedTuple):
    """Of one line, or one kind of point."""

    label: str
    color: Any
    marker: str = "o"
    dashes: Any = "-"

    @property
    def drawn(self) -> dict[str, Any]:
        return {"color": self.color, "marker": self.marker, "linestyle": self.dashes, "label": self.label}

    def handle(self) -> Line2D:
        return Line2D([], [], **self.drawn)


@contextmanager
def theme() -> Iterator[None]:
    """The study's settings; every figure is closed at the end."""
    with plt.rc_context():
        sns.set_theme("paper", "whitegrid", PALETTE, rc=_RC)
        try:
            yield
        finally:
            plt.close("all")


def policy_looks(labels: Mapping[str, str], study: Study) -> dict[str, Look]:
    """Of policies, or of runs that made policies of their names, by key: a colour and a marker by the place among all
    of the study, so that a policy looks the same in every figure. Seeds of one recipe look alike."""
    known = dict.fromkeys(first_seed(name, study) for name in (*study.evaluate, *study.runs, *labels))
    places = {name: i for i, name in enumerate(name for name in known if name not in (CEILING, COMPILE))}
    colors = sns.color_palette(PALETTE)
    looks = {}
    for key, label in labels.items():
        if key == CEILING:
            looks[key] = Look(label, "0.45", "", (0, (1, 1.5)))
        elif key == COMPILE:
            looks[key] = Look(label, "0.1", "", (0, (4, 2)))
        else:
            i = places[first_seed(key, study)]
            turned = i + i // len(colors)
            looks[key] = Look(label, colors[i % len(colors)], MARKERS[turned % len(MARKERS)])
    return looks


def labels_of(data: pd.DataFrame) -> dict[str, str]:
    """The label of each policy of plotted data, in its order."""
    return dict(zip(data["policy"].astype(str), data["label"].astype(str), strict=True))


# --- panels of lines ------------------------------------------------------------------------------------------------


def panels(
    data: pd.DataFrame,
    looks: Mapping[str, Look],
    *,
    x: str,
    rows: Mapping[str, str],
    columns: Mapping[str, str],
    remark: str,
    width: float = 3.7,
    steps: bool = False,
) -> Figure:
    """A panel for each row and column, in it a line with its 95 % interval for each key.

    Args:
        data: columns row, column, key, x, value, and where there are intervals low and high.
        looks: by key; later ones are drawn on top.
        rows, columns: what is shown of ``row`` and ``column``, with the label of the axis and the panel's title.
        steps: a value holds from the point before on.
    """
    grid = sns.FacetGrid(
        data, row="row", col="column", row_order=list(rows), col_order=list(columns), sharey="row", sharex="col",
        height=_HEIGHT, aspect=width / _HEIGHT,
    )  # fmt: skip
    few = len(looks) <= FEW
    for (row, column), ax in grid.axes_dict.items():
        own = data[(data["row"] == row) & (data["column"] == column)]
        for place, (key, look) in enumerate(looks.items()):
            line = own[own["key"] == key].sort_values("x")
            if line.empty:
                continue
            style = look.drawn | ({"marker": "o"} if len(line) == 1 and not look.marker else {})
            style["gid"] = _NAMED if few and column == list(columns)[-1] else None
            ax.plot(line["x"], line["value"], drawstyle="steps-pre" if steps else "default", **style)
            if "low" in line and line["low"].notna().any():
                shown = line[np.log2(line["x"]) % 1 == 0] if steps else line if few else line.iloc[-1:]
                bars = ax.vlines(shown["x"], shown["low"], shown["high"], color=look.color, linewidth=1.1, alpha=0.65)
                if few or steps:  # moved last, so that limits are those of the data
                    aside = _DODGE * (place - (len(looks) - 1) / 2) / 72
                    moved = ax.transData + ScaledTranslation(aside, 0, ax.figure.dpi_scale_trans)
                    for artist in (bars,) if steps else (bars, ax.get_lines()[-1]):
                        artist.set_transform(moved)
        ax.set_title(columns[column] if row == next(iter(rows)) else "")
        ax.set_xlabel(x if row == list(rows)[-1] else "")
        ax.set_ylabel(rows[row] if column == next(iter(columns)) else "")
    if not few and not steps:
        remark = remark.replace("Bars:", "Bars, at the last point:")
    return finish(grid.figure, [] if few else [look.handle() for look in looks.values()], remark)


def _name_lines(figure: Figure) -> None:
    """Names right of where the lines end that are to have them, apart from each other. Last, when the limits stand."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        named = [line for line in ax.get_lines() if line.get_gid() == _NAMED]
        ends = [line.get_transform().transform(np.asarray(line.get_xydata())[-1]) for line in named]
        least = 1.25 * _NAME_SIZE / 72 * figure.dpi / ax.bbox.height
        heights = apart([ax.transAxes.inverted().transform(end)[1] for end in ends], least)
        for line, y in zip(named, heights, strict=True):
            ax.annotate(str(line.get_label()), (1.02, y), xycoords="axes fraction", color=line.get_color(),
                        fontsize=_NAME_SIZE, va="center", annotation_clip=False)  # fmt: skip


def apart(heights: Sequence[float], least: float) -> list[float]:
    """Heights of words that shall stand at these, in their order, moved as little as keeps them ``least`` apart."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    groups: list[list[int]] = []
    centers: list[float] = []
    for i in order:
        groups.append([i])
        centers.append(heights[i])
        while len(groups) > 1 and centers[-1] - centers[-2] < least * (len(groups[-1]) + len(groups[-2])) / 2:
            groups[-2:] = [[*groups[-2], *groups[-1]]]
            centers[-2:] = [sum(heights[k] for k in groups[-1]) / len(groups[-1])]
    found = [0.0] * len(heights)
    for group, center in zip(groups, centers, strict=True):
        for place, i in enumerate(group):
            found[i] = center + least * (place - (len(group) - 1) / 2)
    return found


# --- axes -----------------------------------------------------------------------------------------------------------


def percent_axis(axes: Iterable[Axes], top: float = 1.03) -> None:
    for ax in axes:
        ax.set_ylim(0, top)
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=""))


def whole_steps(axes: Iterable[Axes]) -> None:
    """Ticks of an axis that counts."""
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def doubling_axis(axes: Iterable[Axes], values: Iterable[float]) -> None:
    """A logarithmic axis with a tick at each power of two among the values."""
    ticks = sorted({value for value in values if math.log2(value).is_integer()})
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


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


def level(ax: Axes, value: float, text: str, dashes: Any = "-", *, right: bool = False) -> None:
    """A horizontal line, and above one of its ends what it is."""
    ax.axhline(value, color=MUTED, linewidth=1, linestyle=dashes, zorder=1)
    ax.annotate(text, (0.99 if right else 0.01, value), xycoords=("axes fraction", "data"), xytext=(0, 2), fontsize=7,
                ha="right" if right else "left", textcoords="offset points", color=MUTED)  # fmt: skip


# --- title, legend, files -------------------------------------------------------------------------------------------


def finish(figure: Figure, handles: Sequence[Any] = (), remark: str = "") -> Figure:
    """A legend right of the panels, for which the figure grows, and below them what must be known to read them."""
    figure.set_layout_engine("constrained")
    if handles:
        legend = figure.legend(handles=handles, loc="outside right upper", fontsize=8.5, frameon=False)
        figure.set_figwidth(figure.get_figwidth() + legend.get_window_extent().width / figure.dpi)
    figure.supxlabel(remark)
    return figure


def entitle(figure: Figure, question: str, note: str | None = None) -> None:
    """The question that a finished figure answers above it, all small print below it; it grows for both."""
    points = figure.get_figwidth() * 72
    title = textwrap.wrap(question, max(20, int(points / (0.66 * _TITLE_SIZE))))
    said = " ".join(filter(None, [figure.get_supxlabel(), note]))
    small = textwrap.wrap(said, int(points / (0.55 * _NOTE_SIZE)))
    figure.set_figheight(figure.get_figheight() + 0.15 + 0.2 * len(title) + 0.15 * len(small))
    figure.suptitle("\n".join(title), x=0.01, ha="left", fontsize=_TITLE_SIZE, fontweight="bold")
    figure.supxlabel("\n".join(small), x=0.01, ha="left", fontsize=_NOTE_SIZE, color=MUTED)


def save(
    figure: Figure, data: pd.DataFrame, out_dir: Path, name: str, question: str, note: str | None = None
) -> list[Path]:
    """Write ``<name>.png``, ``.pdf`` and the plotted data as ``.csv``; the same figure gives the same bytes.

    The question that the figure answers stands above it, a ``note`` below it and in a column of the data.
    """
    entitle(figure, question, note)
    _name_lines(figure)
    paths = [out_dir / f"{name}.png", out_dir / f"{name}.pdf", out_dir / f"{name}.csv"]
    for path in paths[:2]:
        dates_off = {"Software": None} if path.suffix == ".png" else {"CreationDate": None, "ModDate": None}
        with atomic_path(path) as tmp:
            figure.savefig(tmp, metadata=dates_off)
    write_csv(paths[2], with_note(data, note))
    return paths
