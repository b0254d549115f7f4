"""The page of a study, for what reads it and for what shows it in a browser."""

from __future__ import annotations

import pytest
from report_fixtures import make_study, write_report, write_study


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("study")
    study = make_study(2)
    return write_report(root, study, write_study(root, study)).read_text()
