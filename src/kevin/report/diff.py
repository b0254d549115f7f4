"""Two studies' tables, cell by cell: which numbers differ beyond their intervals, which cannot be compared, and why.

The difference d = b − a of two independent estimates with intervals [l, u] has, by the normal approximation, the
interval d − √((b − l_b)² + (u_a − a)²) to d + √((u_b − b)² + (a − l_a)²): of each interval the arm that points at the
other estimate counts, so that skewed ones are not made symmetric (MOVER; Zou and Donner, Statistics in Medicine 27,
2008, 1693–1702). Its two-sided p is 2 − 2 Φ(z), where z = Φ⁻¹(0.975) · |d| / the arm of d that points at 0. Over many
cells p is corrected, by Holm's step-down method unless told otherwise: then at most a share `level` of all pairs of
like studies has any false alarm, however cells depend on each other. Where both studies have the same tasks, d varies
less than this says.

A bootstrap over tasks that are all alike gives no width. A share of 0 or 1 then has the exact binomial interval of so
many tasks (Clopper and Pearson, Biometrika 26, 1934: to (α/2)^(1/n)); any other number is compared with its like alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import pandas as pd

from kevin.core.errors import DataError
from kevin.core.files import read_table
from kevin.core.types import Frozen
from kevin.report.origin import Difference, Origin, Reach, origin_differences, read_origin
from kevin.report.paper import OURS

Status = Literal["differs", "agrees", "not compared"]
Correction = Literal["holm", "bonferroni", "none"]

KEYS = ("source", "system", "policy", "run", "against", "strategy", "baseline", "subset", "split", "level", "task_id",
        "seed", "error", "metric", "k", "turn", "kernels")  # fmt: skip
"""Columns that say what a row is about."""
CONDITIONS = ("turns", "trajectories", "budget", "num_tasks")
"""Columns under which a row was measured; the first ones say what it is about where nothing else tells rows apart."""
_SKIPPED = ("label", "note", "level", "flawed")
_COUNTED = {
    "mended": "num_wrong_before",
    **dict.fromkeys(("kept", "faster", "slower", "repeated"), "num_correct_before"),
    "improved": "num_best_before",
}
"""Of which count a share is, where not of all tasks or kernels of its row."""
_SHARES = (
    "correct",
    "solved",
    "fast_",
    "mended",
    "fresh",
    "kept",
    "copied",
    "faster",
    "slower",
    "repeated",
    "improved",
)
_TIMES = ("speedup", "geomean", "fast_", "faster", "slower", "score", "gain", "seconds", "per_minute", "eager",
          "over_first", "over_reference")  # fmt: skip
_Z = NormalDist().inv_cdf(0.975)


class Estimate(NamedTuple):
    """A number, with its 95 % interval where it has one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def width(self) -> float | None:
        return None if self.low is None or self.high is None else self.high - self.low


class Cell(Frozen):
    """One number of both studies."""

    table: str
    row: str
    """What the row is about: ``policy base, subset all tasks``."""
    column: str
    status: Status
    stored: Estimate | None = None
    results: Estimate | None = None
    difference: Estimate | None = None
    """Of independent estimates, results minus stored, with its 95 % interval."""
    p: float | None = None
    p_corrected: float | None = None
    reason: str = ""
    """Why it was not compared."""


class Comparison(Frozen):
    """Of two studies."""

    stored: str
    results: str
    correction: Correction
    level: float
    origins: tuple[Difference, ...]
    """How the two are not the same, whether it kept cells from being compared or not."""
    cells: tuple[Cell, ...]

    def of(self, status: Status) -> list[Cell]:
        return [cell for cell in self.cells if cell.status == status]


def compare(
    stored: Path,
    results: Path,
    *,
    correction: Correction = "holm",
    level: float = 0.05,
    anyway: Sequence[str] = (),
) -> Comparison:
    """Compare two folders of results or of tables, or two tables.

    Args:
        level: of the corrected p below which a cell differs.
        anyway: kinds of `Difference` (``hardware``, ``protocol``, ``configuration``, ``tasks``) that shall keep no
            cell from being compared.

    Raises:
        DataError: a path is no folder and no table, or rows of a table cannot be told apart.
    """
    tables = [_tables(path) for path in (stored, results)]
    if stored.is_file() and results.is_file():
        tables[1] = dict(zip(tables[0], tables[1].values(), strict=True))
    elif stored.is_file() or results.is_file():
        wanted = tables[0].keys() if stored.is_file() else tables[1].keys()
        tables = [{name: path for name, path in own.items() if name in wanted} for own in tables]
    origins = [read_origin(path) for path in (stored, results)]
    differences = origin_differences(*origins)
    block = _Blocks([d for d in differences if d.kind not in anyway], origins)
    cells: list[Cell] = []
    for name in dict.fromkeys([*tables[0], *tables[1]]):
        if name not in tables[0] or name not in tables[1]:
            cells.append(_absent(name, "", "table", missing_in_results=name in tables[0]))
            continue
        frames = [read_table(own[name]) for own in tables]
        cells += _table_cells(name, frames, [own[name] for own in tables], block)
    return Comparison(
        stored=str(stored),
        results=str(results),
        correction=correction,
        level=level,
        origins=tuple(differences),
        cells=tuple(_decide(cells, correction, level)),
    )


def _tables(path: Path) -> dict[str, Path]:
    if path.is_file():
        return {path.stem: path}
    if not path.is_dir():
        raise DataError(
            f"{path}: no such folder or table; give a folder of results, as results, or a .csv of its tables"
        )
    files = sorted((path / "tables").glob("*.csv")) or sorted(path.glob("*.csv"))
    if not files:
        raise DataError(f"{path}: holds no tables (tables/*.csv or *.csv); make them with: snakemake")
    return {file.stem: file for file in files}


# --- rows ---------------------------------------------------------------------------------------------------------


def _table_cells(name: str, frames: Sequence[pd.DataFrame], paths: Sequence[Path], block: _Blocks) -> Iterator[Cell]:
    keys = _row_keys(frames, paths)
    rows = [dict(zip(_key_values(f, keys), f.to_dict("records"), strict=True)) for f in frames]
    for key in dict.fromkeys([*rows[0], *rows[1]]):
        about = ", ".join(f"{k} {v}" for k, v in zip(keys, key, strict=True) if v != "" and (k, v) != ("source", OURS))
        if key not in rows[0] or key not in rows[1]:
            yield _absent(name, about, "row", missing_in_results=key in rows[0])
            continue
        yield from _row_cells(name, about, {str(k): v for k, v in rows[0][key].items()}, rows[1][key], keys, block)


def _row_keys(frames: Sequence[pd.DataFrame], paths: Sequence[Path]) -> list[str]:
    """Columns of both tables that tell the rows of each apart. Raises DataError when none do."""
    shared = [column for column in frames[0].columns if column in frames[1].columns]
    keys = [column for column in KEYS if column in shared]
    texts = [c for c in shared if c not in (*keys, *_SKIPPED) and not pd.api.types.is_numeric_dtype(frames[0][c])]
    for more in [*(c for c in CONDITIONS if c in shared), *texts]:
        if all(len(set(_key_values(f, keys))) == len(f) for f in frames):
            break
        keys.append(more)
    for frame, path in zip(frames, paths, strict=True):
        if len(set(_key_values(frame, keys))) < len(frame):
            raise DataError(f"{path}: two rows have the same {', '.join(keys) or 'columns'}; make the table again")
    return keys


def _key_values(frame: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, ...]]:
    def text(value: Any) -> str:
        if isinstance(value, float):
            return "" if math.isnan(value) else f"{value:g}"
        return "" if value is None else str(value)

    return (
        [tuple(text(row[k]) for k in keys) for row in frame[list(keys)].to_dict("records")]
        if keys
        else [()] * len(frame)
    )


def _absent(table: str, row: str, what: str, *, missing_in_results: bool) -> Cell:
    where = ("stored ones", "results") if missing_in_results else ("results", "stored ones")
    reason = f"the {what} is in the {where[0]} alone, not in the {where[1]}"
    return Cell(table=table, row=row, column="", status="not compared", reason=reason)


def _row_cells(
    table: str, about: str, one: Mapping[str, Any], other: Mapping[Any, Any], keys: Sequence[str], block: _Blocks
) -> Iterator[Cell]:
    ours = one.get("source", OURS) == OURS
    own_conditions = [c for c in CONDITIONS if c not in keys and c in one and c in other and ours]
    changed = [
        f"{c} {one[c]:g} against {other[c]:g}"
        for c in own_conditions
        if _known(one[c], other[c]) and one[c] != other[c]
    ]
    for column in [c for c in one if c not in (*keys, *CONDITIONS, *_SKIPPED) and not _is_end(c, one)]:
        if not isinstance(one[column], int | float):
            continue
        if column not in other:
            yield _absent(table, f"{about}: {column}", "column", missing_in_results=True)
            continue
        estimates = _estimate(one, column), _estimate(other, column)
        a, b = estimates
        if a is None or b is None:
            if a or b:
                said = f"the {'results have' if a else 'stored one has'} no number there"
                yield Cell(table=table, row=about, column=column, status="not compared", reason=said)
            continue
        cell = Cell(table=table, row=about, column=column, status="agrees", stored=a, results=b)
        reason = "; ".join(changed) or (block(table, column, one) if ours else None)
        yield cell.model_copy(update={"status": "not compared", "reason": reason} if reason else _judged(a, b, ours))


def _known(*values: Any) -> bool:
    return all(isinstance(v, int | float) and not math.isnan(v) for v in values)


def _ends(column: str, row: Mapping[Any, Any]) -> tuple[str, str]:
    return (
        ("ci_low", "ci_high") if column.endswith("_gain") and "ci_low" in row else (f"{column}_low", f"{column}_high")
    )


def _is_end(column: str, row: Mapping[Any, Any]) -> bool:
    return column in ("ci_low", "ci_high") or (
        column.rpartition("_")[2] in ("low", "high") and column.rpartition("_")[0] in row
    )


def _estimate(row: Mapping[Any, Any], column: str) -> Estimate | None:
    if not _known(value := row[column]):
        return None
    low, high = (row.get(end) for end in _ends(column, row))
    if not _known(low, high):
        return Estimate(float(value))
    low, high = float(low), float(high)  # type: ignore[arg-type]
    if low == high and column.startswith(_SHARES) and value in (0, 1):
        counts = [row.get(c) for c in (_COUNTED.get(column, "num_tasks"), "num_tasks", "num_kernels")]
        if number := min((int(n) for n in counts if isinstance(n, int | float) and _known(n) and n > 0), default=0):
            bound = 0.025 ** (1 / number)
            low, high = (bound, 1.0) if value == 1 else (0.0, 1 - bound)
    return Estimate(float(value), low, high)


# --- two numbers --------------------------------------------------------------------------------------------------


def _judged(a: Estimate, b: Estimate, ours: bool) -> dict[str, Any]:
    """Fields of a cell that can be compared. Another source's numbers are no estimates: they are the same or not."""
    if math.isclose(a.value, b.value, rel_tol=1e-9, abs_tol=1e-12):
        return {"status": "agrees"}
    if not ours:
        return {"status": "differs"}
    if not a.width and not b.width:
        said = "no interval is given" if a.width is None or b.width is None else "neither interval has a width"
        return {"status": "not compared", "reason": f"{said}, and the values are not the same"}
    if a.width is None or b.width is None:
        return {"status": "not compared", "reason": "only one of the two has an interval"}
    difference = difference_of(a, b)
    end = difference.low if difference.value > 0 else difference.high
    assert end is not None
    arm = abs(difference.value - end)
    return {"difference": difference, "p": 2 * NormalDist().cdf(-_Z * abs(difference.value) / arm) if arm else 0.0}


def difference_of(a: Estimate, b: Estimate) -> Estimate:
    """b − a with its 95 % interval; see the module's text. Both need intervals."""
    assert a.low is not None and a.high is not None and b.low is not None and b.high is not None
    d = b.value - a.value
    return Estimate(
        d, d - math.hypot(b.value - b.low, a.high - a.value), d + math.hypot(b.high - b.value, a.value - a.low)
    )


def holm(p: Sequence[float]) -> list[float]:
    """Holm's corrected p (Scandinavian Journal of Statistics 6, 1979), in the order given."""
    corrected = [0.0] * len(p)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        corrected[i] = largest
    return corrected


_CORRECTIONS: dict[Correction, Callable[[Sequence[float]], list[float]]] = {
    "holm": holm,
    "bonferroni": lambda p: [min(1.0, len(p) * value) for value in p],
    "none": list,
}


def _decide(cells: Sequence[Cell], correction: Correction, level: float) -> Iterator[Cell]:
    corrected = iter(_CORRECTIONS[correction]([cell.p for cell in cells if cell.p is not None]))
    for cell in cells:
        if cell.p is None:
            yield cell
            continue
        p = next(corrected)
        yield cell.model_copy(update={"p_corrected": p, "status": "differs" if p < level else "agrees"})


def cells_frame(comparison: Comparison) -> pd.DataFrame:
    """One row a cell; intervals in columns of their own."""
    rows = []
    for cell in comparison.cells:
        row: dict[str, Any] = {"table": cell.table, "row": cell.row, "column": cell.column, "status": cell.status}
        for name in ("stored", "results", "difference"):
            value, low, high = getattr(cell, name) or (None, None, None)
            row |= {name: value, f"{name}_low": low, f"{name}_high": high}
        rows.append(row | {"p": cell.p, "p_corrected": cell.p_corrected, "reason": cell.reason})
    return pd.DataFrame(rows)


# --- what cannot be compared --------------------------------------------------------------------------------------


def holds_times(table: str, column: str) -> bool:
    """Whether a number is a time or follows from one, so that other hardware has others."""
    return table == "step_time" or (not column.startswith("fast_0_") and any(part in column for part in _TIMES))


class _Blocks:
    """Why a cell of these two studies cannot be compared; None where it can."""

    def __init__(self, differences: Sequence[Difference], origins: Sequence[Origin]) -> None:
        self._differences = [d for d in differences if d.reach != "nothing"]
        self._trained = frozenset[str]().union(*(origin.trained for origin in origins))

    def __call__(self, table: str, column: str, row: Mapping[str, Any]) -> str | None:
        found = [d.what for d in self._differences if self._reaches(d, table, column, row)]
        return "; ".join([*found[:2], *([f"{len(found) - 2} more"] if len(found) > 2 else [])]) or None

    def _reaches(self, d: Difference, table: str, column: str, row: Mapping[str, Any]) -> bool:
        if d.splits and not d.splits & _splits_of(table, row):
            return False
        policy = row.get("policy", row.get("run"))
        if d.policy is not None:
            return d.policy in (policy, row.get("run"))
        is_policy = policy not in ("ceiling", "torch.compile")
        reached: dict[Reach, bool] = {
            "everything": True,
            "times": holds_times(table, column),
            "policies": is_policy,
            "trained": policy in self._trained or "run" in row,
            "search": table.startswith("search") and "strategy" in row,
            "ceiling": policy == "ceiling",
            "nothing": False,
        }
        return reached[d.reach]


def _splits_of(table: str, row: Mapping[str, Any]) -> set[str]:
    """The splits that a row is about; all held-out ones where it does not say."""
    if isinstance(split := row.get("split"), str):
        return {split}
    if _known(level := row.get("level")):
        return {f"level{level:g}"}
    return {table} if table.startswith("level") else {"level1", "level2", "level3", "unseen"}
