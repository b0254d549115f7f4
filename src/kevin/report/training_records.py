"""What a trainer left: ``metrics.jsonl``, one JSON object a line, with ``step`` and numbers; and the turns of steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kevin.core.errors import DataError
from kevin.core.texts import split_lines


def read_records(path: Path) -> list[dict[str, Any]]:
    """One record a step, in order. Raises DataError for a file that cannot be read, or a line that is no record."""
    try:
        text = path.read_text("utf-8")
    except OSError as e:
        raise DataError(f"{path}: cannot be read ({e.strerror})") from None
    records = []
    for number, line in enumerate(split_lines(text), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            record["step"] = int(record["step"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}, line {number}: not a JSON object with a step") from None
        records.append(record)
    return records


def read_step_turns(run: Path, steps: Sequence[int], columns: Sequence[str]) -> pd.DataFrame | None:
    """These columns of all turns of these steps of a run; None where a step's file is not there any more.

    Raises DataError for a file that cannot be read.
    """
    paths = [run / "turns" / f"step_{step:05d}.parquet" for step in steps]
    if not paths or not all(path.exists() for path in paths):
        return None
    frames: list[pd.DataFrame] = []
    for path in paths:
        try:
            frames.append(pq.read_table(path, columns=list(columns)).to_pandas())
        except (pa.ArrowInvalid, OSError) as e:
            raise DataError(f"{path}: cannot be read ({e}); train again: rm -r {run}") from None
    return pd.concat(frames, ignore_index=True)
