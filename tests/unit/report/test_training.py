"""Gain table and training figures from small made-up runs."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import scored
from train_fixtures import make_study

from kevin.core.config import load_study
from kevin.core.errors import DataError
from kevin.report.catalogue import make_figure, make_table
from kevin.report.figures.look import theme
from kevin.report.figures.training import (
    FAMILIES,
    OTHER,
    RECIPE,
    REMEDIES,
    ablation_data,
    family,
    remedies,
    training,
)
from kevin.report.training import rl_gain_table, trained_policies

CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture
def study(tmp_path):
    raw = make_study(tmp_path).model_dump(mode="json")
    raw["policies"]["trained"] = {"model": f"{raw['results']}/policies/tiny"}
    raw["runs"]["other"] = {"train": {"num_turns": 1}, "reward": {"gamma": 0.8}}
    raw["evaluate"] = ["base", "trained"]
    return make_study(tmp_path).model_validate(raw)


def test_gain_is_the_paired_difference_over_shared_tasks(study):
    frame = pd.concat(
        [
            scored("base", {"a": [[None], [1.0]], "b": [[1.0]], "only base": [[9.0]]}),
            scored("trained", {"a": [[2.0], [1.0], [math.nan]], "b": [[2.0], [2.0]]}),
        ]
    )
    (row,) = rl_gain_table(frame, study).to_dict("records")
    assert (row["policy"], row["baseline"], row["num_tasks"]) == ("trained", "base", 2)
    assert row["mean_score_gain"] == pytest.approx((1.0 + 1.0) / 2)
    assert row["ci_low"] <= row["mean_score_gain"] <= row["ci_high"]
    assert row["baseline_score"] == pytest.approx(0.75) and row["policy_correct"] == 1.0


def test_only_evaluated_runs_count(study):
    assert trained_policies(study) == {"trained": "base"}
    with pytest.raises(DataError, match="holds a trained policy"):
        rl_gain_table(scored("base", {"a": [[1.0]]}), study)


@pytest.fixture
def runs(tmp_path):
    for name in ("tiny", "other"):
        folder = tmp_path / "train" / name
        folder.mkdir(parents=True)
        always = {"correct": 0.5, "grad_norm": 0.1, "not_okay_ratio": 0.0, "completion_tokens": 50}
        records = [{"step": s, "score": s / 8, "speedup": float(s), **always} for s in range(1, 9)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return [tmp_path / "train" / name for name in ("tiny", "other")]


@pytest.mark.slow
def test_figures_come_with_their_data(study, runs, tmp_path):
    paths = make_figure("ablations", tmp_path / "figures", study=study, runs=runs)
    assert [p.suffix for p in paths] == [".png", ".pdf", ".csv"] and all(p.stat().st_size for p in paths)
    assert set(pd.read_csv(paths[2])["run"]) == {"tiny", "other"}
    with pytest.raises(DataError, match="cannot be read"):
        make_figure("ablations", tmp_path, study=study, runs=[tmp_path / "nowhere"])


def test_ablations_stand_for_the_second_half_and_say_what_changed(study, runs):
    data = ablation_data(runs, study).set_index(["run", "metric"])
    assert data.loc[("tiny", "speedup"), "value"] == pytest.approx(0.5 * (5 + 6 + 7 + 8) / 4)
    assert data.loc[("tiny", "correct"), "value"] == pytest.approx(0.5)
    assert data.loc[("other", "speedup"), "changed"] == "num_turns 1, gamma 0.8"
    assert set(data["interval"]) == {"steps"}


def test_intervals_of_ablations_are_over_tasks_where_turns_were_kept(study, runs):
    speedups = {"a": 4.0, "b": 2.0, "c": None}
    for step in range(1, 9):
        rows = [
            {"task_id": task, "outcome": "incorrect" if s is None else "correct", "speedup": s if step > 4 else 100.0}
            for task, s in speedups.items()
        ] + [{"task_id": "a", "outcome": None, "speedup": None}]
        path = runs[0] / "turns" / f"step_{step:05d}.parquet"
        path.parent.mkdir(exist_ok=True)
        pd.DataFrame(rows).to_parquet(path)
    data = ablation_data(runs, study).set_index(["run", "metric"])
    tiny = data.loc[("tiny", "speedup")]
    assert (tiny["interval"], tiny["num_tasks"], tiny["value"]) == ("tasks", 3, pytest.approx(2.0))
    assert tiny["low"] < 2.0 < tiny["high"]
    assert data.loc[("tiny", "correct"), "value"] == pytest.approx(2 / 3)
    assert data.loc[("other", "speedup"), "interval"] == "steps"


def test_every_ablation_of_the_configuration_has_its_family():
    study = load_study([CONFIG / "config.yaml", CONFIG / "ablations.yaml"])
    families = {run: family(run, study) for run in study.runs}
    assert OTHER not in families.values()
    assert [run for run, kind in families.items() if kind == RECIPE] == ["rl_multi"]
    assert {families[run] for run in ("max_gamma_04", "sum_gamma_08")} == {"Return: sum or max, γ"}
    assert FAMILIES[families["length_penalty"]][0] == "paper: tried and dropped"
    assert family("gone", study) == OTHER


def test_remedies_are_told_by_the_configuration():
    study = load_study([CONFIG / "config.yaml", CONFIG / "ablations.yaml"])
    names = ("rl_multi", "no_clip", "answer_mean_loss", "no_remedies", "gone")
    assert [remedies(run, study) for run in names] == [*REMEDIES, ""]


def test_where_the_time_goes(study, runs, tmp_path):
    for run, generate in zip(runs, (2.0, 3.0), strict=True):
        path = run / "metrics.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        seconds = {"step": 10.0, "generate": generate, "judge": 4.0, "model": 3.0, "rollout": 6.5, "update": 3.5}
        path.write_text("".join(json.dumps(r | {"num_kernels": 20, "seconds": seconds}) + "\n" for r in records))
    table = pd.read_csv(make_table("step_time", tmp_path / "step_time.csv", study=study, runs=runs)).set_index("run")
    assert table.loc["tiny", "own_s"] == pytest.approx(1.0) and table.loc["tiny", "own_share"] == pytest.approx(0.1)
    assert table.loc["other", "own_s"] == pytest.approx(0.0, abs=1e-9)
    assert table.loc["tiny", "kernels_per_minute"] == pytest.approx(300.0)
    assert list(table["num_steps"]) == [8, 8]


def test_times_of_an_older_version_are_refused(study, runs, tmp_path):
    with pytest.raises(DataError, match="train again: rm -r"):
        make_table("step_time", tmp_path / "step_time.csv", study=study, runs=runs)


def test_runs_that_differ_in_their_remedies_say_so(runs):
    study = load_study([CONFIG / "config.yaml", CONFIG / "ablations.yaml"])
    names = ("rl_multi", "no_remedies")
    folders = [folder.rename(folder.with_name(name)) for folder, name in zip(runs, names, strict=True)]
    with theme():
        (alone, _), (both, _) = training(folders[:1], study), training(folders, study)
        named = [text.get_text() for text in both.legends[0].get_texts()]
        assert [name.partition(": ")[2] for name in named] == [REMEDIES[0], REMEDIES[3]]
        assert ":" not in alone.legends[0].get_texts()[0].get_text()
        lines = {line.get_linestyle() for line in both.axes[0].get_lines()}
        assert len(lines) == 2
        assert "clip at 0.05" in [text.get_text() for ax in both.axes for text in ax.texts]
