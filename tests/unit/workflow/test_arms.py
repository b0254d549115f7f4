"""One arm of a comparison at a time: its folder, and what of a study is made for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from workflow_fixtures import study_of

from kevin.core.errors import ConfigError
from kevin.workflow import replicates
from kevin.workflow.replicates import arms_of, of_arms
from kevin.workflow.targets import Targets

STUDY = study_of("gpu", "replicates")
ARMS = ["rl_single", "rl_multi_paper"]
RAW = {"seed": 2, "results": "results/replicates", "evaluate": ["base", *ARMS], "runs": {arm: {} for arm in ARMS}}


def test_arms_have_a_folder_by_their_seed_and_are_evaluated_alone() -> None:
    own = {"results": "results/replicates/rl_single-2", "evaluate": ["base", "rl_single"]}
    assert of_arms(RAW, arms_of("rl_single")) == RAW | own
    both = of_arms(RAW, arms_of("rl_multi_paper, rl_single"))
    assert both == RAW | {"results": "results/replicates/rl_multi_paper-rl_single-2"}
    assert of_arms(RAW | {"results": "results"}, arms_of(None)) == RAW | {"results": "results"}
    asked = r"this is made arm by arm: --config seed=1 arm=NAME\[,NAME\], of rl_single, rl_multi_paper$"
    with pytest.raises(ConfigError, match=f"^{asked}"):
        of_arms(RAW, [])
    with pytest.raises(ConfigError, match=f"^there is no run c; {asked}"):
        of_arms(RAW, ["rl_single", "c"])


@pytest.mark.parametrize("seed", [0, 3])
def test_a_seed_that_was_not_declared_is_run_apart(seed: int) -> None:
    raw = RAW | {"seed": seed}
    with pytest.raises(ConfigError, match=f"^seed {seed} of rl_multi_paper was not declared .*results=DIR$"):
        of_arms(raw, ["rl_multi_paper"])
    assert of_arms(raw | {"results": "apart"}, ["rl_multi_paper"])["results"] == f"apart/rl_multi_paper-{seed}"
    assert of_arms(raw | {"seed": 3}, ["rl_single"])["results"] == "results/replicates/rl_single-3"


@pytest.mark.parametrize("arms", [["rl_multi"], ["rl_single", "rl_multi"]])
def test_of_arms_answers_and_kernels_alone_are_made(arms: list[str]) -> None:
    targets = Targets(STUDY, arms)
    files = targets.published
    assert targets.deliverables == ["results/replicates/published"]
    assert files.keys() == {"tasks", "scores", "turns", "search", "trainings"}
    splits = ("level1", "level2", "unseen")
    assert [Path(path).stem for path in files["scores"]] == [f"{arm}-{split}" for arm in arms for split in splits]
    assert "baselines" in Targets(STUDY).published and len(Targets(STUDY).deliverables) > 10


def test_arms_judge_as_many_kernels_of_as_many_tasks_in_as_many_steps() -> None:
    trains = [STUDY.for_run(arm).train for arm in STUDY.runs]
    assert {(t.num_steps, t.tasks_per_step, t.group_size, t.batch_size) for t in trains} == {(8, 8, 16, 128)}
    assert {t.num_turns for t in trains} == {1, 4}
    paper = STUDY.for_run("rl_multi_paper")
    assert paper.rollout.history.view == "all" and not paper.reward.progress_weight
    assert (paper.reward.returns, paper.reward.gamma) == ("sum", 0.4)


def test_a_task_s_kernels_are_as_many_as_are_declared() -> None:
    primary, shape = STUDY.report.primary, STUDY.rollout
    assert primary.declared and (primary.policy, primary.against) == ("rl_multi", "rl_single")
    assert (shape.num_trajectories, shape.num_turns) == (primary.trajectories, primary.turns) == (4, 8)
    first = STUDY.for_strategy("base", *STUDY.search.names).rollout
    assert (first.num_trajectories, first.num_turns) == (32, 1)


def test_those_that_are_finished_have_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert replicates.finished() == []
    (replicates.STORED / "a-1/published").mkdir(parents=True)
    assert replicates.finished() == [f"{replicates.STORED}/a-1/published"], "until one has here"
    for name in ("b-2/published", "a-1/published", "a-2/store"):
        (replicates.FOLDER / name).mkdir(parents=True)
    assert replicates.finished() == [f"results/replicates/{name}/published" for name in ("a-1", "b-2")]
