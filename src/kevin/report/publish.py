"""A table as files: CSV at full precision, and beside it, for people and papers, Markdown and LaTeX (booktabs)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from kevin.core.config import Study
from kevin.core.files import write_csv, write_text
from kevin.report.cells import Body, Cell, Table
from kevin.report.display import display_table
from kevin.report.notes import with_note

LONG = 40
"""Rows from which on a LaTeX table may run over several pages."""
WIDE = 7
"""Columns from which on it spans both columns of a page, in smaller type."""
LONG_TEXT = 34
"""Characters from which on a cell's text is broken into lines there."""


def write_table(out: Path, name: str, frame: pd.DataFrame, study: Study, note: str | None) -> Path:
    """Write ``out`` (CSV) and its siblings ``.md`` and ``.tex``, which show what the report shows. Returns ``out``.

    Args:
        name: of the table, see `kevin.report.display.display_table`.
        note: what must be said of the study as a whole, see `kevin.report.notes`.
    """
    write_csv(out, with_note(frame, note))
    table = display_table(name, pd.read_csv(out), study)
    caption = table.caption.replace("Small:", "In parentheses:").replace("small:", "in parentheses:")
    table = table._replace(caption=f"{caption} {note or ''}".strip(), bodies=[_brief(body) for body in table.bodies])
    write_text(out.with_suffix(".md"), markdown(table))
    write_text(out.with_suffix(".tex"), latex(table))
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
    return _markdown(f"{cell.text} ({cell.note})" if cell.note else cell.text)


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
    """A floating table, or one that may break over pages. Needs the package booktabs, and longtable for the latter."""
    width = len(table.columns)
    columns = "".join(_latex_columns(table))
    caption = rf"\caption{{\textbf{{{escape_latex(table.title)}.}} {escape_latex(table.caption)}}}"
    label = rf"\label{{tab:{table.name.replace('_', '-')}}}"
    size = r"\scriptsize" if width > WIDE else r"\small"
    head = [r"\toprule", *_latex_heads(table), r"\midrule"]
    rows = [line for body in _latex_bodies(table, width) for line in body]
    if sum(len(body.rows) for body in table.bodies) > LONG:
        opening = [r"% \usepackage{booktabs,longtable}", "{" + size, rf"\begin{{longtable}}{{@{{}}{columns}@{{}}}}"]
        lines = [*opening, rf"{caption}{label} \\", *head, r"\endhead", *rows, r"\bottomrule", r"\end{longtable}", "}"]
    else:
        kind = "table*" if width > WIDE else "table"
        opening = [r"% \usepackage{booktabs}", rf"\begin{{{kind}}}", r"\centering" + size, caption, label]
        body = [rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}", *head, *rows, r"\bottomrule", r"\end{tabular}"]
        lines = [*opening, *body, rf"\end{{{kind}}}"]
    return "\n".join(lines) + "\n"


def _latex_columns(table: Table) -> list[str]:
    """Columns of long texts are paragraphs, which share most of the page's width."""
    rows = [row for body in table.bodies for row in body.rows]
    longest = [
        max((len(r.cells[i].text + r.cells[i].note) for r in rows), default=0) for i in range(len(table.columns))
    ]
    share = min(0.25, 0.75 / max(1, sum(n > LONG_TEXT for n in longest)))
    return [
        rf"p{{{share:.2f}\linewidth}}" if n > LONG_TEXT else "r" if number else "l"
        for n, number in zip(longest, table.numeric, strict=True)
    ]


def _latex_heads(table: Table) -> Iterator[str]:
    if table.groups:
        cells, rules, start = [], [], 1
        for label, span in table.groups:
            cells.append(rf"\multicolumn{{{span}}}{{c}}{{{escape_latex(label)}}}")
            if label:
                rules.append(rf"\cmidrule(lr){{{start}-{start + span - 1}}}")
            start += span
        yield " & ".join(cells) + r" \\"
        yield "".join(rules)
    heads = zip(table.columns, _latex_columns(table), strict=True)
    yield (
        " & ".join(
            rf"\multicolumn{{1}}{{r}}{{{escape_latex(column)}}}" if kind == "r" else escape_latex(column)
            for column, kind in heads
        )
        + r" \\"
    )


def _latex_bodies(table: Table, width: int) -> Iterator[list[str]]:
    """The paper's rows under a rule and their source."""
    for body in (b for b in table.bodies if b.rows):
        lines = []
        if body.heading:
            heading = (
                rf"\multicolumn{{{width}}}{{@{{}}p{{0.95\linewidth}}@{{}}}}{{\emph{{{escape_latex(body.heading)}}}}}"
            )
            lines += [r"\midrule", heading + r" \\"]
        yield lines + [" & ".join(map(_latex_cell, row.cells)) + r" \\" for row in body.rows]


def _latex_cell(cell: Cell) -> str:
    note = rf" {{\scriptsize ({escape_latex(cell.note)})}}" if cell.note else ""
    return escape_latex(cell.text) + note


def _grouped(table: Table) -> Iterator[tuple[str, str]]:
    """(upper head, head) of each column."""
    uppers = [label for label, span in table.groups for _ in range(span)] or [""] * len(table.columns)
    yield from zip(uppers, table.columns, strict=True)
