"""Goldens: files below ``tests/golden`` with what was once found, beside which a test lays what it finds now.

``KEVIN_GOLDENS=write`` writes them anew in place of comparing; what has changed is then read before it is committed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kevin.core.identity import STEP_VERSIONS

GOLDEN = Path(__file__).parents[1] / "golden"


def _recorded(name: str, found: str) -> str:
    path = GOLDEN / name
    if os.environ.get("KEVIN_GOLDENS") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found)
    return path.read_text()


def same_text(name: str, found: str) -> None:
    assert found == _recorded(name, found), name


def same_losses(step: str, name: str, found: dict[str, list[float]], rel: float, abs_: float = 0.0) -> None:
    """Losses of one step of a study: equal within ``rel`` of the recorded value, or ``abs_`` where that is more.

    Other losses are written only with another number in ``STEP_VERSIONS``: models that were trained before would stand
    beside what is made of new ones.
    """
    path, wanted = GOLDEN / name, {"version": STEP_VERSIONS[step], **found}
    if os.environ.get("KEVIN_GOLDENS") == "write" and _version(path) != wanted["version"]:
        path.write_text(json.dumps(wanted, indent=1) + "\n")
    recorded = json.loads(path.read_text())
    assert recorded.keys() == wanted.keys(), name
    for column, values in wanted.items():
        hint = f"{name}: {column}; where it shall be another, raise STEP_VERSIONS[{step!r}] and write it anew"
        assert values == pytest.approx(recorded[column], rel=rel, abs=abs_), hint


def _version(path: Path) -> int | None:
    return json.loads(path.read_text()).get("version") if path.exists() else None
