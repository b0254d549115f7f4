"""`kevin diff`: two results against each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kevin.cli.options import file
from kevin.core.errors import DataError
from kevin.core.texts import strict_json

_MAX_ROWS = 40


def diff(
    stored: Annotated[Path, typer.Argument(metavar="STORED", help="Folder of results or of tables, or a table.")],
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="The same of what is compared with it.")],
    out: Annotated[Path | None, file("Every number, as CSV.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare across hardware, tasks and versions of the judging protocol, too.")
    ] = False,
) -> None:
    """Compare two results number by number: those differ whose 95 % intervals do not overlap.

    Numbers that hold a time are not compared across hardware; nothing is across versions of the judging protocol.

    Exit codes: 0 nothing differs, 1 something does, 2 nothing could be compared.
    """
    from kevin.core.files import write_csv
    from kevin.report.diff import AGREES, DIFFERS, LEFT_OUT, compare

    found = compare(stored, results, anyway=anyway)
    differing, agreeing, left_out = (found.of(status) for status in (DIFFERS, AGREES, LEFT_OUT))
    if out is not None:
        write_csv(out, found.cells)
    if as_json:
        cells = json.loads(found.cells.to_json(orient="records"))
        typer.echo(strict_json({"origins": found.origins, "cells": cells}, indent=1))
    else:
        _print("Differs", [_line(row) for row in differing.to_dict("records")])
        reasons = left_out["reason"].value_counts()
        _print("Not compared", [f"{number} numbers: {reason}" for reason, number in reasons.items()])
        _print("How the two came about", found.origins)
        typer.echo(f"{len(differing)} numbers differ, {len(agreeing)} agree, {len(left_out)} were not compared.")
    if differing.empty and agreeing.empty:
        raise DataError(f"{stored} and {results}: nothing could be compared; the reasons are above")
    if len(differing):
        raise typer.Exit(code=1)


def _print(title: str, lines: list[str]) -> None:
    if lines:
        more = [f"[{len(lines) - _MAX_ROWS} more, see --out]"] if len(lines) > _MAX_ROWS else []
        typer.echo("\n  ".join([title, *lines[:_MAX_ROWS], *more]) + "\n")


def _line(row: dict[object, object]) -> str:
    one, other = (
        f"{row[side]:.3g} [{row[f'{side}_low']:.3g}, {row[f'{side}_high']:.3g}]" for side in ("stored", "results")
    )
    return f"{row['table']}, {row['row']}, {row['column']}: {one} against {other}"
