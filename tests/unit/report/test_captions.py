"""What people read: a caption for each table and figure, and what a training's cut or a miniature means for numbers."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from cli_fixtures import ROOT
from report_fixtures import GOLDEN, make_study, write_scores, write_study
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core.errors import DataError
from kevin.core.files import read_parquet, write_parquet
from kevin.report.captions import CATEGORIES, MINIATURE, caption_of, captions, read_note, read_summaries
from kevin.report.catalogue import FIGURES, TABLES, make_figure, make_table
from kevin.report.html import make_report
from kevin.report.scores import hardware, machines, read_scores, write_answers

CAPTIONS = captions()
OF_THE_JUDGE = {"tables/attacks", "tables/judge_errors", "tables/judge_errors_rows"}


def test_there_is_one_for_each_table_and_figure_and_no_other() -> None:
    made = {*(f"tables/{name}" for name in TABLES), *(f"figures/{name}" for name in FIGURES)}
    assert set(CAPTIONS) == made | OF_THE_JUDGE | {"pages/report"}
    assert [key for key, own in CAPTIONS.items() if key.startswith("figures/") and not own.title.endswith("?")] == []
    assert {caption.category for caption in CAPTIONS.values()} <= set(CATEGORIES)


@pytest.mark.parametrize("name", CAPTIONS)
def test_titles_and_captions_hold_no_names_of_columns(name: str) -> None:
    caption = CAPTIONS[name]
    assert re.findall(r"\w+_\w+", f"{caption.title} {caption.text}") == []
    assert caption.title[0].isupper() and caption.text.endswith(".")
    assert len(caption.text) > 40


def test_every_reported_file_has_its_caption_from_there() -> None:
    """A rule that gives a caption of its own, or a category, passes the check of names by."""
    calls = [
        (rules.name, call)
        for rules in (ROOT / "rules").glob("*.smk")
        for call in re.findall(r"\breport\((.*?)\),\n", rules.read_text(), re.DOTALL)
    ]
    assert len(calls) >= 5
    assert [(name, call) for name, call in calls if "**REPORTED" not in call] == []


def test_a_missing_caption_is_named() -> None:
    with pytest.raises(DataError, match=r"new\.csv has no caption: write tables/new in .*captions\.yaml"):
        caption_of("results/tables/new.csv")


BASE = {"num_steps": 900, "planned_steps": 1500, "budget_bit": True, "time_budget_s": 120.0, "loss": 0.31,
        "correct_share": 0.12, "expected_loss": 0.25, "expected_correct_share": 0.28}  # fmt: skip
RUN = {"run": "p1", "num_steps": 10, "reason": "time budget", "elapsed_s": 270.0, "planned_steps": 18,
       "budget_bit": True, "num_correct": 30, "num_kernels": 128}  # fmt: skip
NOTE = (
    "Made under a time budget that cut the training of the base model to 900 of 1,500 steps (12 % of its kernels "
    "correct, at least 28 % expected) and multi-turn RL to 10 of 18 steps; with all steps the numbers would differ."
)


def write(path: Path, summary: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary))
    return path


@pytest.fixture
def cut(tmp_path: Path) -> list[Path]:
    return [write(tmp_path / "base_model/summary.json", BASE), write(tmp_path / "train/p1/summary.json", RUN)]


def test_one_sentence_names_every_training_that_was_cut(cut: list[Path]) -> None:
    study = make_study(2)
    assert read_note(cut, study) == NOTE
    assert read_note(cut[1:], study) == (
        "Made under a time budget that cut the training of multi-turn RL to 10 of 18 steps; with all steps the numbers "
        "would differ."
    )


def test_a_miniature_says_so_first(cut: list[Path]) -> None:
    study = make_study(2)
    miniature = study.model_copy(update={"report": study.report.model_copy(update={"miniature": True})})
    assert read_note([], miniature) == MINIATURE and "no number here means anything" in MINIATURE
    assert read_note(cut, miniature) == f"{MINIATURE} {NOTE}"


@pytest.mark.slow
def test_kernels_of_different_machines_are_told_wherever_their_speedups_stand(tmp_path: Path) -> None:
    """Of a published file of answers too; a machine that is not known is none.

    Five seconds: tables and the page, for two machines.
    """
    study = make_study(2)
    made = write_study(tmp_path, study)
    frame, kind, told = read_parquet(made["turns"][0], "turns")[0], "turns", {"commit": "abc", "gpus": []}
    for machine in ({"cpu": "A node that only asks", "judged_on": ["A CPU"]}, {"cpu": None}):
        write_parquet(made["turns"][0], frame, kind, told | machine)
        assert read_note([], study, write_scores(tmp_path, study, made)) is None
    write_parquet(made["turns"][0], frame, kind, told | {"cpu": "A CPU", "judged_on": ["Another", "A CPU"]})
    scores = write_scores(tmp_path, study, made)
    said = read_note([], study, scores)
    assert said is not None and said.startswith("Kernels were judged on different hardware (Another; A CPU): ")
    write_answers(read_scores(scores, study), published := tmp_path / "answers.csv", machines(scores, study), study)
    assert read_note([], study, [published]) == said
    assert hardware([published], study) == "Another, A CPU"
    table = make_table("turns", tmp_path / "turns.csv", study=study, scores=scores)
    assert set(pd.read_csv(table)["note"]) == {said} and said in table.with_suffix(".md").read_text()
    make_figure("outcomes", tmp_path, study=study, scores=scores)
    assert set(pd.read_csv(tmp_path / "outcomes.csv")["note"]) == {said}


@pytest.mark.parametrize(
    "summary", [RUN | {"budget_bit": False}, {"run": "p1", "num_steps": 18, "reason": "done", "elapsed_s": 99.5}]
)
def test_nothing_is_said_of_a_full_training_or_of_an_older_summary(tmp_path: Path, summary: dict[str, Any]) -> None:
    paths = [write(tmp_path / "summary.json", summary), tmp_path / "base_model" / "summary.json"]
    assert read_note(paths, make_study(2)) is None


@pytest.mark.parametrize("text", ["", "[1]", '{"budget_bit": "perhaps"}'])
def test_a_broken_summary_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(DataError, match=r"summary\.json: not a summary of a training"):
        read_summaries([tmp_path / "summary.json"])


def test_the_page_says_it_once(tmp_path: Path, cut: list[Path]) -> None:
    study = make_study(2)
    files = write_study(tmp_path, study, num_trajectories=2, num_turns=2)
    given = {"study": study, "scores": write_scores(tmp_path, study, files), "summaries": cut}
    table = make_table("tasks", tmp_path / "tasks.csv", **given)
    out = tmp_path / "report.html"
    make_report(out, tables=[table], figures=[], turns=files["turns"], tasks=files["tasks"][0], **given)
    page = html.unescape(out.read_text())
    assert page.split('<p class="lead">')[1].split("</p>")[0].count(NOTE) == page.count(NOTE) == 1


def test_the_commands_take_summaries(tmp_path: Path, cut: list[Path]) -> None:
    study = make_study(2)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(study.model_dump(mode="json")))
    scores = ["--scores", str(GOLDEN / "answers.csv")]
    common = ["--config", str(tmp_path / "config.yaml"), *(arg for path in cut for arg in ("--summaries", str(path)))]
    out = tmp_path / "level1.csv"
    done = CliRunner().invoke(app, ["table", "level1", *common, *scores, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert set(pd.read_csv(out)["note"]) == {NOTE}
