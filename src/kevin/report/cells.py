"""Cells of the tables that people read: short texts, numbers with units and intervals, and columns of them.

A cell is a text, and after the end of a line its small print: an interval, or what a number is of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.report.records import records
from kevin.report.scores import policy_label, split_label


class Shown(NamedTuple):
    """A table for people."""

    cells: pd.DataFrame
    """Texts; its columns have two levels where groups of them have a head of their own."""
    filters: Sequence[str] = ()
    """Heads of columns by whose values the page lets people choose among our rows; the first value is chosen."""
    theirs: Sequence[bool] = ()
    """Which rows are of others, and not comparable; empty where none is."""
    notes: str = ""
    """What is said of it besides its caption."""
    viewer: bool = False
    """Whether the first cell of a row is a task that the page's viewer shows."""

    @property
    def heads(self) -> list[tuple[str, str]]:
        """(head of the group or nothing, head) of each column."""
        return [column if isinstance(column, tuple) else ("", column) for column in self.cells.columns]


Row = dict[str, Any]
Show = Callable[[Any], str]
Column = Callable[[Row], str]
Head = str | tuple[str, str]


def shown(rows: pd.DataFrame | Sequence[Row], columns: Mapping[Head, Column], **more: Any) -> Shown:
    each = records(rows) if isinstance(rows, pd.DataFrame) else rows
    texts = [[column(row) for column in columns.values()] for row in each]
    heads = [head if isinstance(head, tuple) else ("", head) for head in columns]
    index = pd.MultiIndex.from_tuples(heads) if any(group for group, _ in heads) else pd.Index([h for _, h in heads])
    return Shown(pd.DataFrame(texts, columns=index, dtype=object), **more)


# --- numbers ------------------------------------------------------------------------------------------------------


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def times(value: float) -> str:
    return f"{value:.2f}×" if value < 100 else f"{value:.0f}×"


def times_more(value: float) -> str:
    return f"{signed(value)}×"


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


def is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def said(value: Any, show: Show, low: Any = None, high: Any = None) -> str:
    """A number and its interval; a dash where there is no number."""
    if is_missing(value):
        return "–"
    if is_missing(low) or is_missing(high):
        return show(float(value))
    ends = [show(float(end)).removesuffix(" %").removesuffix(" pp").removesuffix("×") for end in (low, high)]
    between = " to " if any(end[0] in "+−-" for end in ends) else "–"
    return f"{show(float(value))}\n{between.join(ends)}"


def in_line(cell: str) -> str:
    """The small print in parentheses behind the text."""
    text, _, small = cell.partition("\n")
    return f"{text} ({small})" if small else text


# --- columns ------------------------------------------------------------------------------------------------------


def number(name: str, show: Show = significant) -> Column:
    return lambda row: said(row.get(name), show)


def interval(name: str, show: Show) -> Column:
    """A value with its interval, which stands in the columns ``<name>_low`` and ``<name>_high``."""
    return lambda row: said(row[name], show, row.get(f"{name}_low"), row.get(f"{name}_high"))


def text(name: str, small: str | None = None) -> Column:
    return lambda row: with_small(word(row[name]), word(row[small]) if small else "")


def with_small(large: str, small: str) -> str:
    return f"{large}\n{small}" if small else large


def word(value: Any) -> str:
    return "" if is_missing(value) else str(value)


def split_of(row: Row) -> str:
    return split_label(str(row.get("split", f"level{row.get('level')}")))


def seed_of(study: Study) -> Column:
    """The policy, and which of its seeds, the first one apart; or how many of them."""

    def show(row: Row) -> str:
        num_seeds = int(row.get("num_seeds", 1))
        seed = f"seed {row['seed']:.0f}" if num_seeds == 1 and row["seed"] else ""
        return with_small(policy_label(str(row["policy"]), study, num_seeds), seed)

    return show


def label_of(name: str, study: Study) -> Column:
    """Of a policy or run in this column, with the number of its seeds."""
    return lambda row: policy_label(str(row[name]), study, int(row.get("num_seeds", 1)) if name == "policy" else 1)
