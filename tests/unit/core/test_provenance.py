"""The record of where a folder's tables come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_fixtures import ROOT

from kevin.core.errors import DataError
from kevin.core.provenance import PROVENANCE, read_provenance, record_tables


def test_tables_of_a_folder_share_a_record_and_keep_what_is_said_of_others(tmp_path: Path) -> None:
    assert read_provenance(tmp_path, "a.csv") == {}
    record_tables(tmp_path, ["a.csv", "b.csv"], {"commit": "1", "cpu": "A"})
    path = record_tables(tmp_path, ["b.csv"], {"commit": "2"})
    path.write_text(json.dumps(json.loads(path.read_text()) | {"isolation": "bubblewrap", "commit": "0"}))
    assert read_provenance(tmp_path, "a.csv") == {"isolation": "bubblewrap", "commit": "1", "cpu": "A"}
    assert read_provenance(tmp_path, "b.csv") == {"isolation": "bubblewrap", "commit": "2"}
    assert read_provenance(tmp_path) == read_provenance(tmp_path, "c.csv") == {"isolation": "bubblewrap", "commit": "0"}


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / PROVENANCE).write_text(text)
    with pytest.raises(DataError, match=PROVENANCE):
        record_tables(tmp_path, ["a.csv"], {})


def test_every_reference_result_says_where_it_comes_from() -> None:
    """By the nearest record, of its folder or one above; a record names tables that are there."""
    reference = ROOT / "results/reference"
    files = [path for path in reference.rglob("*") if path.is_file() and "published" not in path.parts]
    assert 40 < len(files) <= 90
    for path in files:
        if path.name == PROVENANCE:
            assert all((path.parent / table).is_file() for table in json.loads(path.read_text()).get("tables", {}))
        elif path.suffix == ".csv":
            holder = next(folder for folder in path.parents if (folder / PROVENANCE).is_file())
            assert {"created", "commit", "cpu", "gpus", "versions"} - {*read_provenance(holder, path.name)} <= {"gpus"}
