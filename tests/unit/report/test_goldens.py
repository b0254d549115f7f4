"""Every table of stored answers, and what figures plot of them, as it was found once.

``KEVIN_GOLDENS=write`` stores them anew in place of comparing; what has changed is then read before it is committed.
"""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_fixtures import GOLDEN, golden_study

from kevin.core.files import read_table
from kevin.report import catalogue
from kevin.report.catalogue import FIGURES
from kevin.report.figures.look import theme
from kevin.report.published import make_published_tables
from kevin.report.scores import read_scores
from kevin.report.tables import read_baselines


def same(found: Path, stored: Path) -> None:
    """Text and counts exactly, other numbers nearly."""
    if os.environ.get("KEVIN_GOLDENS") == "write":
        stored.parent.mkdir(exist_ok=True)
        shutil.copy(found, stored)
    frames = (pd.read_csv(path) for path in (found, stored))
    pd.testing.assert_frame_equal(*frames, check_exact=False, rtol=1e-6, atol=1e-9, obj=stored.name)


def test_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seconds: every table of a study, in three forms. test_published.py makes those of one that ran."""
    study = golden_study()
    scores = read_scores([GOLDEN / "answers.csv"], study)
    monkeypatch.setattr(catalogue, "read_scores", lambda paths, study: scores)  # once, not for every table
    made = make_published_tables(GOLDEN, tmp_path, study)
    for path in made:
        same(path, GOLDEN / "tables" / path.name)
    assert {path.name for path in made} == {path.name for path in (GOLDEN / "tables").glob("*.csv")}


def drawn(name: str) -> pd.DataFrame:
    """What a figure plots."""
    study = golden_study()
    given: dict[str, Any] = {
        "scores": read_scores([GOLDEN / "answers.csv"], study),
        "baselines": read_baselines(GOLDEN / "baselines.csv"),
    }
    if FIGURES[name].reads == "table":
        given["table"] = read_table(GOLDEN / f"tables/{name}.csv")
    draw = getattr(import_module(f"kevin.report.figures.{FIGURES[name].module}"), name)
    with theme():
        data: pd.DataFrame = draw(*(given[part.strip("?")] for part in FIGURES[name].reads.split()), study)[1]
    return data


@pytest.mark.parametrize(
    "name",
    ["primary", "serial_scaling", "parallel_scaling", "serial_parallel_map", "fast_p", "outcomes", "search"],
)
def test_figures(tmp_path: Path, name: str) -> None:
    data = drawn(name)
    if name == "fast_p":  # of its hundred points the powers of two
        data = data[data["x"].isin([0.0, *2.0 ** np.arange(-4, 5)])]
    data.to_csv(tmp_path / f"{name}.csv", index=False)
    same(tmp_path / f"{name}.csv", GOLDEN / f"figures/{name}.csv")
