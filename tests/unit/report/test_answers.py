"""Published answers make the same tables as the study's own files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import make_study, write_scores, write_study
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import write_turns
from kevin.report.answers import write_answers
from kevin.report.scores import hardware, machines, read_scores
from kevin.report.tables import TABLES, make_table


@pytest.fixture(scope="module")
def study() -> Study:
    return make_study(2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def made(study: Study, folder: Path) -> dict[str, list[Path]]:
    return write_study(folder, study)


@pytest.fixture(scope="module")
def scores(study: Study, made: dict[str, list[Path]], folder: Path) -> list[Path]:
    return write_scores(folder, study, made)


@pytest.fixture(scope="module")
def answers(study: Study, made: dict[str, list[Path]], scores: list[Path], folder: Path) -> Path:
    out = folder / "published/answers.csv"
    write_answers(read_scores(scores, study), out, machines(scores, study), study, made["baselines"][0])
    return out


@pytest.fixture
def published(answers: Path, tmp_path: Path) -> Path:
    """A copy, which a test may change."""
    return shutil.copytree(answers.parent, tmp_path / "published") / "answers.csv"


def test_every_table_is_the_same_to_the_last_digit(
    study: Study, made: dict[str, list[Path]], scores: list[Path], published: Path, tmp_path: Path
) -> None:
    baselines, again = made["baselines"][0], published.with_name("baselines.csv")
    for name in TABLES:
        if name in {"level3", "level4", "unseen"}:
            continue
        own = make_table(name, scores, tmp_path / f"own/{name}.csv", study=study, baselines=baselines)
        other = make_table(name, [published], tmp_path / f"again/{name}.csv", study=study, baselines=again)
        for form in (".csv", ".md", ".tex"):
            assert own.with_suffix(form).read_text() == other.with_suffix(form).read_text(), name


def test_tasks_that_the_kernel_writer_does_not_know_have_tables_without_a_ceiling(
    study: Study, made: dict[str, list[Path]], tmp_path: Path
) -> None:
    for path in made["turns"]:
        if path.parent.name.startswith("ceiling"):
            write_turns(path, [], {"cpu": "A CPU", "gpus": [], "judged_on": []})
    scores = write_scores(tmp_path, study, made)
    out = tmp_path / "published/answers.csv"
    write_answers(read_scores(scores, study), out, machines(scores, study), study, made["baselines"][0])
    for name in ("claims", "worth", "table1", "table2", "level1", "turns", "mended", "pass_at_k", "tasks"):
        own = make_table(name, scores, tmp_path / f"own/{name}.csv", study=study, baselines=made["baselines"][0])
        assert "ceiling" not in own.read_text().split(",")
        other = make_table(name, [out], tmp_path / f"{name}.csv", study=study, baselines=out.with_name("baselines.csv"))
        assert own.read_text() == other.read_text()


def test_nothing_that_was_written_is_published_and_all_that_is_counted(
    study: Study, scores: list[Path], published: Path
) -> None:
    own, other = read_scores(scores, study), read_scores([published], study)
    hidden = ["verdict_key", "kernel_digest"]
    pd.testing.assert_frame_equal(own.drop(columns=hidden), other.drop(columns=hidden))
    assert own["kernel_digest"].nunique() == other["kernel_digest"].nunique() and other["verdict_key"].isna().all()
    assert hardware([published], study) == hardware(scores, study) == "A CPU"
    assert json.loads(published.with_suffix(".json").read_text())["config_digest"] == study.digest


def test_answers_of_before_have_fewer_columns_and_name_their_gpus(study: Study, published: Path) -> None:
    few = ["policy", "split", "task_id", "trajectory", "turn", "outcome", "reason", "speedup", "num_completion_tokens"]
    frame = pd.read_csv(published)
    frame[few].to_csv(published, index=False)
    published.with_suffix(".json").unlink()
    gpu = study.model_copy(update={"judge": study.judge.model_copy(update={"device": "cuda"})})
    published.with_name("provenance.json").write_text('{"gpus": [{"name": "A GPU"}, {"name": "A GPU"}], "cpu": "B"}')
    assert hardware([published], gpu) == "A GPU" and hardware([published], study) == "B"
    read = read_scores([published], study)
    assert read["level"].tolist() == frame["level"].tolist() and not read["flawed"].any()
    published.with_name("provenance.json").unlink()
    assert hardware([published], study) == "unknown hardware"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop(columns=["speedup", "outcome"]), "no column outcome, speedup"),
        (lambda f: f.assign(outcome="fine"), "unknown outcome 'fine'; there are .*correct"),
        (lambda f: f.assign(outcome="correct", speedup=None), "l1/.*, trajectory 0: a correct kernel needs"),
        (lambda f: f.assign(turn=1), "turns of .*, trajectory 0, are not in order"),
        (lambda f: f.assign(turn="first"), "column turn holds something that is no whole number"),
        (lambda f: f.assign(turn=[None, *f["turn"][1:]]), "column turn holds something that is no whole number"),
        (lambda f: f.assign(speedup="fast"), "column speedup holds something that is no number"),
    ],
)
def test_what_is_no_such_file_is_told(study: Study, published: Path, change, said: str) -> None:
    change(pd.read_csv(published)).to_csv(published, index=False)
    with pytest.raises(DataError, match=rf"answers\.csv: .*{said}"):
        read_scores([published], study)
    with pytest.raises(DataError, match=r"none\.csv: answers cannot be read"):
        read_scores([published.with_name("none.csv")], study)


def test_by_hand(study: Study, scores: list[Path], tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(study.model_dump_json(exclude={"judge": {"version"}}))
    given = [a for path in scores for a in ("--scores", str(path))]
    out = tmp_path / "out/answers.csv"
    run = CliRunner().invoke(app, ["answers", "--config", str(config), *given, "--out", str(out)])
    assert run.exit_code == 0, run.output
    table = ["table", "level1", "--config", str(config), "--scores", str(out), "--out", str(tmp_path / "level1.csv")]
    run = CliRunner().invoke(app, table)
    assert run.exit_code == 0, run.output
    assert set(pd.read_csv(tmp_path / "level1.csv")["policy"]) >= {"p0", "p1"}
