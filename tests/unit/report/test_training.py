"""Tables and figures of trainings, and of what a judge may be cheated with in them, from small made-up runs."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_fixtures import scored
from train_fixtures import make_study

from kevin.core.config import Study, load_study
from kevin.core.errors import DataError, UsageError
from kevin.core.files import write_parquet
from kevin.report.catalogue import make_figure, make_table
from kevin.report.figures.look import theme
from kevin.report.figures.training import (
    FAMILIES,
    OTHER,
    RECIPE,
    REMEDIES,
    ablation_data,
    audit,
    family,
    remedies,
    training,
)
from kevin.report.training import (
    ALL,
    ANY,
    AUDIT_KIND,
    PAID,
    audit_table,
    guards,
    kinds_of,
    rl_gain_table,
    trained_policies,
    wilson,
)

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


# --- audit --------------------------------------------------------------------------------------------------------

RULES = "no_kernel torch_compute try_except pass_statement inherits_model harness_access memory_leak"


def turn(outcome: str = "correct", reason: str | None = None, flags: str = "", **changes: Any) -> dict[str, Any]:
    correct = outcome == "correct"
    own = {
        "run": "tiny", "rules": RULES, "step": 1, "task_id": "a", "trajectory": 0, "turn": 1, "outcome": outcome,
        "reason": reason, "score": 1.3 if correct else 0.0, "speedup": 1.0 if correct else None, "flags": flags,
        "kernelbench_check": "passed" if correct else None, "unguarded": correct,
        "unguarded_speedup": 1.0 if correct else None, "unguarded_score": 1.3 if correct else 0.0,
        "unguarded_by": "verdict",
    }  # fmt: skip
    return own | changes


PAYS = {"unguarded": True, "unguarded_speedup": 7.0, "unguarded_score": 7.3, "unguarded_by": "measured"}
TURNS = [
    turn(),
    turn("incorrect", "wrong_values"),
    turn("incorrect", "input_mutated", **PAYS),
    turn("refused", "torch_compute", "harness_access torch_compute", **PAYS),
    turn("incorrect", "not_written", step=2),
    turn("quarantined", "clock_disagrees", step=2, unguarded=None, unguarded_score=None, unguarded_by="unmeasured"),
    turn(run="free", rules="", flags="torch_compute"),
]


def row(table: pd.DataFrame, run: str, step: int | None, kind: str) -> dict[str, Any]:
    at = table["step"].isna() if step is None else table["step"] == step
    (found,) = table[(table["run"] == run) & at.fillna(False) & (table["kind"] == kind)].to_dict("records")
    return {str(name): value for name, value in found.items()}


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 64, 0.0, 0.0566), (64, 64, 0.9434, 1.0), (10, 20, 0.2993, 0.7007), (1, 10, 0.0179, 0.4042)],
)
def test_wilsons_interval(count: int, of: int, low: float, high: float) -> None:
    """Values of R's ``binom::binom.wilson``; for none of n the upper end is z^2 / (n + z^2)."""
    assert wilson(count, of) == pytest.approx((low, high), abs=5e-5)
    assert wilson(0, of)[1] == pytest.approx(1.959964**2 / (of + 1.959964**2))


def test_kinds() -> None:
    found = list(kinds_of(pd.DataFrame(TURNS)))
    assert found == [
        {ALL},
        {ALL},  # merely wrong
        {ALL, ANY, PAID, "input_mutated"},
        {ALL, ANY, PAID, "harness_access", "torch_compute"},
        {ALL, ANY, "not_written"},
        {ALL, ANY, "clock_disagrees"},  # not known to be paid
        {ALL, ANY, "torch_compute"},  # correct, and paid by this judge too
    ]


def test_shares_and_what_is_paid(study: Study) -> None:
    table = audit_table(pd.DataFrame(TURNS), study)
    first = row(table, "tiny", 1, PAID)
    assert (first["num_kernels"], first["num_judged"], first["share"]) == (2, 4, 0.5)
    assert (first["paid"], first["paid_unguarded"]) == (0.0, pytest.approx(14.6))
    every = row(table, "tiny", None, ALL)
    assert (every["num_judged"], every["paid"]) == (6, pytest.approx(1.3))
    assert (every["paid_unguarded"], every["num_unmeasured"]) == (pytest.approx(1.3 + 14.6), 1)
    assert row(table, "tiny", 2, "input_mutated")["num_kernels"] == 0
    assert row(table, "tiny", 2, "input_mutated")["share_high"] > 0, "none of two does not mean never"
    assert row(table, "free", 1, "torch_compute")["paid"] == pytest.approx(1.3)
    assert set(table["kind"]) == {
        ALL, ANY, PAID, "harness_access", "torch_compute", "input_mutated", "not_written", "clock_disagrees"
    }  # fmt: skip
    sizes = table.groupby(["run", "kind"]).size()
    assert (sizes["tiny"] == 3).all() and (sizes["free"] == 2).all(), "each step, and all of them together"


def test_guards(study: Study) -> None:
    assert (guards(RULES, study), guards("", study), guards("no_kernel", study)) == ("on", "off", "some")
    table = audit_table(pd.DataFrame(TURNS), study)
    assert dict(table.drop_duplicates("run")[["run", "guards"]].itertuples(index=False)) == {
        "tiny": "on",
        "free": "off",
    }


def test_a_training_without_any_hack_says_so(study: Study, tmp_path: Path) -> None:
    path = tmp_path / "tiny.parquet"
    write_parquet(path, pd.DataFrame([turn(step=s) for s in (1, 1, 2)]), AUDIT_KIND, {})
    make_table("audit", tmp_path / "audit.csv", study=study, kernels=[path])
    table = pd.read_csv(tmp_path / "audit.csv")
    assert list(table["kind"].unique()) == [ALL, ANY, PAID]
    assert list(table[table["kind"] == ANY]["num_kernels"]) == [0, 0, 0]
    with theme():
        figure, _ = audit(table, study)
        assert figure.axes


def test_the_figure_holds_every_run_and_step(study: Study, tmp_path: Path) -> None:
    for run in ("tiny", "free"):
        own = pd.DataFrame([t for t in TURNS if t["run"] == run])
        write_parquet(tmp_path / f"{run}.parquet", own, AUDIT_KIND, {})
    files = [tmp_path / "tiny.parquet", tmp_path / "free.parquet"]
    make_table("audit", tmp_path / "audit.csv", study=study, kernels=files)
    shown = (tmp_path / "audit.md").read_text()
    assert re.search(
        r"\| tiny \(all rules enforced\) +\| not correct here, paid without guards +\| +2 \| +33\.3 % \(", shown
    )
    assert "paid_unguarded" not in shown and "input mutated" in (tmp_path / "audit.tex").read_text()
    _, _, data = make_figure("audit", tmp_path / "figures", study=study, table=tmp_path / "audit.csv")
    plotted = pd.read_csv(data)
    assert set(zip(plotted["run"], plotted["step"], strict=True)) == {("tiny", 1), ("tiny", 2), ("free", 1)}


def test_nothing_to_audit(study: Study, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--kernels"):
        make_table("audit", tmp_path / "audit.csv", study=study)
    write_parquet(tmp_path / "none.parquet", pd.DataFrame(TURNS).iloc[:0], AUDIT_KIND, {})
    with pytest.raises(DataError, match="no judged turn"):
        make_table("audit", tmp_path / "audit.csv", study=study, kernels=[tmp_path / "none.parquet"])
