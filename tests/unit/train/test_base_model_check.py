"""Whether the base model has learned what is asked of it."""

import json

from train_fixtures import judge, make_study

from kevin.train.base_model_check import check_base_model


def test_of_many_tasks_some_are_judged_to_check_the_base_model(tmp_path):
    study = make_study(tmp_path)
    (tmp_path / "base/summary.json").write_text(json.dumps({"loss": 0.1, "budget_bit": False}))
    made = {"base": study.policies["base"].model_copy(update={"model": f"{study.results}/base_model"})}
    expected = {"expected_correct_share": 0.0, "num_checked_kernels": 3}
    base_model = study.base_model.model_copy(update=expected)
    study = study.model_copy(update={"policies": made, "base_model": base_model})
    check_base_model(study, tmp_path / "base", tmp_path / "tasks.parquet", judge, tmp_path / "check.json")
    assert json.loads((tmp_path / "check.json").read_text())["num_kernels"] == 3
