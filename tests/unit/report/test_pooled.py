"""Studies of one recipe as seeds of one: what each seed found is there, and what does not belong together is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from cli_fixtures import ROOT
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core.config import load_study
from kevin.core.errors import DataError
from kevin.core.files import read_parquet, read_table, write_parquet
from kevin.report.catalogue import make_table
from kevin.report.metrics import mean_estimate, minus
from kevin.report.pooled import pool
from kevin.report.published import Published

STORED = ROOT / "results/reference/laptop/published"


def twin(folder: Path, seed: int = 1, **settings: object) -> Path:
    """The stored study as if made by another seed; its first level-2 task under another name."""
    folder.mkdir(parents=True)
    for name in ("answers.csv", "answers.json", "baselines.csv", "kernels.parquet", "config.yaml"):
        shutil.copy(STORED / name, folder / name)
    own = Published(folder)
    raw = yaml.safe_load(own.config.read_text()) | {"seed": seed, "results": "results/other"} | settings
    own.config.write_text(yaml.safe_dump(raw).replace("results/base_model", "results/other/base_model")
                          .replace("results/policies", "results/other/policies"))  # fmt: skip
    tasks, meta = read_parquet(STORED / "tasks.parquet", "tasks")
    named = next(name for name in tasks["task_id"] if name.startswith("l2/001"))
    write_parquet(own.tasks, tasks.replace({"task_id": {named: "l2/other"}}), "tasks", meta)
    answers = own.answers.read_text().replace(f",{named},", ",l2/other,")
    own.answers.write_text(answers)
    return folder


def test_each_policy_has_a_row_over_all_seeds(tmp_path: Path) -> None:
    made = tmp_path / "made"
    folders = [STORED, twin(tmp_path / "twin", 3)]
    given = [part for folder in folders for part in ("--published", str(folder))]
    assert CliRunner().invoke(app, ["pool", *given, "--out", str(made)]).exit_code == 0
    study = load_study([made / "config.yaml"], judges=False)
    assert study.evaluate == ("base", "rl_single", "rl_multi", "base_3", "rl_single_3", "rl_multi_3")
    assert [study.policies[name].seed_of for name in study.evaluate[3:]] == ["base", "rl_single", "rl_multi"]
    assert study.origins("rl_multi_3") == ["rl_multi_3", "base_3"]

    files = Published(made)
    for name in ("primary", "rl_gain"):
        make_table(name, tmp_path / f"{name}.csv", study=study, scores=[files.answers], baselines=files.baselines)
    table = read_table(tmp_path / "primary.csv").query("source == 'this study'")
    trained = table.query("policy in ['base', 'rl_multi', 'rl_single']")
    assert set(trained["num_seeds"]) == {2}
    assert set(trained["num_tasks"]) == {17}

    # the twin found what the stored study did, under two names of one task: the same mean within each seed
    alone = read_table(ROOT / "results/reference/laptop/tables/primary.csv").query("endpoint == 'primary'").iloc[0]
    together = table.query("endpoint == 'primary'").iloc[0]
    assert together["over_reference"] == pytest.approx(alone["over_reference"])
    gains = read_table(tmp_path / "rl_gain.csv").query("num_seeds == 2").set_index("policy")["mean_score_gain"]
    own = read_table(ROOT / "results/reference/laptop/tables/rl_gain.csv").set_index("policy")["mean_score_gain"]
    assert gains.to_dict() == pytest.approx(own.to_dict())


def test_policies_of_one_seed_are_drawn_together() -> None:
    """Seeds differ by much and a seed's two policies by 1: their difference is known, unless seeds are drawn apart."""
    pooled = load_study([ROOT / "results/reference/laptop/seeds/published/config.yaml"], judges=False)
    apart = load_study([ROOT / "results/reference/nvidia-h200/kernelbench/config.yaml"], judges=False)
    one = pd.DataFrame([[0.0, 10.0, 20.0]] * 4)
    for study, width in ((pooled, 0.0), (apart, 20.0)):
        found = minus(mean_estimate(one + 1.0, study, 0), mean_estimate(one, study, 1)).interval
        assert found.value == pytest.approx(1.0)
        assert found.high - found.low >= width
        assert (found.high - found.low < 1e-9) == (width == 0.0)


def test_what_has_one_value_a_task_is_there_once(tmp_path: Path) -> None:
    made = pool([STORED, twin(tmp_path / "twin")], tmp_path / "made")
    answers = pd.read_csv(made / "answers.csv")
    ceiling = answers[answers["policy"] == "ceiling"]
    assert not ceiling.duplicated(["task_id", "trajectory", "turn"]).any()
    assert ceiling["task_id"].nunique() == 17
    kernels = pd.read_parquet(made / "kernels.parquet")
    assert f"{len(kernels):,} distinct kernels" in (made / "README.md").read_text()
    assert len(kernels) == len(pd.read_parquet(STORED / "kernels.parquet"))
    assert not pd.read_csv(made / "baselines.csv").duplicated(["task_id", "baseline"]).any()


@pytest.mark.parametrize(
    ("seed", "settings", "said"),
    [(0, {}, "seed 0 is there twice"), (1, {"ceiling_kernels": 9}, "not made as .*: ceiling_kernels: was 5, is 9")],
)
def test_what_does_not_belong_together_is_told(
    seed: int, settings: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        pool([STORED, twin(tmp_path / "twin", seed, **settings)], tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_two_tasks_of_one_name_are_told(tmp_path: Path) -> None:
    other = twin(tmp_path / "twin")
    tasks, meta = read_parquet(other / "tasks.parquet", "tasks")
    tasks.loc[tasks["task_id"] == "l1/linear", "digest"] = "another"
    write_parquet(other / "tasks.parquet", tasks, "tasks", meta)
    with pytest.raises(DataError, match="l1/linear: two tasks have this name"):
        pool([STORED, other], tmp_path / "made")
