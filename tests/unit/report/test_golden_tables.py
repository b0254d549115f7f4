"""Every table of a stored file of answers, as it was found once. The answers are invented: of 13 tasks, by two policies
and the ceiling.

``KEVIN_STORE_TABLES=1 pytest tests/unit/report/test_golden_tables.py`` stores the tables again, where a change is
meant.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import make_study

from kevin.report.catalogue import OF_SCORES, SPLITS, make_table

GOLDEN = Path(__file__).with_name("golden")
NAMES = [name for name in OF_SCORES if name not in set(SPLITS) - {"level1", "level2"}]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_the_one_that_is_stored(tmp_path: Path, name: str) -> None:
    answers, baselines = GOLDEN / "answers.csv", GOLDEN / "baselines.csv"
    made = make_table(name, tmp_path / f"{name}.csv", study=make_study(2), scores=[answers], baselines=baselines)
    if os.environ.get("KEVIN_STORE_TABLES"):
        shutil.copy(made, GOLDEN / "tables")
    found, stored = (pd.read_csv(path) for path in (made, GOLDEN / f"tables/{name}.csv"))
    pd.testing.assert_frame_equal(found, stored, check_exact=False, rtol=1e-6, atol=1e-9)
