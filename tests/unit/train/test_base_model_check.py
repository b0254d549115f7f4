"""Whether the base model has learned what is asked of it."""

import json

import pytest
from core_fixtures import X
from train_fixtures import TASKS, judge, make_study

from kevin.core import files
from kevin.train import base_model_check
from kevin.train.base_model_check import check_base_model


@pytest.fixture
def study(tmp_path):
    study = make_study(tmp_path)
    (tmp_path / "base/summary.json").write_text(json.dumps({"loss": 0.1}))
    made = {"base": study.policies["base"].model_copy(update={"model": f"{study.results}/base_model"})}
    expected = {"expected_correct_share": 0.0, "num_checked_kernels": 3}
    base_model = study.base_model.model_copy(update=expected)
    return study.model_copy(update={"policies": made, "base_model": base_model})


def test_of_many_tasks_some_are_judged_to_check_the_base_model(study, tmp_path):
    check_base_model(study, tmp_path / "base", tmp_path / "tasks.parquet", judge, tmp_path / "check.json")
    assert json.loads((tmp_path / "check.json").read_text())["num_kernels"] == 3


@pytest.mark.parametrize("num", [2, 3, 7])
def test_as_many_tasks_as_kernels_are_asked_for_from_all_of_the_file(study, tmp_path, monkeypatch, num):
    many = [TASKS[0].model_copy(update={"id": f"l1/copy~{i}"}) for i in range(4)]
    files.write_tasks(tmp_path / "many.parquet", [(task, "train") for task in many], {})
    refine, asked = base_model_check.refine, []
    monkeypatch.setattr(base_model_check, "refine", lambda tasks, *rest: asked.extend(tasks) or refine(tasks, *rest))
    base_model = study.base_model.model_copy(update={"num_checked_kernels": num})
    study = study.model_copy(update={"base_model": base_model})
    check_base_model(study, tmp_path / "base", tmp_path / "many.parquet", judge, tmp_path / "check.json")
    wanted = {2: [0, 2], 3: [0, 1, 2], 7: [0, 1, 2, 3]}[num]
    assert [task.id for task in asked] == [many[i].id for i in wanted]
    assert json.loads((tmp_path / "check.json").read_text())["num_kernels"] == (8 if num == 7 else num)


def test_the_base_model_is_checked_by_the_tasks_that_are_trained_on(study, tmp_path, monkeypatch):
    spec = TASKS[0].spec.model_copy(update={"inputs": (X.model_copy(update={"shape": (10**9,)}),)})
    tasks = [task.model_copy(update={"spec": spec} if task.level == 2 else {}) for task in TASKS]
    files.write_tasks(tmp_path / "some.parquet", [(task, "train") for task in tasks], {})
    refine, checked = base_model_check.refine, []
    monkeypatch.setattr(base_model_check, "refine", lambda tasks, *rest: checked.extend(tasks) or refine(tasks, *rest))
    study = study.model_copy(update={"train": study.train.model_copy(update={"max_task_gb": 1.0})})
    check_base_model(study, tmp_path / "base", tmp_path / "some.parquet", judge, tmp_path / "check.json")
    assert checked and {task.level for task in checked} == {1}
