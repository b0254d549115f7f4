"""The study's tasks: counts, disjointness, determinism, and what the errors say."""

import logging
from pathlib import Path

import pytest

from kevin.core.config import validate_study
from kevin.core.errors import ConfigError
from kevin.core.files import read_tasks, write_tasks
from kevin.tasks import build
from kevin.tasks.build import build_tasks, composed_tasks, unseen_sequences
from kevin.tasks.filters import Rejection
from kevin.tasks.ops import call, sequence
from kevin.tasks.render import render

COUNTS = {"num_train_level1": 3, "num_train_level2": 3, "num_eval_level1": 2, "num_eval_level2": 2}


def study(seed=0, **tasks):
    policies = {"base": {"model": "none"}}
    return validate_study({"seed": seed, "policies": policies, "tasks": {**COUNTS, **tasks}}, "test")


def by_split(pairs):
    return {part: [t for t, p in pairs if p == part] for part in {p for _, p in pairs}}


def test_counts_specs_and_disjointness(tmp_path):
    pairs = build_tasks(study())
    parts = by_split(pairs)
    assert {p: len(ts) for p, ts in parts.items()} == {"train": 6, "level1": 2, "level2": 2}
    assert "l1/layer_norm" in {t.id for t in parts["level1"]}
    assert all(t.spec for t, _ in pairs)
    held_out = {sequence(t.ops) for part in ("level1", "level2") for t in parts[part]}
    assert not held_out & {sequence(t.ops) for t in parts["train"]}
    assert held_out == unseen_sequences(study())
    assert unseen_sequences(study(), levels=(2,)) == {sequence(t.ops) for t in parts["level2"]}
    assert pairs == build_tasks(study())
    write_tasks(tmp_path / "tasks.parquet", pairs, {})
    assert read_tasks(tmp_path / "tasks.parquet", "level2") == parts["level2"]


def test_the_evaluation_does_not_depend_on_how_many_are_trained_on():
    few, many = (by_split(build_tasks(study(num_train_level1=n, num_train_level2=n))) for n in (1, 4))
    assert few["level1"] == many["level1"]
    assert few["level2"] == many["level2"]
    other = by_split(build_tasks(study(seed=1)))
    assert [t.id for t in other["level2"]] != [t.id for t in few["level2"]]


def test_rejections_are_logged_and_made_good(monkeypatch, caplog):
    def turn_down_every_other(task, **kwargs):
        bad = int(task.id[3:6]) % 2
        return Rejection(task_id=task.id, reason="near_zero", message="planted") if bad else None

    monkeypatch.setattr(build, "check_task", turn_down_every_other)
    with caplog.at_level(logging.INFO):
        tasks = composed_tasks(3, 0, "gpu")
    assert [t.id[3:6] for t in tasks] == ["002", "004", "006"]
    assert tasks[0].spec.inputs[0].num_elements > 1_000_000
    assert "turned down: near_zero: planted" in caplog.text


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"case_study": "l1/nothing"}, "case_study 'l1/nothing' is not in the catalog"),
        ({"num_train_level1": 500}, "num_eval_level1 is 502, the catalog has"),
    ],
)
def test_impossible_configurations(tasks, message):
    with pytest.raises(ConfigError, match=message):
        build_tasks(study(**tasks))


def test_kernelbench(tmp_path: Path):
    for level in (1, 2):
        folder = tmp_path / f"level{level}"
        folder.mkdir()
        for number in range(1, 6):
            (folder / f"{number}_Task.py").write_text(render([call("relu")], {"batch_size": number, "dim": level}))
    (tmp_path / "level2" / "5_Task.py").write_text("import a_package_that_is_not_installed\n")
    bench = {"path": str(tmp_path), "num_train_per_level": 3}
    pairs = build_tasks(study(source="kernelbench", case_study="kb/1/2", kernelbench=bench))
    parts = by_split(pairs)
    assert {p: len(ts) for p, ts in parts.items()} == {"train": 6, "level1": 2, "level2": 2, "unseen": 2}
    assert "kb/1/2" in {t.id for t in parts["level1"]}
    assert [t.id for t, _ in pairs if t.spec is None] == ["kb/2/5"]
    with pytest.raises(ConfigError, match="ids are kb/<level>/<number>"):
        build_tasks(study(source="kernelbench", kernelbench=bench))
