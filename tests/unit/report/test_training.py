"""Gain table and training figures from small made-up runs."""

import json

import pandas as pd
import pytest
from train_fixtures import make_study

from kevin.core.errors import DataError, UsageError
from kevin.report.training_figures import ablation_data, by_turn_data, make_training_figure
from kevin.report.training_gain import rl_gain_table, trained_policies
from kevin.report.training_time import make_step_time


@pytest.fixture
def study(tmp_path):
    raw = make_study(tmp_path).model_dump(mode="json")
    raw["policies"]["trained"] = {"model": f"{raw['results']}/policies/tiny"}
    raw["runs"]["other"] = {"train": {"num_turns": 1}, "reward": {"gamma": 0.8}}
    raw["evaluate"] = ["base", "trained"]
    return make_study(tmp_path).model_validate(raw)


def scores(policy, by_task):
    rows = [
        {
            "policy": policy,
            "task_id": task,
            "score": s,
            "outcome": None if s is None else "correct" if s else "incorrect",
        }
        for task, values in by_task.items()
        for s in values
    ]
    return pd.DataFrame(rows)


def test_gain_is_the_paired_difference_over_shared_tasks(study):
    frame = pd.concat(
        [
            scores("base", {"a": [0.0, 1.0], "b": [1.0], "only base": [9.0]}),
            scores("trained", {"a": [2.0, 1.0, None], "b": [2.0, 2.0]}),
        ]
    )
    (row,) = rl_gain_table(frame, study).to_dict("records")
    assert (row["policy"], row["baseline"], row["num_tasks"]) == ("trained", "base", 2)
    assert row["mean_score_gain"] == pytest.approx((1.0 + 1.0) / 2)
    assert row["ci_low"] <= row["mean_score_gain"] <= row["ci_high"]
    assert row["baseline_score"] == pytest.approx(0.75) and row["policy_correct"] == 1.0


def test_only_evaluated_runs_count(study):
    assert trained_policies(study) == {"trained": "base"}
    assert rl_gain_table(scores("base", {"a": [1.0]}), study).empty


@pytest.fixture
def runs(tmp_path):
    for name, turns in (("tiny", 2), ("other", 1)):
        folder = tmp_path / "train" / name
        folder.mkdir(parents=True)
        records = [
            {
                "step": s,
                "score": s / 8,
                "correct": 0.5,
                "speedup": float(s),
                "grad_norm": 0.1,
                "not_okay_ratio": 0.0,
                "completion_tokens": 50,
            }
            | {f"{metric}_turn_{t}": s / 8 + t for t in range(1, turns + 1) for metric in ("score", "correct")}
            for s in range(1, 9)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return [tmp_path / "train" / name for name in ("tiny", "other")]


@pytest.mark.parametrize("name", ["training", "training_turns", "ablations"])
def test_figures_come_with_their_data(study, runs, tmp_path, name):
    paths = make_training_figure(name, tmp_path / "figures", runs, study=study)
    assert [p.suffix for p in paths] == [".png", ".pdf", ".csv"] and all(p.stat().st_size for p in paths)
    assert set(pd.read_csv(paths[2])["run"]) == {"tiny", "other"}


def test_turns_apart(runs):
    data = by_turn_data([r / "metrics.jsonl" for r in runs])
    assert data.groupby("run")["turn"].max().to_dict() == {"tiny": 2, "other": 1}
    row = data[(data.run == "tiny") & (data.metric == "score") & (data.turn == 2) & (data.step == 4)]
    assert row["value"].item() == pytest.approx(2.5)


def test_ablations_stand_for_the_second_half_and_say_what_changed(study, runs):
    data = ablation_data([r / "metrics.jsonl" for r in runs], study).set_index(["run", "metric"])
    assert data.loc[("tiny", "speedup"), "value"] == pytest.approx(0.5 * (5 + 6 + 7 + 8) / 4)
    assert data.loc[("tiny", "correct"), "value"] == pytest.approx(0.5)
    assert data.loc[("other", "speedup"), "changed"] == "num_turns 1, gamma 0.8"


def test_where_the_time_goes(study, runs, tmp_path):
    for run, generate in zip(runs, (2.0, 3.0), strict=True):
        path = run / "metrics.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        seconds = {"step": 10.0, "generate": generate, "judge": 4.0, "model": 3.0, "rollout": 6.5, "update": 3.5}
        path.write_text("".join(json.dumps(r | {"num_kernels": 20, "seconds": seconds}) + "\n" for r in records))
    table = pd.read_csv(make_step_time(runs, tmp_path / "step_time.csv", study=study)).set_index("run")
    assert table.loc["tiny", "own_s"] == pytest.approx(1.0) and table.loc["tiny", "own_share"] == pytest.approx(0.1)
    assert table.loc["other", "own_s"] == pytest.approx(0.0, abs=1e-9)
    assert table.loc["tiny", "kernels_per_minute"] == pytest.approx(300.0)
    assert list(table["num_steps"]) == [8, 8]


def test_times_of_an_older_version_are_refused(study, runs, tmp_path):
    with pytest.raises(DataError, match="train again: rm -r"):
        make_step_time(runs, tmp_path / "step_time.csv", study=study)


def test_bad_input(study, runs, tmp_path):
    with pytest.raises(UsageError, match="no training figure 'x'"):
        make_training_figure("x", tmp_path, runs, study=study)
    with pytest.raises(DataError, match="cannot be read"):
        make_training_figure("ablations", tmp_path, [tmp_path / "nowhere"], study=study)
