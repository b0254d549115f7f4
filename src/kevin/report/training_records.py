"""What a trainer logged: ``metrics.jsonl``, one JSON object a line, with ``step`` and numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kevin.core.errors import DataError


def read_records(path: Path) -> list[dict[str, Any]]:
    """One record a step, in order. Raises DataError for a file that cannot be read, or a line that is no record."""
    try:
        lines = path.read_text().splitlines()
    except OSError as e:
        raise DataError(f"{path}: cannot be read ({e.strerror})") from None
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            record["step"] = int(record["step"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}, line {number}: not a JSON object with a step") from None
        records.append(record)
    return records
