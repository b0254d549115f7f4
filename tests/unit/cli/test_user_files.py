"""Sources as a person's editor saves them, wherever they come in: a mark, another encoding, a coding line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_fixtures import REFERENCE, kevin_here

from kevin import Outcome
from kevin.api.pairs import make_protocol, make_task, text_of
from kevin.cli import judge
from kevin.core.candidate import make_kernel
from kevin.judge.evaluate import early_verdict
from kevin.judge.store import VerdictStore
from kevin.serve.settings import task_digests
from kevin.tasks.format import task_from_file
from kevin.tasks.kernelbench import load_folder

TEXTS = {
    "utf-8-sig": f"# \u2192\n{REFERENCE}",
    "utf-16": f"# \u2192\n{REFERENCE}",
    "latin-1": f"# -*- coding: latin-1 -*- \u00e9\n{REFERENCE}",
}


@pytest.fixture(params=list(TEXTS))
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A module, and its text."""
    path = tmp_path / "level1/1_Mine.py"
    path.parent.mkdir()
    path.write_text(TEXTS[request.param], request.param)
    return path, TEXTS[request.param]


def test_whoever_reads_a_source_reads_its_text(saved: tuple[Path, str]) -> None:
    path, text = saved
    assert text_of(path) == (text, str(path))
    assert [task.source for task in load_folder(path.parents[1], (1,))] == [text]
    assert task_from_file(path).source == text
    assert task_digests(path.parent) == {make_task(text).digest}


def test_the_command_reads_reference_and_kernel(
    saved: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, text = saved
    found: list[str] = []

    def judge_new(task_file: Path, kernel: Any, protocol: Any) -> Any:
        found.append(kernel.source)
        told = {"outcome": Outcome.INCORRECT, "reason": "told", "message": ""}
        return early_verdict(make_task(text), kernel, protocol, "here", **told)

    monkeypatch.setattr(judge, "_judge_new", judge_new)
    run = kevin_here("judge", "--task-file", path, "--kernel", path, "--store", tmp_path / "store")
    assert run.returncode == 0 and found == [text], run.stderr
    kernel = make_kernel(text, str(path), "auto", make_protocol(None))
    [verdict] = [v for v in VerdictStore(tmp_path / "store") if v.kernel_digest == kernel.digest]
    assert verdict.task_digest == make_task(text).digest
