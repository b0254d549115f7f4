"""A table as people read it: texts, numbers with units and intervals, and by pandas three forms of it.

A cell is a text, and after the end of a line its small print: an interval, or what a number is of. Markdown, LaTeX
(booktabs), and HTML for the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pandas.io.formats.style import Styler

from kevin.core.config import Study
from kevin.core.files import read_table, write_csv, write_text
from kevin.report.captions import NOTE, Caption, with_note
from kevin.report.recipes import policy_label, split_label


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Each row as column -> value."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


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


def significant(value: float) -> str:
    """Four significant digits, integers whole."""
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


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


def plain(name: Any) -> str:
    return str(name).replace("_", " ")


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


# --- tables in three forms ----------------------------------------------------------------------------------------


PACKAGES = "array,booktabs,graphicx,longtable,multirow,pdflscape,textcomp"
"""What a LaTeX document with any of the tables needs."""
MANY_ROWS = 40
"""From so many on a table runs over several pages."""
ACROSS = 90
"""Characters of a page's line; a longer table is made smaller, or lies on its side where it is long as well."""
LONG_TEXT = 34
"""Characters from which on a cell's text is broken into lines there."""
_NUMBER = re.compile(r"[+−–]?(\d|$)")
_NAMED_SIGNS = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater"}
_SIGNS = str.maketrans(
    {"×": r"$\times$", "−": r"$-$", "–": "--", "—": "---", "·": r"$\cdot$", "≥": r"$\geq$", "≤": r"$\leq$",
     "→": r"$\rightarrow$", "±": r"$\pm$", "…": r"\ldots{}", "µ": r"\textmu{}", "γ": r"$\gamma$", "¹": "$^1$",
     "²": "$^2$", "³": "$^3$", "⁴": "$^4$", "⁵": "$^5$", "⁶": "$^6$"}
)  # fmt: skip


def write_table(
    out: Path,
    frame: pd.DataFrame,
    show: Callable[[pd.DataFrame, Study], Shown],
    study: Study,
    caption: Caption,
    note: str | None = None,
) -> Path:
    """Write ``out`` (CSV, at full precision) and its siblings ``.md`` and ``.tex``. Returns ``out``.

    Args:
        note: what must be said of the study as a whole, see `kevin.report.captions`.
    """
    write_csv(out, with_note(frame, note))
    written = read_table(out).drop(columns=NOTE, errors="ignore")
    table = show(written, study)
    text = full_caption(written, table, caption, note)
    write_text(out.with_suffix(".md"), markdown(table, caption.title, text))
    write_text(out.with_suffix(".tex"), latex(table, out.stem, caption.title, text))
    return out


def full_caption(frame: pd.DataFrame, table: Shown, caption: Caption, note: str | None = None) -> str:
    """How to read the table, what its rows of others are, what intervals are over, and the note of the study."""
    return " ".join(filter(None, [caption.text, caption.reading, table.notes, _seeds(frame), note]))


def _seeds(frame: pd.DataFrame) -> str:
    if "num_seeds" not in frame or frame["num_seeds"].isna().all():
        return ""
    if frame["num_seeds"].max() > 1:
        return "Rows of several seeds (trainings): their mean, with an interval over tasks and seeds."
    return "Each policy is one training: intervals are over tasks and do not say what another seed would give."


def _numeric(table: Shown) -> list[bool]:
    """Whether a column holds numbers alone."""
    texts = (table.cells.iloc[:, i] for i in range(table.cells.shape[1]))
    return [bool(len(cells)) and all(_NUMBER.match(cell) for cell in cells) for cells in texts]


# --- Markdown -----------------------------------------------------------------------------------------------------


def markdown(table: Shown, title: str, caption: str) -> str:
    """GitHub's tables have one row of heads: the upper ones stand before those below them."""
    heads = [_markdown(f"{group}: {head}" if group else head) for group, head in table.heads]
    cells = table.cells.map(lambda cell: _markdown(in_line(cell))).set_axis(heads, axis=1)
    places = ["right" if numeric else "left" for numeric in _numeric(table)]
    text = cells.to_markdown(index=False, disable_numparse=True, colalign=places) if len(cells) else "No rows."
    small = caption.replace("Small:", "In parentheses:").replace("small:", "in parentheses:")
    return f"**{_markdown(title)}**\n\n{_markdown(small)}\n\n{text}\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))


# --- LaTeX --------------------------------------------------------------------------------------------------------


def latex(table: Shown, name: str, title: str, caption: str) -> str:
    """A floating table, shrunk where it is too wide; one of many rows breaks over pages."""
    cells = table.cells
    styler = Styler(cells).hide(axis="index").format(_latex, escape="latex")
    styler = styler.format_index(_latex, escape="latex", axis=1)
    widths = [
        min(LONG_TEXT, max([len(part) for cell in cells.iloc[:, i] for part in cell.split("\n")], default=0))
        for i in range(cells.shape[1])
    ]
    is_wide = sum(widths) > ACROSS
    spec = "@{}" + "".join(map(_latex_column, widths, _numeric(table))) + "@{}"
    said = rf"\textbf{{{escape_latex(title)}.}} {escape_latex(caption)}"
    label = f"tab:{name.replace('_', '-')}"
    given: dict[str, Any] = {"column_format": spec, "hrules": True, "multicol_align": "c"}
    opening = rf"% \usepackage{{{PACKAGES}}}"
    if len(cells) > MANY_ROWS:
        body = styler.to_latex(environment="longtable", caption=said, label=label, **given)
        lines = [r"{\scriptsize\setlength{\tabcolsep}{2pt}\setlength{\LTcapwidth}{\linewidth}", body.strip(), "}"]
        lines = [r"\begin{landscape}", *lines, r"\end{landscape}"] if is_wide else lines
    else:
        kind = "table*" if sum(widths) > ACROSS / 2 else "table"
        fitted = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
        head = [rf"\begin{{{kind}}}", r"\centering\footnotesize", rf"\caption{{{said}}}", rf"\label{{{label}}}"]
        lines = [*head, fitted, f"{styler.to_latex(**given).strip()}}}", rf"\end{{{kind}}}"]
    return "\n".join([opening, *lines]) + "\n"


def _latex_column(width: int, numeric: bool) -> str:
    """A long text is a paragraph."""
    if width < LONG_TEXT:
        return "r" if numeric else "l"
    return rf">{{\raggedright\arraybackslash}}p{{{LONG_TEXT / ACROSS:.2f}\linewidth}}"


def _latex(escaped: object) -> str:
    text, _, small = str(escaped).translate(_SIGNS).partition("\n")
    return rf"{text} {{\scriptsize ({small})}}" if small else text


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is; one line."""
    signs: dict[str, str | int | None] = {char: f"\\text{name}{{}}" for char, name in _NAMED_SIGNS.items()}
    signs |= {char: f"\\{char}" for char in "&%$#_{}"}
    return " ".join(text.split()).translate(str.maketrans(signs)).translate(_SIGNS)


# --- HTML ---------------------------------------------------------------------------------------------------------


def page_table(table: Shown, name: str) -> str:
    """A table of the page, whose script sorts its columns and lets people choose by `Shown.filters`."""
    classes = pd.DataFrame("", index=table.cells.index, columns=table.cells.columns)
    for i, numeric in enumerate(_numeric(table)):
        classes.iloc[:, i] = "num" if numeric else ""
    for row in (row for row, is_theirs in enumerate(table.theirs) if is_theirs):
        classes.iloc[row] += " theirs"
    heads = [head for _, head in table.heads]
    filters = " ".join(str(heads.index(head)) for head in table.filters)
    styler = Styler(table.cells, uuid=name, uuid_len=0, cell_ids=False).hide(axis="index").set_td_classes(classes)
    styler = styler.format(_html, escape="html").format_index(escape="html", axis=1)
    attributes = f'class="sortable" data-filters="{filters}"' + (" data-viewer" if table.viewer else "")
    return styler.set_table_attributes(attributes).to_html().partition("</style>\n")[2]


def _html(escaped: object) -> str:
    text, _, small = str(escaped).partition("\n")
    return f"{text}<small>{small}</small>" if small else text
