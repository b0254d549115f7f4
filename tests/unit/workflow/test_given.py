"""What a user brings is missed before anything is made for it, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest
from workflow_fixtures import study_of

from kevin.core.errors import ConfigError
from kevin.workflow import given


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made(path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).touch()


def test_results_need_a_folder() -> None:
    made("file")
    given.require_folder(study_of(results="new/one"))
    for results in ("file", "file/one"):
        with pytest.raises(ConfigError, match="results: file is a file, and results need a folder"):
            given.require_folder(study_of(results=results))


def test_a_model_that_no_step_makes_has_to_be_there() -> None:
    study = study_of(policies={"mine": {"backend": "replay", "model": "mine.jsonl"}, "hub": {"model": "owner/name"}})
    for policy in ("base", "rl_multi", "hub"):
        given.require_model(study, policy)
    with pytest.raises(ConfigError, match=r"policies\.mine\.model: there is no /.*/mine\.jsonl, and no step"):
        given.require_model(study, "mine")
    made("mine.jsonl")
    given.require_model(study, "mine")


@pytest.mark.parametrize("folder", ["rollouts", "search/beam"])
def test_a_policy_that_has_answered_is_not_missed(folder: str) -> None:
    study = study_of(policies={"mine": {"backend": "replay", "model": "mine.jsonl"}})
    with pytest.raises(ConfigError, match=r"there is no .*mine\.jsonl"):
        given.require_player(study, "mine")
    made(f"results/{folder}/mine-level1/turns.parquet")
    given.require_player(study, "mine")


def test_what_a_training_starts_from_is_missed_until_it_is_done() -> None:
    study = study_of(policies={"mine": {"model": "./mine"}}, train={"init": "mine"})
    with pytest.raises(ConfigError, match=r"there is no .*mine,"):
        given.initial_policy(study, "rl_multi")
    made("results/train/rl_multi/summary.json")
    assert given.initial_policy(study, "rl_multi") == "mine"


def test_a_folder_of_tasks_is_missed_until_they_are_read() -> None:
    study = study_of(tasks={"source": "both", "kernelbench": {"path": "my-tasks"}})
    with pytest.raises(ConfigError, match=r"tasks\.kernelbench\.path: there is no folder my-tasks in "):
        given.require_tasks(study)
    made("results/tasks.parquet")
    given.require_tasks(study)
    given.require_tasks(study_of())


def test_weights_are_missed_until_the_base_model_is_made_but_those_of_a_package() -> None:
    study = study_of(base_model={"init": "./weights"})
    with pytest.raises(ConfigError, match=r"base_model\.init: there is no folder weights"):
        given.require_weights(study)
    given.require_weights(study_of(base_model={"init": "package:no-such-package"}))
    Path("results/base_model").mkdir(parents=True)
    given.require_weights(study)
