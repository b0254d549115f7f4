"""The systems of the field: what config/field.yaml says of them, and their rows from rollouts made by hand."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pandas as pd
import pytest
from cli_fixtures import ROOT
from report_fixtures import make_tasks, make_turn

from kevin.core.config import Study, load_study
from kevin.core.errors import DataError
from kevin.core.files import write_tasks, write_turns
from kevin.core.types import Outcome
from kevin.report.captions import TrainingSummary
from kevin.report.catalogue import make_table
from kevin.report.field import BAM, BASE, SYSTEMS, field_rollouts, field_runs

FIELD = load_study([ROOT / "config/config.yaml", ROOT / "config/field.yaml"])
TRAINED = ["kevin", "think_prune_train", "dr_kernel", "cuda_agent"]


def test_every_system_is_a_run_a_strategy_or_both() -> None:
    assert field_rollouts(FIELD) == {
        "base": ("base", None),
        "kevin": ("kevin", None),
        "think_prune_train": ("think_prune_train", None),
        "dr_kernel": ("dr_kernel", None),
        "cuda_agent": ("cuda_agent", "cuda_agent"),
        "cudaforge": ("base", "cudaforge"),
        "evoengineer": ("base", "evoengineer"),
    }
    assert field_runs(FIELD) == TRAINED


def test_kernels_are_equal_in_training_and_at_test() -> None:
    training = {FIELD.for_run(run).train.batch_size * FIELD.for_run(run).train.num_steps for run in TRAINED}
    assert training == {64 * FIELD.train.num_steps}
    test = {FIELD.rollout.num_trajectories * FIELD.rollout.num_turns}
    for policy, strategy in field_rollouts(FIELD).values():
        if strategy is not None:
            own = FIELD.for_strategy(policy, strategy).rollout
            test.add(own.num_trajectories * own.num_turns)
    assert test == {16}


def test_each_system_is_what_its_row_says() -> None:
    dr_kernel, agent = FIELD.for_run("dr_kernel"), FIELD.for_run("cuda_agent").train
    assert (dr_kernel.train.advantage, dr_kernel.reward.speedup_cap) == ("turn_leave_one_out", 3.0)
    assert dr_kernel.train.own_kernel_weight > 0
    assert FIELD.for_run("think_prune_train").train.method == "think_prune"
    assert agent.num_trajectories == 1 and agent.num_turns > FIELD.train.num_turns
    assert FIELD.for_strategy("base", "cudaforge").rollout.profile_feedback
    assert FIELD.search.strategies["evoengineer"].method == "evolution"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, list[Path]]:
    """Of the first system two trajectories of two turns a task; of the second four first answers. One task solved."""
    tasks = make_tasks()[:3]
    write_tasks(tmp_path / "tasks.parquet", tasks, {})
    paths = []
    for policy, strategy, shape, speedup in (
        ("kevin", None, (2, 2), 2.0),
        ("base", "evoengineer", (4, 1), 0.5),
    ):
        turns = [
            make_turn(task.id, i, j + 1, Outcome.CORRECT if last else Outcome.INCORRECT, speedup if last else None)
            for number, (task, _) in enumerate(tasks)
            for i in range(shape[0])
            for j in range(shape[1])
            for last in [number == 0 and (i, j) == (shape[0] - 1, shape[1] - 1)]
        ]
        path = tmp_path / f"{policy}/turns.parquet"
        write_turns(path, turns, {"policy": policy, "split": "level1", "strategy": strategy})
        paths.append(path)
    return tmp_path / "tasks.parquet", paths


def rows(files: tuple[Path, list[Path]], study: Study = FIELD) -> pd.DataFrame:
    tasks, turns = files
    out = tasks.parent / "field.csv"
    summary = tasks.parent / "summary.json"
    summary.write_text(TrainingSummary(run="kevin", num_steps=3).model_dump_json())
    make_table("field", out, study=study, turns=turns, tasks=tasks, summaries=[summary])
    return pd.read_csv(out).set_index("system")


def test_rows_by_hand(files: tuple[Path, list[Path]]) -> None:
    table = rows(files)
    kevin, evo = table.loc["kevin"], table.loc["evoengineer"]
    assert (kevin["num_tasks"], kevin["kernels_test"], kevin["kernels_training"]) == (3, 4, 3 * 64)
    assert (evo["num_tasks"], evo["kernels_test"], evo["kernels_training"]) == (3, 4, 0)
    assert kevin["correct"] == evo["correct"] == pytest.approx(1 / 3)
    assert (kevin["speedup"], evo["speedup"]) == (pytest.approx(2 / 3), pytest.approx(0.5 / 3))
    assert (kevin["fast_1"], evo["fast_1"]) == (pytest.approx(1 / 3), 0)
    assert kevin["correct_low"] <= kevin["correct"] <= kevin["correct_high"]


def test_for_people_it_says_what_is_ours_and_what_was_published(files: tuple[Path, list[Path]]) -> None:
    rows(files)
    folder = files[0].parent
    lines = re.sub(" +", " ", (folder / "field.md").read_text()).splitlines()
    (kevin,) = (line for line in lines if line.startswith("| Kevin ("))
    assert "| 192 | 4 | 3 | 33 % (0–100) | 0.67× (0.00–2.00) | 33 % (0–100) | 82 % solved" in kevin
    (agent,) = (line for line in lines if line.startswith("| CUDA Agent ("))
    assert "| – | – | – | – | – | – | 98.8 % pass" in agent
    assert "kernels_training" not in "".join(lines) and "Dr. Kernel" in (folder / "field.tex").read_text()


def test_what_was_not_measured_has_no_number_and_what_was_published_stands(files: tuple[Path, list[Path]]) -> None:
    table = rows(files)
    assert list(table.index) == [s.system for s in (BASE, *SYSTEMS, BAM)]
    numbers = table.loc[["base", "dr_kernel", "cuda_agent", "cudaforge", "bam"], ["correct", "speedup", "kernels_test"]]
    assert numbers.isna().all(axis=None)
    assert (
        "31.6 %" in table.loc["dr_kernel", "published"] and "2602.05885" in table.loc["dr_kernel", "published_source"]
    )
    assert pd.isna(table.loc["dr_kernel", "published_hardware"])
    assert "trains no kernels" in table.loc["bam", "here"]


def test_a_configuration_without_the_systems_has_their_published_figures_alone(
    files: tuple[Path, list[Path]],
) -> None:
    study = load_study([ROOT / "config/config.yaml"])
    assert field_rollouts(study) == {"base": ("base", None)}
    assert rows(files, study)["correct"].isna().all()


def test_unequal_kernels_are_warned_of(files: tuple[Path, list[Path]], caplog: pytest.LogCaptureFixture) -> None:
    tasks, (first, second) = files
    turns = [make_turn(task.id, 0, 1, Outcome.INCORRECT) for task, _ in make_tasks()[:3]]
    logging.getLogger("kevin").propagate = True
    rows(files)
    assert "equal kernels" not in caplog.text
    write_turns(second, turns, {"policy": "base", "split": "level1", "strategy": "evoengineer"})
    rows((tasks, [first, second]))
    assert "equal kernels of a task at test: 1 to 4" in caplog.text


def test_a_file_that_is_no_rollout_is_named(files: tuple[Path, list[Path]]) -> None:
    tasks, (first, _) = files
    write_turns(first, [], {})
    with pytest.raises(DataError, match=f"{first}: not a rollout"):
        rows((tasks, [first]))
