"""The lines at the end of a study, against the tables that they are read from."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import make_study, write_scores, write_study

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.report.catalogue import make_table
from kevin.report.summary import summary_text


def write_tables(root: Path, study: Study) -> Study:
    """A study whose results are in ``root``: level tables and, where a policy was trained, the gain."""
    study = study.model_copy(update={"results": str(root)})
    scores = write_scores(root, study, write_study(root, study, num_trajectories=2, num_turns=2))
    for name in ("level1", "level2"):
        make_table(name, root / "tables" / f"{name}.csv", study=study, scores=scores)
    if study.runs:
        make_table("rl_gain", root / "tables" / "rl_gain.csv", study=study, scores=scores)
    return study


@pytest.fixture
def trained(tmp_path: Path) -> Study:
    """``p1`` and its second seed ``p2``, trained from ``p0``."""
    raw = make_study(3).model_dump(mode="json") | {"results": str(tmp_path), "runs": {"a": {}, "b": {}}}
    raw["policies"]["p1"] |= {"model": f"{tmp_path}/policies/a"}
    raw["policies"]["p2"] |= {"model": f"{tmp_path}/policies/b", "seed_of": "p1"}
    raw["train"] |= {"init": "p0"}
    return write_tables(tmp_path, Study.model_validate(raw))


def lines(study: Study) -> dict[str, str]:
    return {line[:22].strip(): line[22:] for line in summary_text(study).splitlines()}


def cell(root: Path, table: str, policy: str, column: str) -> float:
    frame = pd.read_csv(root / "tables" / f"{table}.csv")
    return float(frame[frame["policy"] == policy][column].iloc[0])


def test_a_trained_study(trained: Study, tmp_path: Path) -> None:
    for folder, summary in (
        ("base_model", {"num_steps": 9, "planned_steps": 9, "budget_bit": False}),
        ("train/a", {"run": "a", "num_steps": 5, "planned_steps": 8, "budget_bit": True, "num_kernels": 1000}),
        ("train/b", {"run": "b", "num_steps": 8, "planned_steps": 8, "budget_bit": False, "num_kernels": 200}),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "summary.json").write_text(json.dumps(summary))
    found = lines(trained)
    before = cell(tmp_path, "rl_gain", "p1", "baseline_correct")
    after = (cell(tmp_path, "rl_gain", "p1", "policy_correct") + cell(tmp_path, "rl_gain", "p2", "policy_correct")) / 2
    assert found["correct kernels"] == f"base model {100 * before:.0f} % -> multi-turn RL (2 seeds) {100 * after:.0f} %"
    p0, p1, p2, ceiling = (cell(tmp_path, "level2", p, "speedup_best") for p in ("p0", "p1", "p2", "ceiling"))
    assert (
        f"Level 2, best@2: base model {p0:.2f}× -> multi-turn RL (2 seeds) {(p1 + p2) / 2:.2f}×"
        in found["speedup over eager"]
    )
    assert f"Level 2: base model {100 * p0 / ceiling:.0f} %" in found["share of the ceiling"]
    gain, low = (cell(tmp_path, "rl_gain", "p1", c) for c in ("mean_score_gain", "ci_low"))
    assert (
        found["gain in mean score"]
        .replace("−", "-")
        .startswith(f"multi-turn RL {gain:+.2f} (95 % interval {low:+.2f} to ")
    )
    assert "13 tasks" in found["gain in mean score"]
    turns = 13 * (3 * 2 * 2 + 12)
    assert found["judged"] == (f"{turns} turns on held-out tasks, {turns} with a verdict; 1,200 kernels in training")
    assert "training of a to 5 of 8 steps" in found["note"]
    assert found["report"] == f"{tmp_path}/report.html"


def test_a_study_without_training(tmp_path: Path) -> None:
    found = lines(write_tables(tmp_path, make_study(2)))
    assert list(found) == ["correct trajectories", "speedup over eager", "share of the ceiling", "judged", "report"]
    values = [(cell(tmp_path, level, "p0", "correct_avg"), n) for level, n in (("level1", 8), ("level2", 5))]
    share = sum(value * n for value, n in values) / 13
    assert found["correct trajectories"].startswith(f"base model {100 * share:.0f} %, multi-turn RL")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    study = make_study(1).model_copy(update={"results": str(tmp_path)})
    with pytest.raises(DataError, match=r"level1\.csv.*make the study with"):
        summary_text(study)


def test_the_primary_endpoint_stands_first(tmp_path: Path) -> None:
    study = write_tables(tmp_path, make_study(1))
    rows = {
        "kind": ["primary endpoint", "effect"], "claim": ["Turns", "Others"], "ours": [0.98, 3.0],
        "ours_low": [0.9, 2.0], "ours_high": [1.05, 4.0], "why": ["on both sides", ""],
        "verdict": ["not shown", "shown"],
    }  # fmt: skip
    claims = tmp_path / "tables/claims.csv"
    pd.DataFrame(rows).to_csv(claims, index=False)
    assert next(iter(lines(study).items())) == (
        "primary endpoint", "Turns: 0.98× (95 % interval 0.90 to 1.05), not shown"
    )  # fmt: skip
    pd.DataFrame(rows | {"verdict": ["not measured", "shown"]}).to_csv(claims, index=False)
    assert lines(study)["primary endpoint"] == "not measured: on both sides"


def test_a_model_that_solves_nothing_yet_may_compile(tmp_path: Path) -> None:
    study = write_tables(tmp_path, make_study(2))
    (tmp_path / "figures").mkdir()
    rows = {
        "policy": ["p0", "p0", "p0", "p1"], "outcome": ["compile_error", "incorrect", "parse_error", "correct"],
        "num": [5, 3, 2, 0],
    }  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "figures/outcomes.csv", index=False)
    assert lines(study)["kernels that compile"] == "base model 30 %"
