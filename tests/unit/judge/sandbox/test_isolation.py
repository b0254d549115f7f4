"""Which isolation is taken, and who says so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import SandboxError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Outcome
from kevin.judge.pool.judge_pool import JudgePool, isolation_environment
from kevin.judge.sandbox import cell, isolation
from kevin.judge.sandbox.cell import CandidateFailed
from kevin.judge.sandbox.isolation import Isolation, detect_isolation, gpu_minor, toolchain


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
    monkeypatch.setattr(isolation.shutil, "which", lambda name: None)
    with pytest.raises(SandboxError, match="bubblewrap is asked for"):
        detect_isolation()


def test_apptainer_that_did_not_start_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "apptainer"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo apptainer version 1.4.0 || exit $CODE\n')
    program.chmod(0o755)
    monkeypatch.setenv("KEVIN_APPTAINER", str(program))
    monkeypatch.setenv("KEVIN_ISOLATION", "apptainer")
    monkeypatch.delenv("KEVIN_JUDGE_IMAGE", raising=False)
    isolation._apptainer_options.cache_clear()
    for code, works in (("1", False), ("0", True)):
        monkeypatch.setenv("CODE", code)
        with nullcontext() if works else pytest.raises(SandboxError, match="isolation by apptainer is asked for"):
            assert detect_isolation() is Isolation.APPTAINER
    isolation._apptainer_options.cache_clear()


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


def test_the_device_file_of_one_gpu(tmp_path: Path) -> None:
    for i, address in enumerate(("0000:00:05.0", "0000:00:06.0")):
        (tmp_path / address).mkdir()
        text = f"Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-{i}{i}\nDevice Minor: \t {1 - i}\n"
        (tmp_path / address / "information").write_text(text)
    assert gpu_minor("GPU-11", tmp_path) == "0"
    assert gpu_minor("GPU-1", tmp_path) is None
    assert gpu_minor("MIG-00", tmp_path) is None


def test_limits_of_the_shell_are_told_as_such() -> None:
    refused = CandidateFailed(Outcome.RUNTIME_ERROR, "early_exit", "ValueError: not allowed to raise maximum limit")
    assert "ulimit -a" in str(cell._not_up(refused))
    assert "(killed): why" in str(cell._not_up(CandidateFailed(Outcome.RUNTIME_ERROR, "killed", "why")))


def test_one_process_of_a_judge_says_what_would_isolate_better(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isolation.shutil, "which", lambda name: "/usr/bin/unshare" if name == "unshare" else None)
    monkeypatch.setattr(isolation, "_works", lambda argv: True)
    monkeypatch.delenv("KEVIN_ISOLATION", raising=False)
    monkeypatch.delenv("KEVIN_JUDGE_IMAGE", raising=False)
    for hints, told in (("no", 0), ("", 1)):
        monkeypatch.setenv(isolation.HINTS, hints)
        caplog.clear()
        assert isolation.detect_isolation.__wrapped__() is Isolation.NAMESPACES
        assert len(caplog.messages) == told


def test_the_first_device_of_a_pool_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    def cluster(workers: dict[str, Any], **options: Any) -> None:
        seen.update({name: worker["options"]["env"][isolation.HINTS] for name, worker in workers.items()})

    monkeypatch.setattr("distributed.SpecCluster", cluster)
    pool = JudgePool(JudgeProtocol(), tmp_path, JudgePoolConfig(device_workers=2))
    pool._local_cluster()
    pool.close()
    assert seen == {"builder": "no", "device-0": "", "device-1": "no"}


def test_bubblewrap_shows_no_network() -> None:
    options = isolation._bwrap([], [])
    assert "--unshare-all" in options or "--unshare-net" in options
    assert "--share-net" not in options


def test_a_tmp_takes_no_more_than_some_memory() -> None:
    if detect_isolation() is not Isolation.BUBBLEWRAP or not isolation._can_limit_tmp():
        pytest.skip("no bubblewrap here, or one that cannot")
    asked = isolation.wrap(["df", "--output=size", "-B1", "/tmp"], isolation=Isolation.BUBBLEWRAP)
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert int(told.split()[-1]) == isolation._TMP_BYTES


def test_a_bubblewrap_that_cannot_limit_a_tmp_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_can_limit_tmp", lambda: False)
    argv = isolation.wrap(["true"], isolation=Isolation.BUBBLEWRAP)
    assert "--size" not in argv and argv[argv.index("/tmp") - 1] == "--tmpfs"
