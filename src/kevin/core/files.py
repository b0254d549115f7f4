"""Files in, files out: atomic writes, and parquet with the study's provenance in its metadata."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pydantic import ValidationError

from kevin.core.errors import DataError, DiskFullError, KevinError, first_line
from kevin.core.fields import problem
from kevin.core.scratch import new_locked_file, remove_stale
from kevin.core.texts import strict_json
from kevin.core.types import Kernel, OpCall, Outcome, Task, TaskSpec, Turn

if TYPE_CHECKING:
    import pandas as pd  # where it is used: the judge alone does without it, and without pyarrow

SCHEMA_VERSION = 1
TRAIN_TURNS = "train_turns"
"""Kind of the files of a training's steps."""
_META_KEY = b"kevin"


T = TypeVar("T")
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says where a device is full, or a user's share of it used up."""
_PROBE_BYTES = 1 << 20


def disk_full(error: Exception) -> DiskFullError | None:
    """What a full device is told as; None for another error."""
    if not isinstance(error, OSError) or error.errno not in DISK_FULL:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return DiskFullError(f"{where}no space left on the device; free some and start again, what is finished is kept")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary sibling that becomes ``path`` on success and vanishes on failure. Parents are created.

    One that a killed process left is removed by the next to write ``path``. A stream is written itself. Raises OSError
    as `writing` does, and where a folder stands.
    """
    if is_stream(path):
        with writing(path):
            yield path
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name}."
    remove_stale(path.parent, prefix, path.suffix)
    try:
        fd, tmp = new_locked_file(path.parent, prefix, path.suffix)
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from None
    try:
        with writing(path):
            yield tmp
            tmp.chmod(0o644)
            tmp.replace(path)
    finally:
        tmp.unlink(missing_ok=True)
        os.close(fd)


def is_stream(path: Path) -> bool:
    """Whether it is a device, a pipe, or what a shell calls a program's output: not to be replaced by a file."""
    is_of_the_system = path.parent == Path("/dev") or str(path).startswith(("/dev/fd/", "/proc/"))
    return is_of_the_system or (path.exists() and not path.is_file() and not path.is_dir())


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder that takes the place of ``path`` on success and vanishes on failure. Raises OSError as `writing`."""
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with writing(path):
            yield partial
            shutil.rmtree(path, ignore_errors=True)
            partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around what writes ``path``, by whatever library: where the device is full, that is what is raised.

    Raises:
        OSError: with a number of `DISK_FULL` and the name of ``path``. Libraries tell of a full device in types and
            words of their own, so the system is asked for a little space there, before anything is tidied up.
    """
    try:
        yield
    except KevinError:
        raise
    except Exception as e:
        full = e if isinstance(e, OSError) and e.errno in DISK_FULL else no_space(path.parent)
        if full is not None:
            raise OSError(full.errno, full.strerror, str(path)) from e
        if isinstance(e, OSError) and e.filename is None:
            e.filename = str(path)
        raise


def link_or_copy(old: Path | str, new: Path | str) -> None:
    """The same file under another name; a copy of it on a file system that has no links."""
    try:
        os.link(old, new)
    except OSError:
        shutil.copy2(old, new)


def check_space(path: Path) -> None:
    """Before what cannot tell of a full device: raises OSError as `writing`."""
    if (full := no_space(path.parent)) is not None:
        raise OSError(full.errno, full.strerror, str(path))


def no_space(folder: Path) -> OSError | None:
    """What the system says where a folder's device is full; None where there is room for a mebibyte."""
    try:
        with tempfile.TemporaryFile(dir=folder) as f:
            f.write(bytes(_PROBE_BYTES))
            f.flush()
            os.fsync(f.fileno())
    except OSError as e:
        return e if e.errno in DISK_FULL else None
    return None


def append_line(path: Path, line: str) -> None:
    """Add one line to a log of JSON lines, in place of one that a kill cut short.

    A kill may leave the last line cut short, which `read_lines` expects. Raises OSError as `writing` does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path), path.open("a+b") as f:
        if f.tell() and not _ends_line(f):
            f.seek(0)
            f.truncate(f.read().rfind(b"\n") + 1)
        f.write(line.encode() + b"\n")


def _ends_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def read_lines(path: Path, parse: Callable[[str], T], advice: str) -> list[T]:
    """The lines of such a log, each parsed, without a last one that a kill cut short; none where there is no file.

    Raises:
        DataError: a line that cannot be parsed, with ``advice``.
    """
    data = path.read_bytes() if path.exists() else b""
    values = []
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            values.append(parse(line.decode()))
        except (ValueError, KeyError, TypeError) as e:
            raise DataError(f"{path}: damaged (line {number}: {first_line(e)}); {advice}") from None
    return values


def parse_object(line: str) -> dict[str, Any]:
    """A line of JSON, for `read_lines`. Raises ValueError."""
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError(f"an object is expected, not {line[:40]}")
    return value


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as tmp:
        tmp.write_text(text, "utf-8")


def write_csv(path: Path, frame: pd.DataFrame) -> None:
    with atomic_path(path) as tmp:
        frame.to_csv(tmp, index=False)


_NAMES = (
    *("policy", "label", "run", "strategy", "against", "seed_of", "variant", "row", "system", "author", "way"),
    *("task_id", "task", "name", "split", "serial", "parallel", "hardware", "device_name", "note", "diff", "policies"),
)
"""Columns whose values people choose, or say: ``007``, ``NA`` and ``1e5`` are text in them."""


def read_table(path: Path) -> pd.DataFrame:
    """A table as `write_csv` wrote it. Raises DataError when it cannot be read."""
    import pandas as pd

    try:
        return pd.read_csv(path, dtype=dict.fromkeys(_NAMES, str), keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as e:
        raise DataError(f"{path}: cannot be read as a table ({e}); make it again with: snakemake {path}") from None


def write_parquet(
    path: Path, frame: pd.DataFrame, kind: str, provenance: dict[str, Any], compression: str = "snappy"
) -> None:
    """Write ``frame`` with its kind, schema version and provenance in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False)
    meta = {"kind": kind, "schema_version": SCHEMA_VERSION, **provenance}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _META_KEY: strict_json(meta).encode()})
    with atomic_path(path) as tmp:
        pq.write_table(table, tmp, compression=compression)


def read_parquet(path: Path, kind: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Frame and metadata. Raises DataError for a missing, damaged or foreign file, with the fix."""
    with _opened(path, kind) as (file, meta):
        return file.read().to_pandas(), meta


def read_metadata(path: Path, kind: str) -> dict[str, Any]:
    """What stands in a file beside its rows. Raises DataError as `read_parquet`."""
    with _opened(path, kind) as (_, meta):
        return meta


def read_columns(path: Path, kind: str, columns: list[str]) -> pd.DataFrame:
    """Some columns of a file. Raises DataError as `read_parquet`."""
    with _opened(path, kind) as (file, _):
        frame: pd.DataFrame = file.read(columns=columns).to_pandas()
        return frame


def read_rows(path: Path, kind: str, chosen: Any) -> pd.DataFrame:
    """The rows where ``chosen``, an array of booleans as long as the file, is true; the file is read piece by piece.

    Raises DataError as `read_parquet`.
    """
    import pyarrow as pa

    with _opened(path, kind) as (file, _):
        pieces, start = [], 0
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            pieces.append(batch.filter(pa.array(chosen[start : start + len(batch)])))
            start += len(batch)
        frame: pd.DataFrame = pa.Table.from_batches(pieces, schema=file.schema_arrow).to_pandas()
        return frame


_ROWS_AT_ONCE = 512


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            meta = json.loads((file.schema_arrow.metadata or {}).get(_META_KEY, b"{}"))
            if meta.get("kind") != kind:
                raise DataError(f"{path}: holds {meta.get('kind') or 'something else'}, expected {kind}")
            if meta.get("schema_version") != SCHEMA_VERSION:
                raise DataError(
                    f"{path}: schema version {meta.get('schema_version')}, this code writes {SCHEMA_VERSION}"
                )
            yield file, meta
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; make it with: snakemake {path}") from None
    except (pa.ArrowInvalid, OSError) as e:
        raise DataError(
            f"{path}: cannot be read ({e}); in a study of your own delete it, and make it again: snakemake {path}"
        ) from None


# --- tasks ------------------------------------------------------------------------------------------------------


def write_tasks(path: Path, tasks: Iterable[tuple[Task, str]], provenance: dict[str, Any]) -> None:
    """Pairs of task and split (``train``, ``level1``, ...), one row each. Raises DataError for an id given twice."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for task, split in tasks:
        if task.id in seen:
            raise DataError(f"{path}: task {task.id} was given twice; a task has one id and is in one split")
        seen.add(task.id)
        rows.append(
            {
                "task_id": task.id,
                "split": split,
                "level": task.level,
                "name": task.name,
                "origin": task.origin,
                "source": task.source,
                "ops": strict_json([op.model_dump() for op in task.ops]),
                "flaws": strict_json(task.flaws),
                "spec": task.spec.model_dump_json() if task.spec else None,
                "digest": task.digest,
            }
        )
    write_parquet(path, pd.DataFrame(rows), "tasks", provenance)


def read_held_out(path: Path) -> list[Task]:
    """Tasks of every split but ``train``, in file order: those that tables are made of."""
    frame, _ = read_parquet(path, "tasks")
    splits = [split for split in frame["split"].unique() if split != "train"]
    return [task for split in splits for task in _tasks(frame[frame["split"] == split])]


def read_tasks(path: Path, split: str | None = None) -> list[Task]:
    """Tasks of one split, or all, in file order. Raises DataError for an unknown split, and a task that was edited."""
    frame, _ = read_parquet(path, "tasks")
    if split is not None:
        known = sorted(frame["split"].unique())
        if split not in known:
            raise DataError(f"{path}: no split {split!r}; there are {', '.join(known)}")
        frame = frame[frame["split"] == split]
    tasks = _tasks(frame)
    if edited := [task.id for task, given in zip(tasks, frame["digest"], strict=True) if task.digest != given]:
        raise DataError(f"{path}: task {edited[0]} is not what its digest says")
    return tasks


def _tasks(frame: pd.DataFrame) -> list[Task]:
    return [
        Task(
            id=row["task_id"],
            level=row["level"],
            name=row["name"],
            source=row["source"],
            ops=tuple(OpCall.model_validate(op) for op in json.loads(row["ops"])),
            origin=row["origin"],
            flaws=tuple(json.loads(row["flaws"])),
            spec=TaskSpec.model_validate_json(row["spec"]) if isinstance(row["spec"], str) else None,
        )
        for row in frame.to_dict("records")
    ]


# --- turns ------------------------------------------------------------------------------------------------------

_KERNEL_FIELDS = ("dialect", "language", "source")


def turns_frame(turns: Iterable[Turn]) -> pd.DataFrame:
    """One row a turn; the kernel's fields become columns ``kernel_dialect``, ``kernel_language``, ``kernel_source``."""
    import pandas as pd

    rows = []
    for t in turns:
        row = t.model_dump(mode="json", exclude={"kernel"})
        for f in _KERNEL_FIELDS:
            row[f"kernel_{f}"] = getattr(t.kernel, f) if t.kernel else None
        rows.append(row)
    columns = [c for c in Turn.model_fields if c != "kernel"] + [f"kernel_{f}" for f in _KERNEL_FIELDS]
    frame = pd.DataFrame(rows, columns=columns)
    frame["speedup"] = frame["speedup"].astype("float64")
    return frame


def turns_from_frame(frame: pd.DataFrame, origin: Path | str = "turns") -> list[Turn]:
    """Raises DataError for a row that is no turn, naming it. ``origin``: where the rows are from."""
    turns = []
    for number, record in enumerate(frame.to_dict("records"), start=1):
        try:
            turns.append(_turn(record))
        except KeyError as e:
            raise DataError(f"{origin}: no column {e.args[0]!r}: not turns of this version") from None
        except ValueError as e:
            what = problem(e.errors()[0]) if isinstance(e, ValidationError) else e
            raise DataError(f"{origin}, row {number}: not a turn of this version: {what}") from None
    return turns


def _turn(record: dict[Hashable, Any]) -> Turn:
    """Raises KeyError or ValueError for a row that is no turn."""
    import pandas as pd

    row = {str(k): (None if pd.isna(v) else v) for k, v in record.items()}
    parts = {f: row.pop(f"kernel_{f}") for f in _KERNEL_FIELDS}
    kernel = Kernel.model_validate(parts) if parts["source"] is not None else None
    outcome = row.pop("outcome")
    known = {k: v for k, v in row.items() if k in Turn.model_fields}
    return Turn.model_validate({**known, "kernel": kernel, "outcome": Outcome(outcome) if outcome else None})


def write_turns(path: Path, turns: Iterable[Turn], provenance: dict[str, Any]) -> None:
    write_parquet(path, turns_frame(turns), "turns", provenance)


def read_turns(path: Path) -> tuple[list[Turn], dict[str, Any]]:
    """Raises DataError for a row that is no turn, naming it."""
    frame, meta = read_parquet(path, "turns")
    return turns_from_frame(frame, path), meta


def read_train_turns(run: Path) -> list[tuple[int, Turn, float | None]]:
    """Step, turn and its score, of all that a training answered, in order; none before its first step has ended.

    Raises:
        DataError: a row is no turn; it is named.
    """
    import pandas as pd

    found = []
    for path in sorted((run / "turns").glob("step_*.parquet")):
        frame, _ = read_parquet(path, TRAIN_TURNS)
        scores = [None if pd.isna(s) else float(s) for s in frame["score"]]
        turns = turns_from_frame(frame, path)
        found += [(int(path.stem[5:]), turn, score) for turn, score in zip(turns, scores, strict=True)]
    return found


# --- verdicts ---------------------------------------------------------------------------------------------------


def verdict_path(store: Path, key: str) -> Path:
    """Where a verdict store keeps the verdict of this key."""
    return store / key[:2] / f"{key}.json"
