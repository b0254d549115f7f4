"""Which isolation is taken, and who says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import SandboxError
from kevin.judge import sandbox
from kevin.judge.pool import isolation_environment
from kevin.judge.sandbox import Isolation, detect_isolation, toolchain


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    detect_isolation.cache_clear()
    yield
    detect_isolation.cache_clear()


def test_an_unknown_name_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEVIN_ISOLATION", "docker")
    with pytest.raises(SandboxError, match="'docker'; it can be auto, apptainer, bubblewrap"):
        detect_isolation()


def test_what_is_asked_for_is_not_replaced_by_something_weaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEVIN_ISOLATION", "bubblewrap")
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    with pytest.raises(SandboxError, match="bubblewrap is asked for"):
        detect_isolation()


def test_none_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEVIN_ISOLATION", "none")
    assert detect_isolation() is Isolation.NONE


def test_a_configuration_reaches_the_workers(tmp_path: Path) -> None:
    assert isolation_environment(JudgePoolConfig()) == {}
    found = isolation_environment(JudgePoolConfig(isolation="apptainer", image=str(tmp_path / "judge.sif")))
    assert found == {"KEVIN_ISOLATION": "apptainer", "KEVIN_JUDGE_IMAGE": str(tmp_path / "judge.sif")}


def test_builds_of_another_image_are_other_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert toolchain(Isolation.BUBBLEWRAP) == ()
    folders = [tmp_path / "a", tmp_path / "b"]
    found = []
    for folder in folders:
        folder.mkdir()
        monkeypatch.setenv("KEVIN_JUDGE_IMAGE", str(folder))
        found.append(toolchain(Isolation.APPTAINER))
    assert found[0] != found[1]
    assert () not in found
