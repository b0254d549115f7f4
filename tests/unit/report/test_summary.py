"""The lines at the end of a study, against the tables that they are read from."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import GOLDEN, golden_study, make_study

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import write_parquet
from kevin.report.summary import study_record, summary_text


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Its stored tables are there."""
    shutil.copytree(GOLDEN / "tables", tmp_path / "tables")
    return golden_study(results=str(tmp_path))


def lines(study: Study) -> dict[str, str]:
    return {line[:22].strip(): line[22:] for line in summary_text(study).splitlines()}


def cell(root: Path, table: str, policy: str, column: str) -> float:
    frame = pd.read_csv(root / "tables" / f"{table}.csv")
    return float(frame[frame["policy"] == policy][column].iloc[0])


def test_a_trained_study(study: Study, tmp_path: Path) -> None:
    for folder, summary in (
        ("base_model", {"num_steps": 9, "planned_steps": 9, "budget_bit": False}),
        ("train/multi", {"run": "multi", "num_steps": 5, "planned_steps": 8, "budget_bit": True, "num_kernels": 1000}),
        ("train/multi_1", {"run": "multi_1", "num_steps": 8, "planned_steps": 8, "num_kernels": 200}),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "summary.json").write_text(json.dumps(summary))
    found = lines(study)
    assert next(iter(found)) == "primary endpoint"
    gains = [cell(tmp_path, "rl_gain", p, c) for p, c in (("multi", "baseline_correct"), ("single", "policy_correct"))]
    multi = [cell(tmp_path, "rl_gain", p, "policy_correct") for p in ("multi", "multi_1")]
    before, after, single = (f"{100 * share:.0f} %" for share in (gains[0], sum(multi) / 2, gains[1]))
    assert found["correct kernels"] == f"base model {before} -> multi (2 seeds) {after}, single {single}"
    names = ("base", "multi", "multi_1", "single", "ceiling")
    base, first, second, other, ceiling = (cell(tmp_path, "level2", p, "speedup_best") for p in names)
    assert (
        f"Level 2, best@3: base model {base:.2f}× -> multi (2 seeds) {(first + second) / 2:.2f}×, single {other:.2f}×"
        in found["speedup over eager"]
    )
    assert f"Level 2: base model {100 * base / ceiling:.0f} %" in found["share of the ceiling"]
    gain, low = (cell(tmp_path, "rl_gain", "multi", c) for c in ("mean_score_gain", "ci_low"))
    said = found["gain in mean score"].replace("−", "-")
    assert said.startswith(f"multi {gain:+.2f} (95 % interval {low:+.2f} to ") and "13 tasks" in said
    turns = 13 * (3 * 3 * 3 + 2 * 3 + 3)
    assert found["judged"] == f"{turns} turns on held-out tasks, {turns - 2} with a verdict; 1,200 kernels in training"
    assert "training of multi to 5 of 8 steps" in found["note"]
    assert found["report"] == f"{tmp_path}/report.html"


def test_a_study_without_training(study: Study, tmp_path: Path) -> None:
    (tmp_path / "tables/claims.csv").unlink()
    found = lines(study.model_copy(update={"runs": {}}))
    assert list(found) == ["correct trajectories", "speedup over eager", "share of the ceiling", "judged", "report"]
    values = [(cell(tmp_path, level, "base", "correct_avg"), n) for level, n in (("level1", 8), ("level2", 5))]
    share = sum(value * n for value, n in values) / 13
    assert found["correct trajectories"].startswith(f"base model {100 * share:.0f} %, multi (2 seeds)")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    study = make_study(1).model_copy(update={"results": str(tmp_path)})
    with pytest.raises(DataError, match=r"level1\.csv.*make the study with"):
        summary_text(study)


def test_the_primary_endpoint(study: Study, tmp_path: Path) -> None:
    path = tmp_path / "tables/claims.csv"
    claims = pd.read_csv(path)
    value, low, high = claims.loc[0, ["ours", "ours_low", "ours_high"]]
    said = f"{claims.loc[0, 'claim']}: {value:.2f}× (95 % interval {low:.2f} to {high:.2f}), shown"
    assert lines(study)["primary endpoint"] == said
    claims.loc[0, ["verdict", "why"]] = ["not measured", "on both sides"]
    claims.to_csv(path, index=False)
    assert lines(study)["primary endpoint"] == "not measured: on both sides"


def test_a_model_that_solves_nothing_yet_may_compile(study: Study, tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    rows = {
        "policy": ["base", "base", "base", "multi"],
        "outcome": ["compile_error", "incorrect", "parse_error", "correct"],
        "num": [5, 3, 2, 0],
    }
    pd.DataFrame(rows).to_csv(tmp_path / "figures/outcomes.csv", index=False)
    assert lines(study)["kernels that compile"] == "base model 30 %"


def test_where_a_study_comes_from_and_how_long_it_took(study: Study, tmp_path: Path) -> None:
    """Minutes in which a step ran: pauses do not count, two steps at once do so once, a search apart."""
    write_parquet(
        tmp_path / "baselines/cpu.parquet", pd.DataFrame({"a": [1]}), "baselines", {"commit": "c", "cpu": "A"}
    )
    (tmp_path / "benchmarks").mkdir()
    for name, ended, minutes in (("train", 600, 10), ("judge", 540, 2), ("score", 6000, 3), ("run_search-a", 9000, 4)):
        path = tmp_path / "benchmarks" / f"{name}.tsv"
        path.write_text(f"s\th:m:s\n{60 * minutes}.0\t-\n")
        os.utime(path, (ended, ended))
    assert study_record(study) == {"commit": "c", "cpu": "A", "minutes": 13, "search_minutes": 4}
