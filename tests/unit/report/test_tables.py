"""The stored tables of `test_goldens` are right: counted by hand from the stored answers, and from each other."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import GOLDEN, golden_study

from kevin.core.errors import DataError, UsageError
from kevin.report import paper
from kevin.report.catalogue import make_table
from kevin.report.claims import PRIMARY
from kevin.report.scores import read_scores
from kevin.report.tables import OURS

TABLES = {path.stem: pd.read_csv(path) for path in sorted((GOLDEN / "tables").glob("*.csv"))}


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    return read_scores([GOLDEN / "answers.csv"], golden_study())


def row(table: str, policy: str, baseline: str = "eager", subset: str = "all tasks") -> pd.Series:
    known = TABLES[table][TABLES[table]["num_seeds"] != 2]
    found = known[(known["policy"] == policy) & (known["baseline"] == baseline) & (known["subset"] == subset)]
    assert len(found) == 1
    return found.iloc[0]


def test_level_table_agrees_with_a_count_by_hand(scores: pd.DataFrame) -> None:
    own = scores.query("policy == 'base' and split == 'level1'")
    best = own["speedup"].fillna(0).groupby([own["task_id"], own["trajectory"]]).max().unstack()
    got = row("level1", "base")
    assert got["speedup_best"] == pytest.approx(best.max(axis=1).mean())
    assert got["speedup_avg"] == pytest.approx(best.to_numpy().mean())
    assert got["fast_1_avg"] == pytest.approx((best >= 1).to_numpy().mean())
    assert got["correct_best"] == pytest.approx((best > 0).any(axis=1).mean())
    assert got["fast_0_avg"] == got["correct_avg"] == pytest.approx((best > 0).to_numpy().mean())
    assert (got["num_tasks"], got["trajectories"], got["turns"], got["num_turns"]) == (8, 3, 3, 72)
    assert row("level1", "multi", subset="without flawed tasks")["num_tasks"] == 7
    assert row("level1", "multi")["num_turns_missing"] == 1


@pytest.mark.parametrize("name", TABLES)
def test_intervals_enclose_their_values(name: str) -> None:
    table = TABLES[name]
    for column in (c.removesuffix("_low") for c in table.columns if c.endswith("_low") and c != "ci_low"):
        known = table[table[f"{column}_low"].notna()]
        assert (known[f"{column}_low"] <= known[column] + 1e-9).all(), column
        assert (known[column] <= known[f"{column}_high"] + 1e-9).all(), column


@pytest.mark.parametrize(
    ("name", "keys", "columns"),
    [
        ("level1", ["baseline", "subset"], ["correct_avg", "speedup_best", "fast_1_best"]),
        ("table1", ["baseline", "subset"], ["correct_avg", "speedup_best", "fast_1_best"]),
        ("table2", ["trajectories", "turns"], ["speedup", "correct"]),
        ("turns", ["split", "turn"], ["mended", "kept", "best_speedup"]),
        ("pass_at_k", ["level", "k"], ["correct", "fast_1"]),
        ("search", ["strategy", "kernels"], ["speedup", "correct", "gpu_seconds"]),
        ("rl_gain", ["baseline"], ["mean_score_gain", "policy_correct"]),
    ],
)
def test_a_row_of_seeds_together_is_the_mean_of_theirs(name: str, keys: list[str], columns: list[str]) -> None:
    table = TABLES[name][TABLES[name]["policy"].isin(["multi", "multi_1"])]
    together, apart = (table[table["num_seeds"] == n].groupby(keys) for n in (2, 1))
    assert len(together) > 0 and (apart.size() == 2).all()
    for column in columns:
        assert together[column].mean().to_dict() == pytest.approx(apart[column].mean().to_dict(), nan_ok=True), column


def test_speedup_over_compile_is_over_eager_times_the_ratio(scores: pd.DataFrame) -> None:
    times = pd.read_csv(GOLDEN / "baselines.csv").pivot(index="task_id", columns="baseline", values="median_us")
    compiled = times["compile"] / times["eager"]
    best = scores.query("policy == 'single' and split == 'level1'").groupby("task_id")["speedup"].max().fillna(0)
    assert row("level1", "single", "torch.compile")["speedup_best"] == pytest.approx((best * compiled).dropna().mean())
    shared = compiled[compiled.index.isin(best.index)]
    assert row("level1", "torch.compile")["speedup_best"] == pytest.approx((1 / shared).mean())


def test_table1_is_over_all_splits_together_and_a_level_over_its_tasks() -> None:
    levels = [row(name, "single") for name in ("level1", "level2")]
    for column in ("speedup_best", "correct_avg", "fast_1.5_best"):
        assert row("table1", "single")[column] == pytest.approx(sum(r[column] * r["num_tasks"] for r in levels) / 13)
    tasks = TABLES["tasks"].query("policy == 'single' and split == 'level2'")
    assert tasks["speedup_best"].mean() == pytest.approx(levels[1]["speedup_best"])
    serial = TABLES["table2"].query("policy == 'base' and turns == 3 and trajectories == 1").iloc[0]
    assert serial["speedup"] == pytest.approx(row("table1", "base")["speedup_avg"])


def test_one_row_is_the_endpoint_and_the_first_claim_is_read_off_it() -> None:
    (row,) = TABLES["primary"].query("endpoint == 'primary'").to_dict("records")
    assert (row["policy"], row["trajectories"], row["turns"]) == ("multi", 2, 3)
    first = TABLES["claims"].iloc[0]
    assert (TABLES["claims"]["kind"] == PRIMARY).tolist() == [True] + [False] * (len(TABLES["claims"]) - 1)
    for end in ("", "_low", "_high"):
        assert first[f"ours{end}"] == pytest.approx(row[f"over_reference{end}"])
    assert math.isnan(first["paper"]) and "named after these kernels had been seen" in first["why"]
    half = (math.log(first["ours_high"]) - math.log(first["ours_low"])) / 2
    assert first["detectable"] == pytest.approx(math.exp(half * (1.959964 + 0.841621) / 1.959964), rel=1e-5)


def test_claims_and_differences_tell_the_same() -> None:
    """Single-turn RL has fewer trajectories than multi-turn RL."""
    claims = TABLES["claims"].set_index("claim")
    differences = TABLES["differences"].query("split == 'all' and subset == 'all tasks'")
    differences = differences.set_index(["policy", "against", "metric"])
    for claim, sign, key in (
        ("Multi-turn RL beats single-turn RL in speedup", -1, ("single", "multi", "speedup_best")),
        ("Multi-turn RL makes the best kernels faster", 1, ("multi", "base", "speedup_best")),
        ("Multi-turn RL makes more trajectories correct", 1, ("multi", "base", "correct_avg")),
    ):
        assert claims.loc[claim, "ours"] == pytest.approx(sign * differences.loc[key, "difference"]), claim
        assert claims.loc[claim, "num_tasks"] == differences.loc[key, "num_tasks"]


def test_the_papers_rows_are_apart() -> None:
    theirs = TABLES["table1"].query("source == @paper.SOURCE")
    kevin = theirs.iloc[0]
    assert (kevin["correct_best"], kevin["speedup_best"], kevin["fast_1.5_avg"]) == (0.82, 1.10, 0.06)
    assert theirs[["correct_best_low", "num_seeds"]].isna().all(axis=None)
    assert set(theirs["subset"]) == {paper.TASKS} and set(theirs["baseline"]) == {"eager"}
    assert set(TABLES["table1"]["source"]) == {OURS, paper.SOURCE, paper.BLOG}
    second = TABLES["level2"].query("source != @OURS").set_index("policy")
    assert second.loc["Kevin, multi-turn RL", ["correct_avg", "speedup_best"]].tolist() == [0.48, 1.74]
    assert second.loc["o3", ["correct_avg", "speedup_best"]].tolist() == [0.093, 1.2]
    assert second["fast_1_best"].isna().all() and second["subset"].str.contains("90 % of them trained on").all()
    first = TABLES["level1"].query("source != @OURS")
    assert first[["correct_avg", "speedup_best"]].to_numpy().tolist() == [pytest.approx([0.82, 1.08])]


def test_unknown_table_and_absent_split(tmp_path: Path) -> None:
    given = {"study": golden_study(), "scores": [GOLDEN / "answers.csv"]}
    with pytest.raises(UsageError, match="serial_parallel"):
        make_table("fastest", tmp_path / "t.csv", **given)
    with pytest.raises(DataError, match="level3"):
        make_table("level3", tmp_path / "t.csv", **given)
