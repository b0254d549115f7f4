"""A published folder makes the same tables as the study's own files, and holds every kernel that was judged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli_fixtures import ROOT
from core_fixtures import make_verdict
from huggingface_hub import ModelCard
from report_fixtures import make_study, make_turns, write_scores, write_study
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core.config import Study, load_study
from kevin.core.errors import DataError
from kevin.core.files import (
    TRAIN_TURNS,
    read_parquet,
    read_tasks,
    read_train_turns,
    read_turns,
    turns_frame,
    write_parquet,
    write_turns,
)
from kevin.core.types import Outcome
from kevin.report.catalogue import make_table
from kevin.report.published import (
    COLUMNS,
    KERNELS,
    Published,
    make_published_tables,
    model_card,
    publish,
    read_kernels,
)
from kevin.report.scores import hardware, read_scores

STORED = ROOT / "results/reference/laptop/published"
ONE_ARM = ROOT / "results/reference/nvidia-h200/replicates/rl_multi-3/published"


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
                turns = make_turns(own, 0.6, len(files["search"]), m, n)
                path = root / "search" / strategy / f"{policy}-{split}" / "turns.parquet"
                meta = {"policy": policy, "strategy": strategy, "split": split, "turn_seconds": [1.5] * n}
                write_turns(path, turns, meta)
                files["search"].append(path)
    (root / "train/summary.json").parent.mkdir()
    (root / "train/summary.json").write_text(json.dumps({"run": "p1", "num_steps": 3}))
    step = {"step": 1, "num_kernels": 8, "seconds": {"generate": 1.0, "judge": 2.0, "model": 1.0, "step": 5.0}}
    (root / "train/metrics.jsonl").write_text(json.dumps(step) + "\n")
    files["summaries"] = [root / "train/summary.json"]
    answered = turns_frame(turns[:40]).assign(score=0.5, **{"return": 0.5, "advantage": 0.0})
    for number, played in {1: answered[:24], 2: answered[16:]}.items():
        write_parquet(root / f"train/turns/step_{number:05d}.parquet", played, TRAIN_TURNS, {})
    files["tables"] = [root / "tables/primary.csv", root / "tables/claims.csv"]
    files["models"] = [root / "policies/p0", root / "policies/p1"]
    for name, text in {
        "tables/primary.csv": "policy\n",
        "tables/primary.md": "| policy | speedup |\n",
        "tables/claims.csv": "claim\n",
        "policies/p0/config.json": "{}",
        "policies/p0/model.safetensors": "merged weights",
        "policies/p0/LICENSE": "Apache License\nVersion 2.0\n",
        "policies/p0/adapter/adapter_config.json": "{}",
        "policies/p0/adapter/adapter_model.safetensors": "adapter",
        "policies/p1/config.json": "{}",
        "policies/p1/model.safetensors": "weights",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return files


@pytest.fixture(scope="module")
def folder(study: Study, made: dict[str, list[Path]]) -> Path:
    verdict = make_verdict(Outcome.CORRECT, key="ab12", kernel_us=20.0, eager_us=50.0)
    path = made["store"][0] / "ab" / "ab12.json"
    path.parent.mkdir(parents=True)
    path.write_text(verdict.model_dump_json())
    one = {name: made[name][0] for name in ("tasks", "baselines", "store")}
    many = {name: made[name] for name in ("scores", "turns", "search", "summaries", "tables", "models")}
    return publish(made["root"][0] / "published", study=study, **one, **many)


@pytest.fixture
def published(folder: Path, tmp_path: Path) -> Path:
    """A copy of the answers, to be changed."""
    return shutil.copytree(folder, tmp_path / "copy") / "answers.csv"


def test_its_tables_are_those_of_the_study_s_own_files(
    study: Study, made: dict[str, list[Path]], folder: Path, tmp_path: Path
) -> None:
    """To the last digit: one of baselines, of rollouts of strategies, and what says that is all."""
    published = Published(folder)
    given: dict[str, Any] = {"study": study, "summaries": made["summaries"]}
    theirs = {"scores": made["scores"], "baselines": made["baselines"][0], "search": made["search"]}
    ours = {"scores": [published.answers], "baselines": published.baselines, "search": [published.answers]}
    for name in ("level2", "table2", "search", "search_turns"):
        for who, files in (("theirs", theirs), ("ours", ours)):
            make_table(name, tmp_path / who / f"{name}.csv", tasks=made["tasks"][0], **files, **given)
        for form in (".csv", ".md", ".tex"):
            assert (tmp_path / f"ours/{name}{form}").read_text() == (tmp_path / f"theirs/{name}{form}").read_text()


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


def test_every_kernel_that_a_training_judged_is_there_once(made: dict[str, list[Path]], folder: Path) -> None:
    kernels, meta = read_parquet(folder / "trainings/p1/kernels.parquet", KERNELS)
    turns = [turn for _, turn, _ in read_train_turns(made["root"][0] / "train")]
    judged = {(t.task_id, t.kernel.digest): t.kernel.source for t in turns if t.kernel is not None}
    assert 2 < len(judged) < len(turns) and meta["run"] == "p1"
    assert len(kernels) == len(judged)
    assert {(k.task_id, k.kernel_digest): k.source for k in kernels.itertuples()} == judged


def card(folder: Path) -> tuple[dict[str, Any], str]:
    """Front matter, as Hugging Face reads it, and text."""
    found = ModelCard.load(folder / "README.md")
    return found.data.to_dict(), found.text


def test_a_model_card_stands_beside_adapters_models_and_tables(made: dict[str, list[Path]], folder: Path) -> None:
    front, text = card(folder)
    assert (front["license"], front["library_name"]) == ("apache-2.0", "peft")
    assert (folder / "p0/LICENSE").exists() and front["tags"] == ["kevin-study", "kernel-generation", "c++"]
    assert "| policy | speedup |" in text and "`p0/`: an adapter." in text and "`p1/`: a model." in text
    assert "rehearsal" not in text.lower()
    assert (folder / "p0/adapter_model.safetensors").read_text() == "adapter" and not (
        folder / "p0/config.json"
    ).exists()
    assert (folder / "p1/model.safetensors").samefile(made["models"][1] / "model.safetensors")
    assert sorted(path.name for path in (folder / "tables").iterdir()) == ["claims.csv", "primary.csv", "primary.md"]


def test_origin_and_licence_follow_the_model_that_training_began_with(study: Study, tmp_path: Path) -> None:
    kernels = pd.DataFrame(columns=COLUMNS)

    def front(model: str, **changes: Any) -> dict[str, Any]:
        raw = study.model_dump(mode="json") | changes
        raw["policies"] = {"p0": {"model": model}, "a": {}}
        raw |= {"evaluate": ["p0", "a"], "runs": {"a": {}}, "train": {"init": "p0"}, "results": str(tmp_path)}
        (tmp_path / "README.md").write_text(model_card(Study.model_validate(raw), kernels, {}, [], None))
        return card(tmp_path)[0]

    coder = front("Qwen/Coder-7B", tasks={"source": "kernelbench"}, report={"miniature": True})
    assert coder["base_model"] == "Qwen/Coder-7B" and coder["datasets"] == ["ScalingIntelligence/KernelBench"]
    assert (coder["license"], coder["license_link"]) == ("other", "https://huggingface.co/Qwen/Coder-7B")
    assert {"grpo", "rehearsal"} <= set(coder["tags"])
    snapshot = tmp_path / "models--Qwen--Coder-7B/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "README.md").write_text("---\nlicense: apache-2.0\n---\nA model.\n")
    downloaded = front(str(snapshot))
    assert (downloaded["base_model"], downloaded["license"]) == ("Qwen/Coder-7B", "apache-2.0")
    own = front(f"{tmp_path}/base_model")
    assert "base_model" not in own and own["license"] == "apache-2.0"
    packed = front(f"{tmp_path}/base_model", base_model={"init": "package:a-model"})
    assert packed["license"] == "other" and "license_link" not in packed, "no such file lies beside the card"


def test_what_is_no_model_is_not_published(study: Study, made: dict[str, list[Path]], tmp_path: Path) -> None:
    one = {name: made[name][0] for name in ("tasks", "baselines", "store")}
    with pytest.raises(DataError, match="policies: neither a model nor an adapter"):
        publish(
            tmp_path / "out", study=study, scores=made["scores"], turns=made["turns"], search=[], **one,
            models=[made["models"][0].parent],
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_a_kernel_that_was_changed_is_found_out(folder: Path, tmp_path: Path) -> None:
    files = Published(shutil.copytree(folder, tmp_path / "copy"))
    frame = pd.read_parquet(files.kernels)
    write_parquet(files.kernels, frame.assign(source=frame["source"] + "//"), KERNELS, {})
    with pytest.raises(DataError, match="a kernel is not what its digest says"):
        read_kernels(files)


def test_a_kernel_that_is_gone_is_missed(folder: Path, tmp_path: Path) -> None:
    files = Published(shutil.copytree(folder, tmp_path / "copy"))
    frame = pd.read_parquet(files.kernels)
    write_parquet(files.kernels, frame[1:], KERNELS, {})
    gone = f"no kernel {frame['kernel_digest'][0][:12]} of {frame['task_id'][0]}, which stands in answers.csv"
    with pytest.raises(DataError, match=gone):
        read_kernels(files)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("search_seconds.csv", "x\n", "no column policy, strategy, turn, seconds"),
        ("search_seconds.csv", "", "an empty file"),
        ("baselines.csv", "x\n", "no column task_id, baseline, median_us, ratio_to_eager"),
        ("answers.csv", "", "an empty file"),
    ],
)
def test_a_table_of_a_folder_that_is_none_is_told(
    study: Study, folder: Path, tmp_path: Path, file: str, text: str, said: str
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert (copy / file).exists()
    (copy / file).write_text(text)
    with pytest.raises(DataError, match=rf"copy/{file}: .*{said}"):
        make_published_tables(copy, tmp_path / "tables", study)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda copy: (copy / "answers.json").unlink(), r"answers\.json: no such file; it says how many"),
        (lambda copy: _drop_line(copy, 2), r"metrics\.jsonl, line 2: step 3, where step 2 belongs"),
        (lambda copy: _summary(copy).write_text("{}"), r"summary\.json: not a summary .*it says nothing of one"),
    ],
)
def test_a_folder_that_lost_something_makes_no_poorer_tables(tmp_path: Path, change, said: str) -> None:
    copy = Path(shutil.copytree(ONE_ARM, tmp_path / "copy"))
    change(copy)
    with pytest.raises(DataError, match=said):
        make_published_tables(copy, tmp_path / "tables", load_study([copy / "config.yaml"], judges=False))


def _summary(copy: Path) -> Path:
    return copy / "trainings/rl_multi/summary.json"


def _drop_line(copy: Path, number: int) -> None:
    path = _summary(copy).with_name("metrics.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: number - 1] + lines[number:]))


def test_a_training_that_is_gone_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy = Path(shutil.copytree(ONE_ARM, tmp_path / "copy"))
    shutil.rmtree(_summary(copy).parent)
    made = make_published_tables(copy, tmp_path / "tables", load_study([copy / "config.yaml"], judges=False))
    assert "step_time" not in {path.stem for path in made}
    assert "trainings: no metrics of rl_multi; tables tell nothing of these trainings" in caplog.text


def test_scores_are_read_back(study: Study, made: dict[str, list[Path]], folder: Path) -> None:
    answers = folder / "answers.csv"
    own, other = read_scores(made["scores"], study), read_scores([answers], study)
    hidden = ["verdict_key", "kernel_digest"]
    pd.testing.assert_frame_equal(own.drop(columns=hidden), other.drop(columns=hidden))
    assert own["kernel_digest"].nunique() == other["kernel_digest"].nunique() and other["verdict_key"].isna().all()
    assert hardware([answers], study) == hardware(made["scores"], study) == "A CPU"
    assert json.loads((folder / "answers.json").read_text())["config_digest"] == study.digest


@pytest.mark.parametrize(
    "folder", [STORED, pytest.param(STORED.parent / "seeds/published", marks=pytest.mark.slow, id="five seeds")]
)
def test_a_stored_study_s_tables_are_made_again_from_its_folder(folder: Path, tmp_path: Path) -> None:
    """Of a study that ran once, on another processor. Over five seconds: every table of it."""
    done = CliRunner().invoke(app, ["tables", "--published", str(folder), "--out-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    made = {path.name for path in tmp_path.glob("*.csv")}
    stored = {path.name: path for path in (folder.parent / "tables").glob("*.csv")}
    assert stored.keys() == made if folder == STORED else stored.keys() < made, "of five seeds the main ones are stored"
    for path in stored.values():
        frames = (pd.read_csv(own) for own in (path, tmp_path / path.name))
        pd.testing.assert_frame_equal(*frames, check_exact=False, rtol=1e-9, atol=1e-9, obj=path.name)


def test_a_folder_of_one_arm_makes_the_tables_that_it_holds(tmp_path: Path) -> None:
    """Of a replicate: without baselines, without the model that it began with, searched by first answers alone."""
    done = CliRunner().invoke(app, ["tables", "--published", str(ONE_ARM), "--out-dir", str(tmp_path)])
    assert done.exit_code == 0 and "no metrics" not in done.output, done.output
    made = {path.stem for path in tmp_path.glob("*.csv")}
    assert {"primary", "turns", "search", "step_time"} < made and not {"rl_gain", "search_turns"} & made
    assert "torch.compile" not in (tmp_path / "primary.md").read_text()


@pytest.mark.parametrize(("column", "place"), [("policy", "config.yaml"), ("task_id", "tasks.parquet")])
def test_an_answer_of_a_policy_or_to_a_task_that_the_folder_lacks_makes_no_tables(
    study: Study, published: Path, tmp_path: Path, column: str, place: str
) -> None:
    frame = pd.read_csv(published)
    frame.assign(**{column: [*frame[column][:-1], "stray"]}).to_csv(published, index=False)
    with pytest.raises(DataError, match=rf"answers\.csv: {column} stray is not in .*{place}"):
        make_published_tables(published.parent, tmp_path / "tables", study)
    assert not (tmp_path / "tables").exists()


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
        (lambda f: f[:-1], r"\d+ answers, and \d+ were published"),
        (lambda f: f.assign(outcome="fine"), "unknown outcome 'fine'; there are .*correct"),
        (lambda f: f.assign(outcome="correct", speedup=None), "l1/.*, trajectory 0: a correct kernel needs"),
        (lambda f: f.assign(turn=1), "turns of .*, trajectory 0, are not in order"),
        (lambda f: f.assign(turn=f["turn"] - 1), "turn 0, and they are counted from 1"),
        (lambda f: f.assign(trajectory=f["trajectory"] - 1), "trajectory -1, and they are counted from 0"),
        (lambda f: f.assign(turn="first"), "column turn holds something that is no whole number"),
        (lambda f: f.assign(turn=[None, *f["turn"][1:]]), "column turn holds something that is no whole number"),
        (lambda f: f.assign(speedup="fast"), "column speedup holds something that is no number"),
    ],
)
def test_what_is_no_such_file_is_told(study: Study, published: Path, change, said: str) -> None:
    change(pd.read_csv(published)).to_csv(published, index=False)
    with pytest.raises(DataError, match=rf"answers\.csv: .*{said}"):
        read_scores([published], study)
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        read_scores([published.with_name("none.csv")], study)
    published.write_bytes(published.read_bytes() + "ü".encode("latin-1"))
    with pytest.raises(DataError, match=r"answers\.csv: not UTF-8"):
        read_scores([published], study)


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
