"""The record of where a folder's tables come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
