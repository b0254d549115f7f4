"""Two studies' tables, number by number: which differ, in that their 95 % intervals do not overlap.

Of two estimates that are equally uncertain this is a difference of 2.8 standard errors or more: of 200 numbers of like
studies about one is apart by chance. Where both studies have the same tasks, the rule misses differences rather than
inventing them. A number without an interval of some width is compared with its like alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from kevin.core.errors import DataError, first_line
from kevin.core.files import read_table
from kevin.core.identity import differences
from kevin.core.provenance import machine_names, read_provenance
from kevin.report.forms import records
from kevin.report.paper import OURS

DIFFERS, AGREES, LEFT_OUT = "differs", "agrees", "not compared"
KEYS = ("source", "system", "policy", "run", "against", "strategy", "baseline", "subset", "split", "level", "task_id",
        "seed", "error", "metric", "k", "turn", "kernels")  # fmt: skip
"""Columns that say what a row is about."""
SEEDS = "num_seeds"
"""What tells several seeds of a policy together from its first one, where no ``seed`` does."""
CONDITIONS = ("turns", "trajectories", "budget", "num_tasks")
"""Columns under which a row was measured; the first ones say what it is about where nothing else tells rows apart."""
_SKIPPED = ("label", "note", "level", "flawed")
_TIMES = ("speedup", "geomean", "fast_", "faster", "slower", "score", "gain", "seconds", "per_minute", "eager",
          "over_first", "over_reference")  # fmt: skip
COLUMNS = ["table", "row", "column", "status", "stored", "stored_low", "stored_high", "results", "results_low",
           "results_high", "reason"]  # fmt: skip


class Origin(NamedTuple):
    """Where a folder of results comes from, as far as files there tell."""

    config: dict[str, Any]
    provenance: dict[str, Any]
    splits: dict[str, dict[str, str]]
    """Of each split its tasks, by id: name and digest."""

    @property
    def hardware(self) -> str | None:
        device = (self.config.get("judge") or {}).get("device") or "cuda"
        return ", ".join(machine_names(self.provenance, device)) or None if self.provenance else None

    @property
    def protocol(self) -> int | None:
        sections = (self.config.get("judge"), self.provenance.get("protocol"))
        return next((s["version"] for s in sections if isinstance(s, dict) and "version" in s), None)


class Comparison(NamedTuple):
    origins: list[str]
    """How the two came about differently."""
    cells: pd.DataFrame
    """`COLUMNS`, one row a number."""

    def of(self, status: str) -> pd.DataFrame:
        return self.cells[self.cells["status"] == status]


def compare(stored: Path, results: Path, *, anyway: bool = False) -> Comparison:
    """Compare two folders of results or of tables, or two tables.

    Numbers that hold a time are left out across hardware, rows of a split across other tasks, and everything across
    versions of the judging protocol, unless ``anyway``. Raises DataError for a path that is no folder and no table, or
    rows of a table that cannot be told apart.
    """
    tables = [_tables(path) for path in (stored, results)]
    if stored.is_file() and results.is_file():
        tables[1] = dict(zip(tables[0], tables[1].values(), strict=True))
    elif stored.is_file() or results.is_file():
        wanted = tables[0].keys() if stored.is_file() else tables[1].keys()
        tables = [{name: path for name, path in own.items() if name in wanted} for own in tables]
    origins = (read_origin(stored), read_origin(results))
    cells: list[dict[str, Any]] = []
    for name in dict.fromkeys([*tables[0], *tables[1]]):
        if name in tables[0] and name in tables[1]:
            cells += _table_cells(name, [own[name] for own in tables], () if anyway else origins)
        else:
            cells.append({"table": name, "row": "", "column": "", **_absent("table", name in tables[0])})
    frame = pd.DataFrame([{"reason": ""} | cell for cell in cells], columns=COLUMNS)
    return Comparison(list(origin_differences(*origins)), frame)


def _tables(path: Path) -> dict[str, Path]:
    if path.is_file():
        return {path.stem: path}
    if not path.is_dir():
        raise DataError(f"{path}: no such folder or table; give a folder of results, or a .csv of its tables")
    files = sorted((path / "tables").glob("*.csv")) or sorted(path.glob("*.csv"))
    if not files:
        raise DataError(f"{path}: holds no tables (tables/*.csv or *.csv); make them with: snakemake")
    return {file.stem: file for file in files}


# --- numbers ------------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]


def _table_cells(name: str, paths: Sequence[Path], origins: Sequence[Origin]) -> Iterator[dict[str, Any]]:
    """Each number of both tables."""
    frames = [read_table(path) for path in paths]
    keys = _row_keys(frames, paths)
    one, other = (dict(zip(_key_values(f, keys), records(f), strict=True)) for f in frames)
    skipped = {*keys, *CONDITIONS, *_SKIPPED}
    columns = [c for c in frames[0].columns if c not in skipped and not c.endswith(("_low", "_high"))]
    for key in dict.fromkeys([*one, *other]):
        about = ", ".join(f"{k} {v}" for k, v in zip(keys, key, strict=True) if v != "" and (k, v) != ("source", OURS))
        head = {"table": name, "row": about, "column": ""}
        if key not in one or key not in other:
            yield head | _absent("row", key in one)
            continue
        for column in columns:
            cell = head | {"column": column}
            a, b = (_estimate(row, column) for row in (one[key], other[key]))
            if column not in other[key]:
                yield cell | _absent("column", True)
            elif a is not None or b is not None:
                conditions = _conditions(one[key], other[key], keys)
                yield _blocked(cell | _judged(a, b, conditions), one[key], origins)


def _row_keys(frames: Sequence[pd.DataFrame], paths: Sequence[Path]) -> list[str]:
    """Columns of both tables that tell the rows of each apart. Raises DataError when none do."""
    shared = [column for column in frames[0].columns if column in frames[1].columns]
    keys = [column for column in KEYS if column in shared]
    texts = [c for c in shared if c not in (*keys, *_SKIPPED) and not pd.api.types.is_numeric_dtype(frames[0][c])]
    for more in [*(c for c in (SEEDS, *CONDITIONS) if c in shared), *texts]:
        if all(len(set(_key_values(f, keys))) == len(f) for f in frames):
            break
        keys.append(more)
    for frame, path in zip(frames, paths, strict=True):
        if len(set(_key_values(frame, keys))) < len(frame):
            raise DataError(f"{path}: two rows have the same {', '.join(keys) or 'columns'}; make the table again")
    return keys


def _key_values(frame: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, ...]]:
    def text(value: Any) -> str:
        return "" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value)

    return [tuple(text(row[key]) for key in keys) for row in frame.to_dict("records")]


def _estimate(row: Row, column: str) -> tuple[float, float, float] | None:
    """A number and the ends of its interval, which are itself where it has none."""
    value = row.get(column)
    if not isinstance(value, int | float) or math.isnan(value):
        return None
    gain = column.endswith("_gain") and "ci_low" in row
    low, high = (row.get(f"ci{end}" if gain else f"{column}{end}", value) for end in ("_low", "_high"))
    return (value, value, value) if pd.isna(low) or pd.isna(high) else (value, low, high)


def _conditions(one: Row, other: Row, keys: Sequence[str]) -> str:
    """In what the two rows were not measured alike."""
    if one.get("source", OURS) != OURS:
        return ""
    shared = [c for c in CONDITIONS if c not in keys and c in one and c in other]
    pairs = [(c, one[c], other[c]) for c in shared if pd.notna(one[c]) and pd.notna(other[c])]
    return "; ".join(f"{name} {a:g} against {b:g}" for name, a, b in pairs if a != b)


def _judged(
    a: tuple[float, float, float] | None, b: tuple[float, float, float] | None, conditions: str
) -> dict[str, Any]:
    cells = dict(zip(COLUMNS[4:7], a or (), strict=False)) | dict(zip(COLUMNS[7:10], b or (), strict=False))
    if a is None or b is None:
        return cells | {"status": LEFT_OUT, "reason": "only one of the two has a number there"}
    if conditions:
        return cells | {"status": LEFT_OUT, "reason": conditions}
    if math.isclose(a[0], b[0], rel_tol=1e-9, abs_tol=1e-12):
        return cells | {"status": AGREES}
    if a[1] == a[2] or b[1] == b[2]:
        return cells | {"status": LEFT_OUT, "reason": "an interval has no width, and the values are not the same"}
    return cells | {"status": DIFFERS if a[1] > b[2] or b[1] > a[2] else AGREES}


def _absent(what: str, in_stored: bool) -> dict[str, str]:
    where = ("stored ones", "results") if in_stored else ("results", "stored ones")
    return {"status": LEFT_OUT, "reason": f"the {what} is in the {where[0]} alone, not in the {where[1]}"}


# --- where they come from -------------------------------------------------------------------------------------------


def holds_times(table: str, column: str) -> bool:
    """Whether a number is a time or follows from one, so that other hardware has others."""
    return table == "step_time" or (not column.startswith("fast_0_") and any(part in column for part in _TIMES))


def _blocked(cell: dict[str, Any], row: Row, origins: Sequence[Origin]) -> dict[str, Any]:
    """Not compared where the two studies are not alike in what the number depends on."""
    if not origins or row.get("source", OURS) != OURS or cell["status"] == LEFT_OUT:
        return cell
    one, other = origins
    split = row.get("split", cell["table"])
    changed = {name for name in one.splits.keys() & other.splits.keys() if one.splits[name] != other.splits[name]}
    reasons = {
        "another version of the judging protocol": _differ(one.protocol, other.protocol),
        "other hardware": _differ(one.hardware, other.hardware) and holds_times(cell["table"], cell["column"]),
        "other tasks": bool(changed - {"train"}) if split not in one.splits else split in changed,
    }
    found = "; ".join(reason for reason, is_so in reasons.items() if is_so)
    return cell | {"status": LEFT_OUT, "reason": found} if found else cell


def _differ(a: Any, b: Any) -> bool:
    """What is not known of one of the two is said, and keeps nothing from being compared."""
    return a is not None and b is not None and a != b


def read_origin(path: Path) -> Origin:
    """Of a folder, or of the folder that a table lies in. Raises DataError for a file that is there and unreadable."""
    folder = path if path.is_dir() else path.parent
    if path.is_file() and folder.name == "tables":
        folder = folder.parent
    provenance = read_provenance(folder, "" if path.is_dir() else path.name) or _metadata(folder)
    return Origin(_mapping(folder / "config.yaml"), provenance, _mapping(folder / "split.yaml").get("parts") or {})


def _mapping(path: Path) -> dict[str, Any]:
    """A YAML file's keys; none where there is no file."""
    try:
        found = yaml.safe_load(path.read_text("utf-8")) if path.exists() else {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise DataError(f"{path}: cannot be read ({first_line(e)}); restore it or take it away") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a mapping of keys at the top level; restore it or take it away")
    return found


def _metadata(folder: Path) -> dict[str, Any]:
    """Provenance of the first parquet file of what was measured."""
    import pyarrow.parquet as pq

    for path in (
        p for pattern in ("baselines", "scores", "published", ".") for p in folder.glob(f"{pattern}/*.parquet")
    ):
        raw = (pq.read_schema(path).metadata or {}).get(b"kevin")
        if raw is not None:
            return dict(json.loads(raw))
    return {}


def origin_differences(stored: Origin, results: Origin) -> Iterator[str]:
    """All ways in which the two are not the same, for people; what is not known of one of them among these."""
    one, other = (
        {
            "hardware": own.hardware,
            "judging protocol": own.protocol,
            "commit": own.provenance.get("commit"),
            "version": own.provenance.get("versions") or {},
            "configuration": own.config,
        }
        for own in (stored, results)
    )
    yield from differences(one, other)
    for split in sorted(stored.splits.keys() & results.splits.keys()):
        ours, theirs = stored.splits[split].items(), results.splits[split].items()
        if ours != theirs:
            yield f"tasks of {split}: {len(ours - theirs)} of the {len(ours)} are not among the other's {len(theirs)}"
