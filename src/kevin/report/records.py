"""Rows of a table, one by one."""

from __future__ import annotations

from typing import Any

import pandas as pd


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Each row as column -> value."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
