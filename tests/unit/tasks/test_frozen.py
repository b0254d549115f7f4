"""Held-out tasks that are frozen: the same for every seed, refused where one is another; and those that are shipped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cli_fixtures import ROOT

from kevin.core.config import Study, validate_study
from kevin.core.errors import ConfigError, DataError
from kevin.tasks.build import build_tasks, evaluated_tasks, read_frozen, write_split
from kevin.tasks.compose import compose
from kevin.tasks.kernelbench_ops import kernelbench_rows
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import call, render_module, sequence
from kevin.workflow.digests import StudyDigests

SHIPPED = ROOT / "config/frozen/replicates.yaml"
MOST_OF_A_FAMILY = 6
LOOKED_AT = {
    *(f"kb/1/{number}" for number in (6, 11, 30, 40, 47, 54, 65, 70, 74, 99)),
    *(f"kb/2/{number}" for number in (1, 11, 14, 28, 38, 45, 48, 70, 73, 95)),
}
"""On which results/reference/nvidia-h200 evaluates."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for level in (1, 2):
        folder = tmp_path / f"KernelBench/level{level}"
        folder.mkdir(parents=True)
        for number in range(1, 5):
            (folder / f"{number}_Task.py").write_text(
                render_module([call("relu")], {"batch_size": number, "dim": level})
            )
    return tmp_path / "KernelBench"


def study_of(checkout: Path, seed: int, frozen: Path | None) -> Study:
    tasks = {"source": "kernelbench", "case_study": "kb/1/2", "num_eval_level2": 1}
    tasks |= {"kernelbench": {"path": str(checkout), "num_train_per_level": 2}}
    tasks |= {"frozen": str(frozen)} if frozen else {}
    return validate_study({"seed": seed, "policies": {"base": {"model": "none"}}, "tasks": tasks}, "test")


def held_out(study: Study) -> list[tuple[str, str]]:
    return [(task.id, part) for task, part in build_tasks(study) if part != "train"]


def test_they_are_the_same_for_every_seed_and_another_one_is_refused(checkout: Path, tmp_path: Path) -> None:
    first = study_of(checkout, 5, None)
    frozen = tmp_path / "frozen.yaml"
    write_split(frozen, [pair for pair in build_tasks(first) if pair[1] != "train"], first.seed)
    later = study_of(checkout, 6, frozen)
    assert held_out(later) == held_out(first) != held_out(study_of(checkout, 6, None))
    assert [task.id for task in evaluated_tasks(later)] == [task_id for task_id, _ in held_out(first)]
    assert len(build_tasks(later)) == 9, "all others train"
    before = StudyDigests(later).tasks
    frozen.write_text(frozen.read_text().replace("seed: 5", "seed: 4"))
    assert StudyDigests(later).tasks != before
    with pytest.raises(DataError, match=r"frozen.yaml: unseen: l2/001_\w+ was frozen as (none|\w+ \w{16}), and is "):
        build_tasks(later)
    frozen.write_text(frozen.read_text().replace("seed: 4", "seed: 5"))
    edited = checkout / "level1/2_Task.py"
    edited.write_text(edited.read_text() + "# edited\n")
    with pytest.raises(DataError, match=r"level1: kb/1/2 was frozen as Task \w{16}, and is Task \w{16}; take the code"):
        build_tasks(later)


@pytest.mark.parametrize("text", ["seed: 1\n", "[1]\n", "seed: x\nparts: {}\n", "parts: [1\n"])
def test_a_file_that_freezes_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "frozen.yaml").write_text(text)
    with pytest.raises(ConfigError, match="has no seed and parts"):
        read_frozen(tmp_path / "frozen.yaml")
    with pytest.raises(ConfigError, match=r"tasks\.frozen: \S+none.yaml"):
        read_frozen(tmp_path / "none.yaml")


def family(operator: str) -> str:
    if OPERATORS[operator].kind != "contract":
        return operator
    return "conv_transpose" if operator.startswith("conv_transpose") else "conv" if "conv" in operator else "matmul"


def test_the_shipped_ones_are_fresh_of_several_families_and_still_drawn() -> None:
    frozen = read_frozen(SHIPPED)
    ids = [task_id for own in frozen.parts.values() for task_id in own]
    assert len(ids) == 24 and not set(ids) & LOOKED_AT
    operators = {row.name: row.ops for row in kernelbench_rows() if row.outside is None}
    first = [operators[i.replace("kb/", "level")][0].name for i in frozen.of_kernelbench]
    fused = list(compose(len(frozen.parts["unseen"]), 2 * frozen.seed + 1, "gpu"))
    assert {t.id: f"{t.name} {t.digest[:16]}" for t in fused} == frozen.parts["unseen"]
    assert max(Counter(map(family, [*first, *(t.ops[0].name for t in fused)])).values()) <= MOST_OF_A_FAMILY
    others = {sequence(t.ops) for seed in range(8) for t in compose(40, 2 * seed + 1, "gpu")}
    assert not {sequence(t.ops) for t in fused} & others, "nor have they been evaluated by another seed's study"
