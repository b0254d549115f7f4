"""Which files a study has, and of which others each is made: functions of its configuration, without Snakemake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from workflow_fixtures import study_of

from kevin.core.errors import ConfigError, UsageError
from kevin.report.catalogue import FIGURES, TABLES, reads
from kevin.workflow.targets import Targets, options, repeat


def targets_of(*names: str, **sections: Any) -> Targets:
    return Targets(study_of(*names, **sections))


@pytest.mark.parametrize(
    ("tasks", "splits"),
    [
        ({"source": "catalog"}, ["level1", "level2"]),
        ({"source": "kernelbench", "num_eval_level2": 0}, ["level1", "level2"]),
        ({"source": "kernelbench", "num_eval_level2": 5, "kernelbench": {"path": "mine"}}, ["level1", "level2"]),
        ({"source": "kernelbench", "num_eval_level2": 5}, ["level1", "level2", "unseen"]),
        ({"source": "both", "kernelbench": {"levels": [1, 2, 3]}}, ["level1", "level2", "level3"]),
    ],
)
def test_splits_follow_from_the_source_of_tasks(tasks: dict[str, Any], splits: list[str]) -> None:
    targets = targets_of(tasks=tasks)
    assert targets.splits == splits
    tables = [Path(table).stem for table in targets.tables]
    assert [name for name in tables if re.fullmatch(r"level\d|unseen", name)] == splits


def test_every_pair_is_compared_but_the_ceiling_on_whole_networks() -> None:
    targets = targets_of(tasks={"source": "both", "kernelbench": {"levels": [1, 2, 3]}})
    assert targets.compared[-1] == "ceiling"
    last = [turns for turns in targets.turns if "/ceiling-" in turns]
    assert last == [f"results/rollouts/ceiling-{split}/turns.parquet" for split in ("level1", "level2")]
    assert len(targets.scores) == len(targets.turns) == len(targets.compared) * 3 - 1


def test_modules_have_no_ceiling() -> None:
    assert "ceiling" not in targets_of("gpu", dialect="load_inline").compared


def test_a_policy_of_the_ceiling_s_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policies\.ceiling: this name is taken"):
        targets_of(policies={"ceiling": {"model": "x"}})


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_made_of_what_the_catalogue_says(name: str) -> None:
    files = targets_of("field", search={"compared": ["parallel"]}).of_table(name)
    needed = set(reads(TABLES[name]))
    assert files.keys() - {"trainings"} == needed - {"store"}
    assert all(path.startswith("results/field/") for paths in files.values() for path in paths)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_made_of_what_the_catalogue_says(name: str) -> None:
    files = targets_of().of_figure(name)
    assert files.keys() - {"trainings"} == set(reads(FIGURES[name])) - {"store"}


def test_a_figure_of_a_table_is_made_of_it_alone() -> None:
    assert targets_of().of_figure("primary") == {"table": ["results/tables/primary.csv"]}


def test_trainings_behind_the_numbers_are_the_base_model_s_and_the_runs_that_are_compared() -> None:
    targets = targets_of()
    runs = [f"results/train/{run}/summary.json" for run in ("rl_single", "rl_multi")]
    assert sorted(targets.trainings) == ["results/base_model", *sorted(runs)]
    assert targets.of_table("turns")["trainings"] == targets.trainings
    assert "trainings" not in targets.of_table("step_time"), "their summaries go with the runs"
    of_figure = targets.of_figure("training")
    assert (sorted(of_figure.pop("runs")), of_figure) == (sorted(runs), {"trainings": ["results/base_model"]})


def test_training_is_drawn_of_runs_that_differ_in_remedies_where_none_is_compared() -> None:
    ablations = study_of("ablations")
    runs = [Path(path).parent.name for path in Targets(ablations).of_figure("training")["runs"]]
    assert len(runs) == 4
    assert all(ablations.runs[run].train.keys() <= {"seed", "loss", "max_grad_norm"} for run in runs)
    every = [Path(path).parent.name for path in Targets(ablations).of_figure("ablations")["runs"]]
    assert every == list(ablations.runs)


def test_a_figure_of_before_says_what_is_in_its_place() -> None:
    with pytest.raises(UsageError, match="no figure training_turns any more"):
        Targets(study_of()).of_figure("training_turns")


def test_strategies_are_read_where_they_are_compared_or_asked_for() -> None:
    plain, compared = targets_of(), targets_of(search={"compared": ["parallel", "serial"]})
    assert "search" not in plain.of_table("primary") and "results/tables/search.csv" not in plain.tables
    assert plain.of_table("search")["search"] == plain.search != []
    assert compared.of_table("primary")["search"] == compared.search
    assert "results/tables/search.csv" in compared.tables and "results/figures/search.png" in compared.figures
    names = {path.split("/")[2] for path in compared.search}
    assert names == {"parallel", "serial"}


def test_an_own_policy_is_made_by_the_study() -> None:
    targets = targets_of(policies={"other": {"backend": "openai", "model": "m"}})
    assert targets.model("base") == ["results/base_model"]
    assert targets.model("rl_multi") == ["results/policies/rl_multi"]
    assert targets.model("other") == targets.check("other") == targets.check("ceiling") == []
    assert targets.check("rl_multi") == targets.check("base") == ["results/checks/base_model.json"]


def test_a_pretraining_goes_on_from_weights_and_from_judged_kernels() -> None:
    assert targets_of().pretrained_from == {}
    gpu = targets_of("gpu")
    assert options(gpu.pretrained_from) == (
        "--weights results/gpu/pretrained --past-tasks results/gpu/past/tasks.parquet"
        " --past results/gpu/past/written/turns.parquet"
    )
    folder = targets_of("gpu", base_model={"init": "HuggingFaceTB/SmolLM2-135M-Instruct"})
    assert folder.pretrained_from.keys() == {"past_tasks", "past"}, "it needs no unpacking"
    first_turns = targets_of("gpu", base_model={"pretraining": {"later_share": 0}})
    assert first_turns.pretrained_from.keys() == {"weights"}


def test_options_name_each_file_and_of_a_run_its_folder() -> None:
    files = {"runs": ["r/train/a/summary.json"], "scores": ["r/a b.parquet", "r/c.parquet"], "trainings": ["r/base"]}
    assert options(files) == (
        "--run-dir r/train/a --scores 'r/a b.parquet' --scores r/c.parquet"
        " --summaries r/base/summary.json --summaries r/train/a/summary.json"
    )
    assert options(files, "scores") == "--scores 'r/a b.parquet' --scores r/c.parquet"
    assert options({}) == repeat("--out", []) == ""
