"""What a table on the page is made of: short texts, sortable by the numbers behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple


class Cell(NamedTuple):
    text: str
    sort: float | str = ""
    """What the column is sorted by: a number, or the text in lower case."""
    note: str = ""
    """Small print under the text: an interval."""
    link: str | None = None

    @property
    def is_number(self) -> bool:
        return isinstance(self.sort, float)

    @property
    def in_line(self) -> str:
        """The text with the small print in parentheses."""
        return f"{self.text} ({self.note})" if self.note else self.text


class Row(NamedTuple):
    cells: list[Cell]
    tags: dict[str, str]
    """Values that the page's filters choose by."""


class Body(NamedTuple):
    """Rows that are sorted among themselves, under a heading of their own where they are not this study's."""

    heading: str | None
    rows: list[Row]
    tags: Mapping[str, str] = MappingProxyType({})
    """Of the heading, as those of a row."""


class Table(NamedTuple):
    name: str
    title: str
    caption: str
    columns: list[str]
    bodies: list[Body]
    groups: Sequence[tuple[str, int]] = ()
    """Upper header: label and number of columns."""
    filters: Mapping[str, list[str]] = MappingProxyType({})
    """Tags of rows that the page lets people choose by, with their values."""

    @property
    def numeric(self) -> list[bool]:
        """For each column, whether it holds numbers."""
        rows = [row for body in self.bodies for row in body.rows]
        return [bool(rows) and rows[0].cells[i].is_number for i in range(len(self.columns))]


# --- numbers ------------------------------------------------------------------------------------------------------


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def times(value: float) -> str:
    return f"{value:.2f}×" if value < 100 else f"{value:.0f}×"


def milliseconds(value_us: float) -> str:
    return f"{value_us / 1000:.3g}"


def significant(value: float) -> str:
    """Four significant digits, integers whole."""
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def fixed(value: float) -> str:
    return f"{value:,.2f}"


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def points(value: float) -> str:
    """A difference of shares, in percentage points."""
    return f"{round(100 * value):+d} pp".replace("-", "−")


def interval_cell(row: Mapping[str, Any], name: str, show: Callable[[float], str]) -> Cell:
    """A value with its interval, which stands in the columns ``<name>_low`` and ``<name>_high``."""
    return number_cell(row[name], show, row[f"{name}_low"], row[f"{name}_high"])


def number_cell(value: Any, show: Callable[[float], str], low: Any = None, high: Any = None) -> Cell:
    """A dash where there is no number."""
    if is_missing(value):
        return Cell("–", -math.inf)
    if is_missing(low) or is_missing(high):
        return Cell(show(float(value)), float(value))
    ends = [_bare(show(float(end))) for end in (low, high)]
    between = " to " if any(end[0] in "+−-" for end in ends) else "–"
    return Cell(show(float(value)), float(value), between.join(ends))


def text_cell(text: str, note: str = "", link: str | None = None) -> Cell:
    return Cell(text, text.lower(), note, link)


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _bare(text: str) -> str:
    return text.removesuffix(" %").removesuffix(" pp").removesuffix("×")
