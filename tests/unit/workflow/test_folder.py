"""One run at a time in a folder, and its configuration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kevin.core.config import Study, load_study
from kevin.core.errors import UsageError
from kevin.workflow import folder
from kevin.workflow.folder import claim_folder, save_config

CONFIG = Path(__file__).parents[3] / "config/config.yaml"


def test_a_second_run_is_refused_until_the_first_one_ends_however_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_held", [])
    lock = tmp_path / ".snakemake" / "running"
    hold = (
        "import sys, time; from pathlib import Path; from kevin.workflow.folder import claim_folder;"
        "claim_folder(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    )
    first = subprocess.Popen([sys.executable, "-c", hold, str(lock)], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=rf"another snakemake \(process {first.pid}\) is at work in .*; wait"):
            claim_folder(lock, patience_s=0)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    claim_folder(lock, patience_s=30)
    assert lock.read_text() == str(os.getpid())


def test_where_locks_cannot_be_had_a_warning_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise OSError("No locks available")

    monkeypatch.setattr(folder.fcntl, "flock", refused)
    claim_folder(tmp_path / "running")
    assert "no file locks here (No locks available)" in caplog.text


@pytest.fixture(scope="module")
def study() -> Study:
    return load_study([CONFIG])


def test_the_written_configuration_is_the_study(study: Study, tmp_path: Path) -> None:
    path = tmp_path / "results" / "config.yaml"
    save_config(study, path)
    assert Study.model_validate(yaml.safe_load(path.read_text())) == study


def test_a_configuration_that_stands_there_is_left_alone(study: Study, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    save_config(study, path)
    os.utime(path, (1, 1))
    save_config(study, path)
    assert path.stat().st_mtime == 1
    save_config(study.model_copy(update={"seed": 77}), path)
    assert path.stat().st_mtime > 1 and load_study([path]).seed == 77
