"""`kevin diff`: two results against each other."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kevin.core.errors import DataError
from kevin.core.texts import strict_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kevin.report.diff import Cell, Comparison, Estimate

_MAX_ROWS = 40


class Correction(StrEnum):
    holm = "holm"
    bonferroni = "bonferroni"
    none = "none"


class Kind(StrEnum):
    hardware = "hardware"
    protocol = "protocol"
    configuration = "configuration"
    tasks = "tasks"


def diff(
    stored: Annotated[Path, typer.Argument(metavar="STORED", help="Folder of results or of tables, or a table.")],
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="The same of what is compared with it.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Every cell with its interval and p, as CSV.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    correction: Annotated[
        Correction, typer.Option("--correction", help="How p is corrected for many cells; none: each cell by itself.")
    ] = Correction.holm,
    level: Annotated[
        float, typer.Option("--level", min=1e-6, max=0.5, help="Corrected p below which a cell differs.")
    ] = 0.05,
    anyway: Annotated[
        list[Kind] | None, typer.Option("--anyway", help="Compare although this differs between the two; repeatable.")
    ] = None,
) -> None:
    """Compare two results cell by cell: what differs beyond its interval, and what cannot be compared, and why.

    Numbers that hold a time are not compared across hardware; nothing is across versions of the judging protocol, or
    where the configuration or the tasks behind a number differ.

    Exit codes: 0 nothing differs, 1 something does, 2 nothing could be compared.
    """
    from kevin.core.files import write_csv
    from kevin.report.diff import cells_frame, compare

    found = compare(stored, results, correction=correction.value, level=level, anyway=[k.value for k in anyway or []])
    if out is not None:
        write_csv(out, cells_frame(found))
    if as_json:
        typer.echo(strict_json(record(found), indent=1))
    else:
        print_comparison(found)
    if not found.of("differs") and not found.of("agrees"):
        raise DataError(f"{stored} and {results}: nothing could be compared; the reasons are above")
    if found.of("differs"):
        raise typer.Exit(code=1)


def record(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON values; an estimate has value, low and high."""
    numbers = ("stored", "results", "difference")
    cells = []
    for cell in found.cells:
        estimates = {name: own._asdict() if (own := getattr(cell, name)) else None for name in numbers}
        cells.append({**cell.model_dump(exclude=set(numbers)), **estimates})
    origins = [{**d._asdict(), "splits": sorted(d.splits)} for d in found.origins]
    return {**found.model_dump(exclude={"cells", "origins"}), "origins": origins, "cells": cells}


def print_comparison(found: Comparison, console: Console | None = None) -> None:
    """What differs, what could not be compared by reason, how the two came about, and one sentence."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console(highlight=False)
    differing, left_out = found.of("differs"), found.of("not compared")
    if differing:
        console.print(_differing(differing), Text())
    if left_out:
        console.print(_left_out(left_out), Text())
    if found.origins:
        table = Table(box=None, title="How the two came about", title_justify="left", show_header=False, pad_edge=False)
        for difference in found.origins[:_MAX_ROWS]:
            table.add_row(Text(difference.what), Text("" if difference.reach == "nothing" else "not compared", "dim"))
        if len(found.origins) > _MAX_ROWS:
            table.add_row(Text(f"[{len(found.origins) - _MAX_ROWS} more, see --json]"))
        console.print(table, Text())
    agreeing = found.of("agrees")
    alone = sum(cell.p is not None and cell.p < 0.05 for cell in found.cells)
    console.print(
        Text(
            f"{len(differing)} cells differ, {len(agreeing)} agree, {len(left_out)} were not compared "
            f"(p below {found.level:g}, correction: {found.correction}; each by itself: {alone} below 0.05)."
        )
    )


def _differing(cells: list[Cell]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, title="Differs", title_justify="left", pad_edge=False, title_style="bold red")
    for head in ("Table", "Row", "Column"):
        table.add_column(head, overflow="fold")
    for head in ("Stored", "Results", "Difference", "p"):
        table.add_column(head, justify="right")
    for cell in sorted(cells, key=lambda c: c.p_corrected or 0.0)[:_MAX_ROWS]:
        numbers = [_number(cell.stored), _number(cell.results), _number(cell.difference)]
        p = "" if cell.p_corrected is None else f"{cell.p_corrected:.2g}"
        table.add_row(*(Text(text) for text in (cell.table, cell.row, cell.column, *numbers, p)))
    if len(cells) > _MAX_ROWS:
        table.add_row(Text(f"[{len(cells) - _MAX_ROWS} more, see --out]"))
    return table


def _left_out(cells: list[Cell]) -> Table:
    from rich.table import Table
    from rich.text import Text

    reasons: dict[str, list[Cell]] = {}
    for cell in cells:
        reasons.setdefault(cell.reason, []).append(cell)
    table = Table(box=None, title="Not compared", title_justify="left", pad_edge=False)
    table.add_column("Why", overflow="fold")
    table.add_column("Cells", justify="right")
    table.add_column("Where", overflow="fold")
    for reason, own in sorted(reasons.items(), key=lambda item: -len(item[1]))[:_MAX_ROWS]:
        names = list(dict.fromkeys(cell.table for cell in own))
        where = ", ".join(names) if len(own) > 1 or not own[0].row else f"{own[0].table}: {own[0].row}"
        table.add_row(Text(reason), Text(str(len(own))), Text(where))
    if len(reasons) > _MAX_ROWS:
        table.add_row(Text(f"[{len(reasons) - _MAX_ROWS} more, see --out]"))
    return table


def _number(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.4g}"
    return f"{estimate.value:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"
