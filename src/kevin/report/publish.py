"""A table as files: CSV at full precision, and beside it, for people and papers, Markdown and LaTeX (booktabs)."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.core.files import read_table, write_csv, write_text
from kevin.report.cells import Body, Cell, Table
from kevin.report.display import display_table
from kevin.report.notes import with_note

PACKAGES = "array,booktabs,graphicx,longtable,pdflscape,rotating"
"""What a LaTeX document with any of the tables needs."""
ACROSS_COLUMN, ACROSS, ACROSS_SIDEWAYS = 48, 90, 150
"""Characters of a line: of one column of two, of a page, of a page that lies on its side."""
DOWN, DOWN_SIDEWAYS = 50, 26
"""Lines from which on it runs over several pages, upright and on its side."""
LONG_TEXT = 34
"""Characters from which on a cell's text is broken into lines there."""

_SIZES = (
    (1.0, r"\footnotesize\setlength{\tabcolsep}{3pt}\let\smallprint\scriptsize"),
    (1.2, r"\scriptsize\setlength{\tabcolsep}{1.5pt}\let\smallprint\tiny"),
    (math.inf, r"\tiny\setlength{\tabcolsep}{1pt}\let\smallprint\tiny"),
)
"""Of tables up to so many times as long as a line."""
_STACKED = r"\providecommand{\stacked}[3]{\begin{tabular}[#1]{@{}#2@{}}#3\end{tabular}}"
_FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""Smaller where it would still be too wide."""


def write_table(out: Path, name: str, frame: pd.DataFrame, study: Study, note: str | None) -> Path:
    """Write ``out`` (CSV) and its siblings ``.md`` and ``.tex``, which show what the report shows. Returns ``out``.

    Args:
        name: of the table, see `kevin.report.display.display_table`.
        note: what must be said of the study as a whole, see `kevin.report.notes`.
    """
    write_csv(out, with_note(frame, note))
    table = display_table(name, read_table(out), study)
    table = table._replace(
        caption=f"{table.caption} {note or ''}".strip(), bodies=[_brief(body) for body in table.bodies]
    )
    write_text(out.with_suffix(".tex"), latex(table))
    caption = table.caption.replace("Small:", "In parentheses:").replace("small:", "in parentheses:")
    write_text(out.with_suffix(".md"), markdown(table._replace(caption=caption)))
    return out


def _brief(body: Body) -> Body:
    """Others' rows without what their heading says of all of them."""
    if body.heading is None:
        return body
    return body._replace(
        rows=[row._replace(cells=[row.cells[0]._replace(note=""), *row.cells[1:]]) for row in body.rows]
    )


# --- Markdown -----------------------------------------------------------------------------------------------------


def markdown(table: Table) -> str:
    """GitHub's tables have one row of heads: the upper ones stand before those below them."""
    heads = [f"{group}: {column}" if group else column for group, column in _grouped(table)]
    lines = [
        _markdown_row(heads, _markdown),
        "|" + "|".join("---:" if number else "---" for number in table.numeric) + "|",
    ]
    for body in table.bodies:
        if body.heading and body.rows:
            lines.append(_markdown_row([f"*{_markdown(body.heading)}*", *[""] * (len(heads) - 1)], str))
        lines += [_markdown_row([_markdown_cell(cell) for cell in row.cells], str) for row in body.rows]
    caption = f"{_markdown(table.caption)}\n\n" if table.caption else ""
    return f"**{_markdown(table.title)}**\n\n{caption}" + "\n".join(lines) + "\n"


def _markdown_row(texts: list[str], escape: Callable[[str], str]) -> str:
    return "| " + " | ".join(map(escape, texts)) + " |"


def _markdown_cell(cell: Cell) -> str:
    return _markdown(cell.in_line)


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))


# --- LaTeX --------------------------------------------------------------------------------------------------------

_LATEX = {
    "\\": r"\textbackslash{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "×": r"$\times$",
    "−": r"$-$",
    "–": "--",
    "—": "---",
    "·": r"$\cdot$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "→": r"$\rightarrow$",
    "±": r"$\pm$",
    "…": r"\ldots{}",
    "µ": r"\textmu{}",
    "γ": r"$\gamma$",
}


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is; one line."""
    return "".join(_LATEX.get(char, char) for char in " ".join(text.split()))


def latex(table: Table) -> str:
    """A floating table; one that is too wide lies on its side, one that is too long breaks over pages.

    A document needs the packages of `PACKAGES`; a table over several pages needs one in a single column.
    """
    columns, across = _latex_columns(table, ACROSS), ACROSS
    length = sum(c.length for c in columns)
    wide = length > ACROSS
    if wide:
        columns, across = _latex_columns(table, ACROSS_SIDEWAYS), ACROSS_SIDEWAYS
    depth = _num_lines(table, columns)
    size = next(size for limit, size in _SIZES if sum(c.length for c in columns) <= limit * across)
    caption = rf"\caption{{\textbf{{{escape_latex(table.title)}.}} {escape_latex(table.caption)}}}"
    label = rf"\label{{tab:{table.name.replace('_', '-')}}}"
    head = [r"\toprule", *_latex_heads(table, columns), r"\midrule"]
    rows = [line for body in _latex_bodies(table, columns, across) for line in body]
    spec = f"{{@{{}}{''.join(c.spec for c in columns)}@{{}}}}"
    opening = [rf"% \usepackage{{{PACKAGES}}}", _STACKED]
    if depth > (DOWN_SIDEWAYS if wide else DOWN):
        lines = ["{" + size, r"\setlength{\LTcapwidth}{\linewidth}", rf"\begin{{longtable}}{spec}"]
        lines += [rf"{caption}{label} \\", *head, r"\endfirsthead", *head, r"\endhead", *rows, r"\bottomrule"]
        lines += [r"\end{longtable}", "}"]
        if wide:
            lines = [r"\begin{landscape}", *lines, r"\end{landscape}"]
    else:
        kind = "sidewaystable*" if wide else "table*" if length > ACROSS_COLUMN else "table"
        body = [_FITTED, rf"\begin{{tabular}}{spec}", *head, *rows, r"\bottomrule", r"\end{tabular}}"]
        lines = [
            rf"\begin{{{kind}}}",
            r"\centering\setlength{\belowcaptionskip}{4pt}" + size,
            caption,
            label,
            *body,
            rf"\end{{{kind}}}",
        ]
    return "\n".join([*opening, *lines]) + "\n"


class _Column(NamedTuple):
    spec: str
    place: str
    """``r`` or ``l`` within it, or ``p``: a paragraph, broken where the line ends."""
    length: int
    """Characters that it takes of a line."""


def _latex_columns(table: Table, across: int) -> list[_Column]:
    """Long texts are paragraphs that share what others leave of a line; where that is little, so are shorter ones."""
    rows = [row for body in table.bodies for row in body.rows]
    widths = [
        max((max(len(r.cells[i].text), len(r.cells[i].note)) for r in rows), default=0)
        for i in range(len(table.columns))
    ]
    for longest in (LONG_TEXT, LONG_TEXT // 2):
        found = []
        for width, head, number in zip(widths, table.columns, table.numeric, strict=True):
            place = "p" if width > longest else "r" if number else "l"
            found.append(_Column(place, place, 2 + max(width, *map(len, _wrapped(head, width)))))
        paragraphs = sum(c.place == "p" for c in found)
        left = across - sum(c.length for c in found if c.place != "p")
        length = min(LONG_TEXT, left // max(1, paragraphs))
        if length >= LONG_TEXT // 2:
            break
    length = max(length, LONG_TEXT // 2)
    spec = rf">{{\raggedright\arraybackslash}}p{{{0.95 * length / across:.2f}\linewidth}}"
    return [_Column(spec, "p", length) if c.place == "p" else c for c in found]


def _wrapped(head: str, width: int) -> list[str]:
    """A head in lines hardly longer than what stands under it."""
    return textwrap.wrap(head, max(9, width), break_long_words=False) or [""]


def _num_lines(table: Table, columns: list[_Column]) -> int:
    """Lines of the page that the rows take, about."""
    total = 0
    for body in (b for b in table.bodies if b.rows):
        total += 2 if body.heading else 0
        for row in body.rows:
            total += max(
                sum(-(-len(text) // (c.length if c.place == "p" else 1000)) for text in (cell.text, cell.note))
                for cell, c in zip(row.cells, columns, strict=True)
            )
    return total


def _latex_heads(table: Table, columns: list[_Column]) -> Iterator[str]:
    if table.groups:
        cells, rules, start = [], [], 1
        for label, span in table.groups:
            width = sum(c.length for c in columns[start - 1 : start - 1 + span])
            cells.append(rf"\multicolumn{{{span}}}{{c}}{{{_stacked('b', 'c', _wrapped(label, width))}}}")
            if label:
                rules.append(rf"\cmidrule(lr){{{start}-{start + span - 1}}}")
            start += span
        yield " & ".join(cells) + r" \\"
        yield "".join(rules)
    cells = []
    for head, column in zip(table.columns, columns, strict=True):
        place = "r" if column.place == "r" else "l"
        text = _stacked("b", place, _wrapped(head, column.length - 2))
        cells.append(rf"\multicolumn{{1}}{{{place}}}{{{text}}}" if place == "r" else text)
    yield " & ".join(cells) + r" \\"


def _stacked(at: str, place: str, lines: list[str]) -> str:
    text = r" \\ ".join(map(escape_latex, lines))
    return text if len(lines) == 1 else rf"\stacked{{{at}}}{{{place}}}{{{text}}}"


def _latex_bodies(table: Table, columns: list[_Column], across: int) -> Iterator[list[str]]:
    """The paper's rows under a rule and their source, which must not widen the table."""
    width = min(0.9, 0.75 * sum(c.length for c in columns) / across)
    for body in (b for b in table.bodies if b.rows):
        lines = []
        if body.heading:
            text = rf"\emph{{{escape_latex(body.heading)}}}"
            place = rf"@{{}}p{{{width:.2f}\linewidth}}@{{}}"
            lines += [r"\midrule", rf"\multicolumn{{{len(columns)}}}{{{place}}}{{{text}}} \\ \addlinespace[2pt]"]
        rows = [zip(row.cells, columns, strict=True) for row in body.rows]
        yield lines + [
            " & ".join(_latex_cell(cell, c.place) for cell, c in row) + r" \\ \addlinespace[2pt]" for row in rows
        ]


def _latex_cell(cell: Cell, place: str) -> str:
    """The small print stands under its number. Long names may be broken after each of their words."""
    text, note = (_breakable(escape_latex(part)) for part in (cell.text, cell.note))
    if not note:
        return text
    small = rf"{{\smallprint {note}}}"
    return rf"{text}\newline {small}" if place == "p" else rf"\stacked{{t}}{{{place}}}{{{text} \\ {small}}}"


def _breakable(text: str) -> str:
    """Where a line may end: within a long name, but not between a number and its unit."""
    kept = text.replace(r" \%", r"~\%").replace(r" $\times$ ", r"~$\times$~")
    return kept.replace(r"\_", r"\_\allowbreak{}")


def _grouped(table: Table) -> Iterator[tuple[str, str]]:
    """(upper head, head) of each column."""
    uppers = [label for label, span in table.groups for _ in range(span)] or [""] * len(table.columns)
    yield from zip(uppers, table.columns, strict=True)
