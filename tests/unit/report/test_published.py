"""A published folder makes the same tables as the study's own files, and holds every kernel that was judged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_fixtures import ROOT
from report_fixtures import make_study, make_turn, write_scores, write_study
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core.config import Study, load_study
from kevin.core.errors import DataError
from kevin.core.files import read_tasks, read_turns, write_parquet, write_turns
from kevin.core.types import Outcome, Timing, Verdict
from kevin.report.catalogue import OF_SCORES, make_table
from kevin.report.published import KERNELS, Published, make_published_tables, publish, read_kernels
from kevin.report.scores import hardware, read_scores

STORED = ROOT / "results/reference/laptop/published"


@pytest.fixture(scope="module")
def study() -> Study:
    own = make_study(2)
    search = {
        "strategies": {"parallel": {"rollout": {"num_turns": 1}}, "serial": {}},
        "compared": ["parallel", "serial"],
    }
    return Study.model_validate(own.model_dump() | {"search": search})


@pytest.fixture(scope="module")
def made(study: Study, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    root = tmp_path_factory.mktemp("made")
    files = write_study(root, study)
    files["root"], files["store"] = [root], [root / "store"]
    turns, meta = read_turns(files["turns"][0])
    write_turns(files["turns"][0], [turns[0].model_copy(update={"verdict_key": "ab12"}), *turns[1:]], meta)
    files["scores"] = write_scores(root, study, files)
    tasks = read_tasks(files["tasks"][0])
    files["search"] = []
    for policy in study.evaluate:
        for strategy, (m, n) in {"parallel": (8, 1), "serial": (2, 4)}.items():
            for split in ("level1", "level2"):
                own = [t for t in tasks if t.level == int(split[5:])]
                turns = [
                    make_turn(t.id, k, i, Outcome.CORRECT, 1.0 + 0.3 * i + 0.1 * k)
                    for t in own
                    for k in range(m)
                    for i in range(1, n + 1)
                ]
                path = root / "search" / strategy / f"{policy}-{split}" / "turns.parquet"
                meta = {"policy": policy, "strategy": strategy, "split": split, "turn_seconds": [1.5] * n}
                write_turns(path, turns, meta)
                files["search"].append(path)
    (root / "train/summary.json").parent.mkdir()
    (root / "train/summary.json").write_text(json.dumps({"run": "p1", "num_steps": 3}))
    step = {"step": 1, "num_kernels": 8, "seconds": {"generate": 1.0, "judge": 2.0, "model": 1.0, "step": 5.0}}
    (root / "train/metrics.jsonl").write_text(json.dumps(step) + "\n")
    files["summaries"] = [root / "train/summary.json"]
    return files


@pytest.fixture(scope="module")
def folder(study: Study, made: dict[str, list[Path]]) -> Path:
    timing = Timing(median_us=20.0, iqr_us=1.0, min_us=19.0, num_samples=9)
    verdict = Verdict(
        key="ab12", task_digest="t", kernel_digest="k", protocol_digest="p", device_name="A CPU",
        outcome=Outcome.CORRECT, timing=timing, reference_timing=timing.model_copy(update={"median_us": 50.0}),
    )  # fmt: skip
    path = made["store"][0] / "ab" / "ab12.json"
    path.parent.mkdir(parents=True)
    path.write_text(verdict.model_dump_json())
    one = {name: made[name][0] for name in ("tasks", "baselines", "store")}
    many = {name: made[name] for name in ("scores", "turns", "search", "summaries")}
    return publish(made["root"][0] / "published", study=study, **one, **many)


@pytest.fixture
def published(folder: Path, tmp_path: Path) -> Path:
    """A copy of the answers, to be changed."""
    return shutil.copytree(folder, tmp_path / "copy") / "answers.csv"


def test_every_table_is_the_same_to_the_last_digit(
    study: Study, made: dict[str, list[Path]], folder: Path, tmp_path: Path
) -> None:
    """Ten seconds: every table with intervals, made twice."""
    again = {path.stem: path for path in make_published_tables(folder, tmp_path / "again", study)}
    shown = [name for name in OF_SCORES if name not in {"level3", "level4", "unseen"}]
    assert set(again) == {*shown, "step_time", "search", "search_turns"}
    given: dict[str, Any] = {"study": study, "summaries": made["summaries"]}
    for name in ("primary", "claims", "table2", "level2", "turns", "tasks"):
        out = tmp_path / f"own/{name}.csv"
        files = {"scores": made["scores"], "baselines": made["baselines"][0], "search": made["search"]}
        own = make_table(name, out, **files, **given)
        for form in (".csv", ".md", ".tex"):
            assert own.with_suffix(form).read_text() == again[name].with_suffix(form).read_text(), name
    for name in ("search", "search_turns"):
        out = tmp_path / f"own/{name}.csv"
        own = make_table(name, out, search=made["search"], tasks=made["tasks"][0], **given)
        assert own.read_text() == again[name].read_text(), name


def test_every_kernel_is_there_once_with_its_task_and_times(
    study: Study, made: dict[str, list[Path]], folder: Path
) -> None:
    files = Published(folder)
    kernels = [row for row, _ in read_kernels(files)]
    turns = [t for path in (*made["turns"], *made["search"]) for t in read_turns(path)[0]]
    judged = {(t.task_id, t.kernel.digest): t for t in turns if t.kernel is not None and t.outcome is not None}
    assert [(row["task_id"], row["kernel_digest"]) for row in kernels] == sorted(judged)
    assert {row["task_id"] for row in kernels} <= {task.id for task in read_tasks(files.tasks)}
    timed = [row for row in kernels if row["median_us"] is not None]
    assert [(row["median_us"], row["eager_us"], row["device_name"]) for row in timed] == [(20.0, 50.0, "A CPU")]
    answers = pd.read_csv(files.answers)
    named = answers.dropna(subset=["kernel_digest", "outcome"])
    assert set(zip(named["task_id"], named["kernel_digest"], strict=True)) == {(t, d[:12]) for t, d in judged}
    assert set(answers["strategy"].dropna()) == {"parallel", "serial"}
    about = (folder / "README.md").read_text()
    assert f"{len(kernels):,} distinct kernels" in about and "Apache-2.0" in about and "--published" in about


def test_a_kernel_that_was_changed_is_found_out(folder: Path, tmp_path: Path) -> None:
    files = Published(shutil.copytree(folder, tmp_path / "copy"))
    frame = pd.read_parquet(files.kernels)
    write_parquet(files.kernels, frame.assign(source=frame["source"] + "//"), KERNELS, {})
    with pytest.raises(DataError, match="a kernel is not what its digest says"):
        read_kernels(files)


def test_scores_are_read_back(study: Study, made: dict[str, list[Path]], folder: Path) -> None:
    answers = folder / "answers.csv"
    own, other = read_scores(made["scores"], study), read_scores([answers], study)
    hidden = ["verdict_key", "kernel_digest"]
    pd.testing.assert_frame_equal(own.drop(columns=hidden), other.drop(columns=hidden))
    assert own["kernel_digest"].nunique() == other["kernel_digest"].nunique() and other["verdict_key"].isna().all()
    assert hardware([answers], study) == hardware(made["scores"], study) == "A CPU"
    assert json.loads((folder / "answers.json").read_text())["config_digest"] == study.digest


def frames_agree(one: Path, other: Path) -> None:
    """Text and counts exactly, other numbers within 1e-9."""
    a, b = (pd.read_csv(path) for path in (one, other))
    assert list(a.columns) == list(b.columns) and len(a) == len(b), one.name
    for column in a.columns:
        if pd.api.types.is_float_dtype(a[column]):
            assert np.allclose(a[column], b[column], rtol=1e-9, atol=1e-9, equal_nan=True), (one.name, column)
        else:
            assert a[column].astype(object).where(a[column].notna(), None).tolist() == (
                b[column].astype(object).where(b[column].notna(), None).tolist()
            ), (one.name, column)


def test_a_stored_study_s_tables_are_made_again_from_its_folder(tmp_path: Path) -> None:
    """Of a study that ran once, on another processor. Over five seconds: every table of it."""
    study = load_study([STORED / "config.yaml"], judges=False)
    made = make_published_tables(STORED, tmp_path, study)
    stored = {path.name for path in (STORED.parent / "tables").glob("*.csv")}
    assert {path.name for path in made} == stored - {"search.csv"}, "searches were made after it was published"
    for path in made:
        frames_agree(STORED.parent / "tables" / path.name, path)


def test_answers_of_before_have_fewer_columns_and_name_their_gpus(study: Study, published: Path) -> None:
    few = ["policy", "split", "task_id", "trajectory", "turn", "outcome", "reason", "speedup", "num_completion_tokens"]
    frame = pd.read_csv(published).query("strategy.isna()")
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


def test_by_hand(study: Study, made: dict[str, list[Path]], tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(study.model_dump_json(exclude={"judge": {"version"}}))
    given = [a for name in ("scores", "turns", "search") for path in made[name] for a in (f"--{name}", str(path))]
    given += [a for name in ("tasks", "store", "baselines") for a in (f"--{name}", str(made[name][0]))]
    out = tmp_path / "published"
    run = CliRunner().invoke(app, ["publish", "--config", str(config), *given, "--out", str(out)])
    assert run.exit_code == 0, run.output
    answers = ["--scores", str(out / "answers.csv"), "--out", str(tmp_path / "level1.csv")]
    run = CliRunner().invoke(app, ["table", "level1", "--config", str(out / "config.yaml"), *answers])
    assert run.exit_code == 0, run.output
    assert set(pd.read_csv(tmp_path / "level1.csv")["policy"]) >= {"p0", "p1"}
