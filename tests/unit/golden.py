"""Goldens: files below ``tests/golden`` with what was once found, beside which a test lays what it finds now.

``KEVIN_GOLDENS=write`` writes them anew in place of comparing; what has changed is then read before it is committed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"


def _recorded(name: str, found: str) -> str:
    path = GOLDEN / name
    if os.environ.get("KEVIN_GOLDENS") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found)
    return path.read_text()


def same_text(name: str, found: str) -> None:
    assert found == _recorded(name, found), name


def same_numbers(name: str, found: dict[str, list[float]], rel: float, abs_: float = 0.0) -> None:
    """Columns of numbers: equal within ``rel`` of the recorded value, or ``abs_`` where that is more."""
    recorded = json.loads(_recorded(name, json.dumps(found, indent=1) + "\n"))
    assert found.keys() == recorded.keys(), name
    for column, values in found.items():
        assert values == pytest.approx(recorded[column], rel=rel, abs=abs_), f"{name}: {column}"
