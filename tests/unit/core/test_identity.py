"""Files by their content, and work that goes on only where its settings are the same."""

import hashlib
import os

import pytest

from kevin.core import identity
from kevin.core.errors import DataError
from kevin.core.identity import content_digests, differences, read_identity, set_aside


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "digests.json"


def test_a_file_and_a_folder(tmp_path, cache):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    for name in ("config.json", "sub/weights", ".git/HEAD", ".hidden"):
        (folder / name).write_text(name)
    expected = {name: sha256(name.encode()) for name in ("config.json", "sub/weights")}
    assert content_digests(folder, cache) == expected
    assert content_digests(folder / "config.json", cache) == {"config.json": expected["config.json"]}
    assert content_digests(tmp_path / "missing", cache) == {}
    assert not cache.exists(), "small files are read each time"


def test_large_files_are_read_again_only_when_they_changed(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(identity, "_REMEMBERED_BYTES", 4)
    read = []
    real = identity._sha256
    monkeypatch.setattr(identity, "_sha256", lambda file: read.append(file.name) or real(file))
    weights = tmp_path / "weights"
    for data, times in ((b"first", 1), (b"first", 1), (b"other", 2), (b"longer", 3)):
        if read == [] or weights.read_bytes() != data:
            weights.write_bytes(data)
            os.utime(weights, ns=(len(read), len(read)))
        assert content_digests(weights, cache) == {"weights": sha256(data)}
        assert len(read) == times
    assert len(cache.read_text().split(weights.name)) == 2, "what it held before is forgotten"
    cache.write_text("damaged")
    assert content_digests(weights, cache) == {"weights": sha256(b"longer")}


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "_REMEMBERED_BYTES", 1)
    (tmp_path / "file").write_text("x")
    assert content_digests(tmp_path / "file", tmp_path / "file" / "cache.json") == {"file": sha256(b"x")}


def test_differences_name_keys_and_values_but_never_digests():
    old = {"a": {"x": 1, "same": 2}, "files": {"w": sha256(b"1"), "v": sha256(b"1")}, "long": "/data/models/v1" * 9}
    new = {"a": {"x": 2, "same": 2}, "files": {"w": sha256(b"2"), "u": sha256(b"1")}, "long": old["long"] + "2"}
    lines = list(differences(old, new))
    assert lines[:4] == [
        "a.x: was 1, is 2",
        "files.u: is new",
        "files.v: is gone",
        "files.w: its content has changed",
    ]
    was, now = lines[4].removeprefix("long: was ").split(", is ")
    assert was != now
    assert list(differences(new, new)) == []


def test_a_damaged_identity_is_named(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match=r"run\.json: damaged .*rm -r"):
        read_identity(tmp_path / "run.json")


def test_setting_aside_never_overwrites(tmp_path):
    for number in (1, 2):
        (tmp_path / "turns.parquet").write_text(str(number))
        (tmp_path / "run.v1").mkdir()
        assert set_aside(tmp_path / "turns.parquet").name == f"turns.old-{number}.parquet"
        assert set_aside(tmp_path / "run.v1").name == f"run.v1.old-{number}"
    assert (tmp_path / "turns.old-1.parquet").read_text() == "1"
