"""How far a long piece of work is, in lines of a log."""

import logging

import pytest

from kevin.core.progress import progress


def test_lines_for_a_log(caplog, monkeypatch):
    monkeypatch.setattr("kevin.core.progress.LINE_INTERVAL_S", 0.0)
    with caplog.at_level(logging.INFO), progress(3, "judge", "kernels") as bar:
        bar.update()
        bar.note("1 correct")
        bar.update(2)
    first, last = (r.getMessage() for r in caplog.records)
    assert first.startswith("judge: 1/3 kernels")
    assert "left" in first
    assert last.startswith("judge: 3/3 kernels")
    assert last.endswith("1 correct")


def test_iteration_counts_and_ends_also_when_left_early(caplog):
    with caplog.at_level(logging.INFO):
        assert list(progress("abc", "read", "files")) == ["a", "b", "c"]
        for _ in progress([1, 2, 3], "half", "files"):
            break
    assert [r.getMessage().split(",")[0] for r in caplog.records] == ["read: 3/3 files", "half: 0/3 files"]


def test_a_number_cannot_be_iterated():
    with pytest.raises(TypeError, match="call update"):
        list(progress(3, "x", "y"))
