"""Baselines as files that people share: a table of every measured task, and KernelBench's own baseline JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kevin.core.errors import DataError
from kevin.core.files import write_text
from kevin.core.progress import Progress
from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import PROVENANCE, read_provenance, record_tables
from kevin.core.texts import strict_json
from kevin.core.types import Task
from kevin.judge.benchmarks.baselines import Baseline, measure_baselines

log = logging.getLogger(__name__)

_CHUNK = 20
"""Tasks that are compiled ahead together, and after which the files are written."""


def kernelbench_file(task: Task) -> str:
    """The file name that KernelBench gives a task: ``19_ReLU.py`` for ``kb/1/19`` named ``ReLU``."""
    number = task.id.rsplit("/", 1)[-1]
    return f"{number}_{task.name}.py"


def export_kernelbench(frame: pd.DataFrame, tasks: Sequence[Task], baseline: str) -> dict[str, dict[str, Any]]:
    """``{"level1": {"<file>.py": {"mean": ms, ...}}}`` of one baseline, as under KernelBench's ``results/timing``.

    Times are milliseconds at full precision. ``mean`` is the median, the statistic that is kept here; ``std`` is the
    interquartile range scaled to a normal's standard deviation.
    """
    chosen = frame[frame["baseline"] == baseline]
    rows: dict[str, dict[str, Any]] = {
        str(r["task_id"]): r for r in json.loads(chosen.to_json(orient="records", double_precision=15))
    }
    result: dict[str, dict[str, Any]] = {}
    for task in tasks:
        if row := rows.get(task.id):
            result.setdefault(f"level{task.level}", {})[kernelbench_file(task)] = {
                "mean": row["median_us"] / 1e3,
                "std": row["iqr_us"] / 1.349 / 1e3,
                "min": row["min_us"] / 1e3,
                "num_trials": int(row["num_samples"]),
                "hardware": row["device_name"],
            }
    return result


def import_kernelbench(path: Path, tasks: Sequence[Task]) -> pd.DataFrame:
    """Columns task_id, task_digest, baseline, median_us of the tasks that KernelBench's file holds.

    Its file has means in milliseconds, often rounded to three digits, and no quartiles: what it lacks is absent.

    Raises:
        DataError: the file is not KernelBench's JSON, or it holds none of the tasks.
    """
    try:
        levels = json.loads(path.read_text("utf-8"))
        known = {
            (level, name): float(entry["mean"]) for level, files in levels.items() for name, entry in files.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise DataError(f"{path}: not a baseline file of KernelBench ({type(e).__name__}: {e})") from None
    rows = [
        {"task_id": t.id, "task_digest": t.digest, "baseline": "eager", "median_us": known[key] * 1e3}
        for t in tasks
        if (key := (f"level{t.level}", kernelbench_file(t))) in known
    ]
    if not rows:
        raise DataError(f"{path}: holds none of the {len(tasks)} tasks; are they of another version of KernelBench?")
    return pd.DataFrame(rows)


def _set_name(tasks: Sequence[Task]) -> str:
    return "kernelbench" if all(t.origin == "kernelbench" for t in tasks) else "own"


def read_measured(
    folder: Path, tasks: Sequence[Task], baselines: Sequence[str], provenance: dict[str, Any]
) -> pd.DataFrame:
    """What `write_measured` wrote before into this folder, of any task; an empty frame when there is nothing.

    Raises:
        DataError: the file is not a table of baselines, or it was measured under another protocol, on another device
            or without one of these baselines, so that its rows cannot stand beside new ones.
    """
    path = folder / f"{_set_name(tasks)}_baselines.csv"
    if not path.exists():
        return pd.DataFrame({"task_id": [], "task_digest": [], "baseline": []})
    try:
        frame = pd.read_csv(path)
        found = set(frame["baseline"])
    except (OSError, ValueError, KeyError) as e:
        raise DataError(f"{path}: not a table of baselines ({e}); move it away or give another --out") from None
    if not (before := read_provenance(folder, path.name)):
        raise DataError(f"{folder / PROVENANCE}: says nothing of {path.name}; move it away or give another --out")
    if missing := set(baselines) - found:
        raise DataError(f"{path}: was measured without {', '.join(sorted(missing))}; give another --out")
    for name in ("protocol", "gpus", "cpu"):
        if before.get(name) != provenance.get(name):
            raise DataError(f"{path}: was measured with another {name.removesuffix('s')}; give another --out")
    return frame


def write_measured(folder: Path, frame: pd.DataFrame, tasks: Sequence[Task], provenance: dict[str, Any]) -> list[Path]:
    """``<set>_baselines.csv`` with all measurements, one ``kernelbench_<baseline>.json`` a baseline, and where from.

    ``<set>`` is ``kernelbench`` or ``own``, by where the tasks come from; a folder can hold both. JSON files keep what
    they hold of other tasks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = _set_name(tasks)
    contents = {f"{name}_baselines.csv": frame.to_csv(index=False)}
    if name == "kernelbench":
        for baseline in frame["baseline"].unique():
            file = f"kernelbench_{baseline}.json"
            exported = json.loads((folder / file).read_text("utf-8")) if (folder / file).exists() else {}
            for level, entries in export_kernelbench(frame, tasks, baseline).items():
                exported[level] = exported.get(level, {}) | entries
            contents[file] = strict_json(exported, indent=1) + "\n"
    for file, text in contents.items():
        write_text(folder / file, text)
    return [*(folder / file for file in contents), record_tables(folder, contents, provenance)]


def measure_stored(
    folder: Path,
    tasks: Sequence[Task],
    protocol: JudgeProtocol,
    baselines: tuple[Baseline, ...],
    provenance: dict[str, Any],
    *,
    compile_processes: int = 0,
) -> tuple[pd.DataFrame, list[Path]]:
    """Measure those of ``tasks`` that the folder does not hold, and write its files every few of them.

    Returns:
        All of its rows, and what was written.
    """
    frame = read_measured(folder, tasks, baselines, provenance)
    pending = [t for t in tasks if t.digest not in set(frame["task_digest"])]
    if len(pending) < len(tasks):
        log.info("%s: %d of %d tasks are done already", folder, len(tasks) - len(pending), len(tasks))
    written: list[Path] = []
    with Progress(len(pending), "baselines", "tasks") as bar:
        for start in range(0, len(pending), _CHUNK):
            chunk = pending[start : start + _CHUNK]
            measured = measure_baselines(
                chunk, protocol, baselines, on_task=lambda task: bar.update(), compile_processes=compile_processes
            )
            frame = pd.concat([frame, measured], ignore_index=True)
            written = write_measured(folder, frame, tasks, provenance)
    return frame, written


def medians(frame: pd.DataFrame) -> Iterator[str]:
    """What such a table says, in lines."""
    for name, rows in frame.groupby("baseline", sort=False):
        yield f"{name}: {len(rows)} tasks, median speedup over eager {rows['ratio_to_eager'].median():.2f}x"
