"""How far a long piece of work is, in lines of a log."""

import logging

import pytest

from kevin.core.progress import Progress


def test_lines_for_a_log(caplog, monkeypatch):
    monkeypatch.setattr("kevin.core.progress.LINE_INTERVAL_S", 0.0)
    with caplog.at_level(logging.INFO), Progress(3, "judge", "kernels") as bar:
        bar.update()
        bar.note("1 correct")
        bar.update(2)
    first, last = (r.getMessage() for r in caplog.records)
    assert first.startswith("judge: 1/3 kernels")
    assert "left" in first
    assert last.startswith("judge: 3/3 kernels")
    assert last.endswith("1 correct")
    with caplog.at_level(logging.INFO), pytest.raises(KeyboardInterrupt), Progress(3, "half", "files"):
        raise KeyboardInterrupt
    assert caplog.messages[-1].startswith("half: 0/3 files")
