"""The study's tasks: counts, disjointness, determinism, and what the errors say."""

import logging
from pathlib import Path

import pytest

from kevin.core.config import validate_study
from kevin.core.errors import ConfigError, TaskError
from kevin.core.files import read_tasks, write_tasks
from kevin.tasks import build
from kevin.tasks.build import build_tasks, composed_tasks, evaluated_tasks
from kevin.tasks.filters import Rejection
from kevin.tasks.ops import call, render_module, sequence

COUNTS = {"num_train": 3, "num_eval_level1": 2, "num_eval_level2": 2}


def study(seed=0, **tasks):
    policies = {"base": {"model": "none"}}
    return validate_study({"seed": seed, "policies": policies, "tasks": {**COUNTS, **tasks}}, "test")


def by_split(pairs):
    return {part: [t for t, p in pairs if p == part] for part in {p for _, p in pairs}}


def test_counts_specs_and_disjointness(tmp_path, monkeypatch):
    excluded, real = [], build.composed_tasks
    monkeypatch.setattr(
        build, "composed_tasks", lambda *args, **options: excluded.append(options["exclude"]) or real(*args, **options)
    )
    pairs = build_tasks(study())
    parts = by_split(pairs)
    assert {p: len(ts) for p, ts in parts.items()} == {"train": 6, "level1": 2, "level2": 2}
    assert "l1/layer_norm" in {t.id for t in parts["level1"]}
    assert all(t.spec for t, _ in pairs)
    held_out = {sequence(t.ops) for part in ("level1", "level2") for t in parts[part]}
    assert not held_out & {sequence(t.ops) for t in parts["train"]}
    assert held_out <= excluded[1], "also where chance would not have drawn any of them"
    assert evaluated_tasks(study()) == [*parts["level1"], *parts["level2"]]
    assert pairs == build_tasks(study())
    write_tasks(tmp_path / "tasks.parquet", pairs, {})
    assert read_tasks(tmp_path / "tasks.parquet", "level2") == parts["level2"]


def test_the_evaluation_does_not_depend_on_how_many_are_trained_on():
    few, many = (by_split(build_tasks(study(num_train=n))) for n in (1, 4))
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
        ({"num_train": 500}, "num_eval_level1 is 502, the catalog has"),
    ],
)
def test_impossible_configurations(tasks, message):
    with pytest.raises(ConfigError, match=message):
        build_tasks(study(**tasks))


BROKEN = "import torch\n\n\nimport a_package_that_is_not_installed\n"
ODD = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.zeros(2, dtype=torch.complex64)]
"""


def kernelbench(folder: Path, dialect="c_abi", **files: str):
    """A study on ten small tasks in ``folder``, the files of level 2 as given."""
    for level in (1, 2):
        (folder / f"level{level}").mkdir(parents=True)
        for number in range(1, 6):
            source = render_module([call("relu")], {"batch_size": number, "dim": level})
            (folder / f"level{level}" / f"{number}_Task.py").write_text(source)
    for name, source in files.items():
        (folder / "level2" / f"{name.lstrip('_')}.py").write_text(source)
    bench = {"path": str(folder), "num_train_per_level": 3}
    counts = {**COUNTS, "num_eval_level2": 0}
    return validate_study(
        {
            "policies": {"base": {"model": "none"}},
            "dialect": dialect,
            "tasks": {"source": "kernelbench", "case_study": "kb/1/2", "kernelbench": bench, **counts},
        },
        "test",
    )


def test_kernelbench(tmp_path: Path):
    study = kernelbench(tmp_path / "tasks")
    pairs = build_tasks(study)
    parts = by_split(pairs)
    assert {p: len(ts) for p, ts in parts.items()} == {"train": 6, "level1": 2, "level2": 2}
    assert "kb/1/2" in {t.id for t in parts["level1"]}
    assert all(t.spec for t, _ in pairs)
    elsewhere = study.model_copy(update={"tasks": study.tasks.model_copy(update={"case_study": "l1/relu"})})
    with pytest.raises(ConfigError, match="ids are kb/<level>/<number>"):
        build_tasks(elsewhere)


def changed(study, source="kernelbench", case="kb/1/2", **bench):
    own = study.tasks.kernelbench.model_copy(update=bench)
    update = {"source": source, "case_study": case, "kernelbench": own, "num_eval_level2": 2}
    return study.model_copy(update={"tasks": study.tasks.model_copy(update=update)})


def test_a_folder_alone_is_all_that_is_asked_for(tmp_path: Path, caplog):
    study = changed(kernelbench(tmp_path / "mine"))
    assert {part for _, part in build_tasks(study)} == {"train", "level1", "level2"}
    assert evaluated_tasks(study) == [] and caplog.text == ""
    study = changed(kernelbench(tmp_path / "a" / "KernelBench"))
    pairs = build_tasks(study)
    assert "unseen" in {part for _, part in pairs}
    assert evaluated_tasks(study) == [task for task, part in pairs if part != "train"]


def test_a_folder_beside_the_catalog(tmp_path: Path):
    made = kernelbench(tmp_path / "mine")
    for case in ("kb/1/2", "l1/layer_norm"):
        parts = by_split(build_tasks(changed(made, "both", case)))
        assert case in {t.id for t in parts["level1"]}
        origins = {part: sorted(t.origin == "kernelbench" for t in tasks) for part, tasks in parts.items()}
        assert origins == {
            "train": [False] * 6 + [True] * 6,
            "level1": [False] * 2 + [True] * 2,
            "level2": [False] * 2 + [True] * 2,
        }
    for case in ("kb/1/99", "l1/nothing"):
        with pytest.raises(ConfigError, match="case_study"):
            build_tasks(changed(made, "both", case))
    with pytest.raises(ConfigError, match=r"tasks\.kernelbench\.path"):
        build_tasks(changed(kernelbench(tmp_path / "b" / "KernelBench"), "both"))


@pytest.mark.parametrize("names", [("kb/1/2", "kb/2/5"), ("level1/2_Task", "level2/5_Task.py")])
def test_held_out_by_name(tmp_path: Path, names):
    parts = by_split(build_tasks(changed(kernelbench(tmp_path / "mine"), held_out=names, num_train_per_level=90)))
    assert {p: [t.id for t in ts] for p, ts in parts.items() if p != "train"} == {
        "level1": ["kb/1/2"],
        "level2": ["kb/2/5"],
    }
    assert len(parts["train"]) == 8


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("kb/1/2", "9_Other"), "no task '9_Other'; give an id. There are kb/1/1 Task"),
        (("kb/1/2", "Task"), "kb/2/5 are all called 'Task'"),
        (("kb/1/2",), "names no task of level 2"),
        (("kb/1/3", "kb/2/5"), "case_study 'kb/1/2' is trained on"),
    ],
)
def test_names_of_held_out_tasks_that_are_none(tmp_path: Path, names, told):
    with pytest.raises(ConfigError, match=told):
        build_tasks(changed(kernelbench(tmp_path / "mine"), held_out=names))


def test_flaws_are_of_kernelbenchs_own_tasks(tmp_path: Path):
    """Its tasks 9 and 80 of level 2 have some; those of others may have any number."""
    source = render_module([call("relu")], {"batch_size": 2, "dim": 2})
    for folder in ("mine", "a/KernelBench"):
        tasks = [t for t, _ in build_tasks(kernelbench(tmp_path / folder, **{"_80_Mine": source, "_9_Mine": source}))]
        assert any(t.flaws for t in tasks) == (folder == "a/KernelBench")


@pytest.mark.parametrize("dialect", ["c_abi", "load_inline"])
def test_own_references_that_do_not_work_are_refused_by_file_and_line(tmp_path: Path, dialect):
    raising = "import torch\n\n1 / 0\n"
    study = kernelbench(tmp_path / "my-tasks", dialect, _5_Task=BROKEN, _6_New=raising, _7_Typo="def (:\n")
    with pytest.raises(TaskError) as told:
        build_tasks(study)
    said = str(told.value)
    assert "3 of 12 tasks cannot be used; repair the files or take them out" in said
    for words in (
        "level2/5_Task.py: line 4: ModuleNotFoundError",
        "level2/6_New.py: line 3: ZeroDivisionError",
        "level2/7_Typo.py: line 1: ",
    ):
        assert f"{tmp_path}/my-tasks/{words}" in said
    for name in ("6_New", "7_Typo"):
        (tmp_path / "my-tasks/level2" / f"{name}.py").unlink()
    (tmp_path / "my-tasks/level2/5_Task.py").write_text(render_module([call("relu")], {"batch_size": 5, "dim": 2}))
    assert len(build_tasks(study)) == 10


@pytest.mark.parametrize("dialect", ["c_abi", "load_inline"])
def test_what_kernelbench_needs_packages_for_is_left_out_where_a_spec_is_needed(tmp_path: Path, caplog, dialect):
    study = kernelbench(tmp_path / "KernelBench", dialect, _5_Task=BROKEN)
    pairs = build_tasks(study)
    assert "level2/5_Task.py: line 4: ModuleNotFoundError" in caplog.text
    if dialect == "load_inline":
        assert [t.id for t, _ in pairs if t.spec is None] == ["kb/2/5"]
    else:
        assert "1 of 10 tasks are left out" in caplog.text
        assert "kb/2/5" not in {t.id for t, _ in pairs} and all(t.spec for t, _ in pairs)
    kept = {t.id: part for t, part in pairs if t.id != "kb/2/5"}
    whole = build_tasks(kernelbench(tmp_path / "whole" / "KernelBench", dialect))
    assert kept == {t.id: part for t, part in whole if t.id != "kb/2/5"}, "the others stay in their splits"


def test_level_3_is_evaluated_where_the_dialect_can_take_its_tasks(tmp_path: Path):
    def study(dialect: str, source: str):
        folder = tmp_path / dialect / str(len(source)) / "KernelBench"
        made = kernelbench(folder, dialect)
        (folder / "level3").mkdir()
        (folder / "level3" / "1_Net.py").write_text(source)
        bench = made.tasks.kernelbench.model_copy(update={"levels": (1, 2, 3)})
        return made.model_copy(update={"tasks": made.tasks.model_copy(update={"kernelbench": bench})})

    good = render_module([call("relu"), call("relu")], {"batch_size": 2, "dim": 4})
    for dialect in ("c_abi", "load_inline"):
        assert [t.id for t, part in build_tasks(study(dialect, good)) if part == "level3"] == ["kb/3/1"]
    assert [t.id for t in by_split(build_tasks(study("load_inline", BROKEN)))["level3"]] == ["kb/3/1"]
    with pytest.raises(ConfigError, match=r"levels: no held-out task of level 3 .* c_abi; take the level out"):
        build_tasks(study("c_abi", BROKEN))


def test_what_only_a_launcher_cannot_take_is_refused_only_where_there_is_one(tmp_path: Path):
    with pytest.raises(TaskError, match=r"(?s)1 of 10 tasks cannot be used.*complex64"):
        build_tasks(kernelbench(tmp_path / "c", "c_abi", _5_Task=ODD))
    assert [t.id for t, _ in build_tasks(kernelbench(tmp_path / "i", "load_inline", _5_Task=ODD)) if not t.spec]
