"""One run at a time in a folder, and its configuration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from workflow_fixtures import CONFIG

from kevin.core.config import Study, load_study
from kevin.core.config.layers import read_layer
from kevin.core.errors import UsageError
from kevin.workflow import folder
from kevin.workflow.folder import (
    changed_settings,
    claim_folder,
    may_replace,
    require_own_config,
    require_replaceable,
    save_config,
)


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


# --- a study of other settings in the same folder -----------------------------------------------------------------


def test_changed_settings_are_told_with_both_values(tmp_path: Path) -> None:
    study, saved = load_study([CONFIG]), tmp_path / "config.yaml"
    assert changed_settings(study, saved) == []
    save_config(study, saved)
    assert changed_settings(study, saved) == []
    other = study.model_copy(update={"seed": 7, "train": study.train.model_copy(update={"num_steps": 3})})
    assert changed_settings(other, saved) == ["seed: was 0, is 7", "train.num_steps: was 8, is 3"]
    older = yaml.safe_load(saved.read_text())
    del older["rollout"]["top_p"]
    saved.write_text(yaml.safe_dump(older))
    assert changed_settings(study, saved) == [], "a key that is new since then changes nothing"
    saved.write_text("- damaged\n")
    assert changed_settings(study, saved) == []
    finished = study.model_copy(update={"results": str(tmp_path)})
    (tmp_path / "report.html").touch()
    assert changed_settings(finished, saved) == [f"{saved} cannot be read any more"]
    saved.unlink()
    assert changed_settings(finished, saved) == [f"{saved} cannot be read any more"]


def test_what_the_study_is_read_from_is_not_written_over(study: Study, tmp_path: Path) -> None:
    saved, mine = tmp_path / "config.yaml", tmp_path / "mine.yaml"
    mine.write_text("seed: 3  # of mine\n")
    require_own_config(study, saved, [mine])
    save_config(study, saved)
    require_own_config(study, saved, [mine, saved])
    mine.replace(saved)
    require_own_config(study, saved, [CONFIG])
    with pytest.raises(UsageError, match=r"config\.yaml: the resolved configuration .* is kept there; keep yours as"):
        require_own_config(study, saved, [CONFIG, saved])


def test_a_finished_study_is_replaced_only_where_that_is_asked_for(tmp_path: Path) -> None:
    study = load_study([CONFIG]).model_copy(update={"results": str(tmp_path)})
    changes = [f"key_{i}: was 1, is 2" for i in range(20)]
    steps = ["train_base_model", "run_rollouts", "run_rollouts"]
    require_replaceable(study, changes, steps, may_replace=False)  # it is not finished
    (tmp_path / "report.html").touch()
    require_replaceable(study, changes, steps, may_replace=True)
    require_replaceable(study, [], steps, may_replace=False)  # files of the user's have changed
    require_replaceable(study, changes, [], may_replace=False)  # tables alone
    with pytest.raises(UsageError) as refused:
        require_replaceable(study, changes, steps, may_replace=False)
    said = str(refused.value)
    assert "key_0: was 1, is 2" in said and "and 8 more" in said
    assert "replaced: train_base_model, 2 run_rollouts." in said
    assert "results: ..." in said and "--config replace=true" in said


def test_every_experiment_that_is_shipped_has_a_folder_of_its_own() -> None:
    layers = {path.stem: [path] for path in CONFIG.parent.glob("*.yaml")}
    for name, paths in layers.items():
        over = read_layer(paths[0]).get("over")
        while over is not None:
            paths.insert(0, CONFIG.parent / over)
            over = read_layer(paths[0]).get("over")
        paths[:0] = [CONFIG] if name != "config" else []
    folders = {name: load_study(paths).results for name, paths in layers.items()}
    assert len(set(folders.values())) == len(folders) > 5, folders


def test_what_is_lost_by_it_is_replaced_by_a_plain_yes_alone() -> None:
    assert [may_replace(given) for given in (True, "true", "True", False, "false")] == [True, True, True, False, False]
    for given in ("no", "off", 0, 1, "", None, "yes"):
        with pytest.raises(UsageError, match=f"--config replace={given}: it is true or false"):
            may_replace(given)
