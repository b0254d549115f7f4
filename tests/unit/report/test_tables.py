"""The stored tables of `test_goldens` are right: counted by hand from the stored answers, and from each other."""

from __future__ import annotations

import math
from io import StringIO
from math import comb
from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import GOLDEN, golden_study, make_study, scored, trained_study

from kevin.core.errors import DataError, UsageError
from kevin.report import paper, show
from kevin.report.catalogue import make_table
from kevin.report.claims import PRIMARY
from kevin.report.scores import read_scores
from kevin.report.tables import METRICS, OURS, differences_table, pass_at_k_table

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
    assert math.isnan(first["paper"]) and "named after such kernels had been seen" in first["why"]
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


def firsts(policy: str, level: int, task: str, speedups: list[float | None]) -> pd.DataFrame:
    """First kernels of one task; None is a wrong one, NaN a turn without a verdict."""
    return scored(policy, {task: [[speedup] for speedup in speedups]}, split=f"level{level}").assign(level=level)


def test_it_is_the_unbiased_estimate_over_tasks():
    a = [2.0, 0.5, None, None, None]
    scores = pd.concat(
        [
            firsts("p0", 1, "a", a),
            firsts("p0", 1, "b", [None] * 5),
            firsts("p0", 2, "c", [3.0] * 16),
        ]
    )
    table = pass_at_k_table(scores, make_study(1)).set_index(["level", "k"])
    assert list(table.index) == [(1, 1), (1, 4), (2, 1), (2, 4), (2, 16)]
    assert table.loc[(1, 1), "correct"] == pytest.approx((2 / 5 + 0) / 2)
    assert table.loc[(1, 4), "correct"] == pytest.approx((1 - comb(3, 4) / comb(5, 4) + 0) / 2)
    assert table.loc[(1, 4), "fast_1"] == pytest.approx((1 - comb(4, 4) / comb(5, 4)) / 2)
    assert table.loc[(1, 1), "num_tasks"] == 2
    low, value, high = table.loc[(1, 1), ["correct_low", "correct", "correct_high"]]
    assert 0 == low < value < high <= 0.4
    assert table.loc[(2, 16), "correct"] == table.loc[(2, 16), "correct_low"] == 1


def test_later_turns_the_ceiling_and_turns_without_a_verdict_do_not_count():
    lost = [float("nan"), None, None, None]
    later = firsts("p0", 1, "a", [9.0] * 4).assign(turn=2)
    scores = pd.concat([firsts("p0", 1, "a", lost), later, firsts("ceiling", 1, "a", [9.0] * 4)])
    table = pass_at_k_table(scores, make_study(1))
    assert table["policy"].tolist() == ["p0"] and table["k"].tolist() == [1]
    assert table.loc[0, "correct"] == 0


def test_nothing_judged_is_an_empty_table():
    scores = firsts("p0", 1, "a", [float("nan")])
    assert pass_at_k_table(scores, make_study(1)).empty


def test_new_tasks_beside_kernelbenchs_are_no_level():
    new = firsts("p0", 2, "new", [None]).assign(split="unseen")
    table = pass_at_k_table(pd.concat([firsts("p0", 1, "a", [1.0]), firsts("p0", 2, "c", [1.0]), new]), make_study(1))
    assert table["level"].fillna(0).tolist() == [1, 2, 0] and table["correct"].tolist() == [1, 1, 0]
    shown = show.pass_at_k(pd.read_csv(StringIO(table.to_csv(index=False))), make_study(1))
    assert shown.cells["Tasks"].tolist() == ["Level 1", "Level 2", "New fused tasks"]
    older = pd.read_csv(StringIO(table.iloc[:2].drop(columns="split").to_csv(index=False)))
    assert show.pass_at_k(older, make_study(1)).cells["Tasks"].tolist() == ["Level 1", "Level 2"]


SIX = ("a", "b", "c", "d", "e", "f")


def rowwise(table: pd.DataFrame, policy: str, against: str, metric: str, subset: str = "all tasks") -> pd.Series:
    found = table[(table["policy"] == policy) & (table["against"] == against) & (table["metric"] == metric)]
    found = found[(found["split"] == "all") & (found["subset"] == subset)]
    assert len(found) == 1
    return found.iloc[0]


@pytest.fixture
def differences() -> pd.DataFrame:
    base = {task: [[None, 0.5], [None, None]] for task in SIX}
    first = {task: [[1.0, 2.0], [None, 1.0]] for task in SIX}
    second = {task: [[1.0, 1.0], [None, None]] for task in SIX[:4]}
    parts = [("base", base), ("multi", first), ("multi_1", second)]
    scores = pd.concat([scored(name, own, flawed="a") for name, own in parts])
    return differences_table(scores, trained_study(2, single=False))


def test_it_is_the_mean_over_seeds_against_the_other_policy(differences: pd.DataFrame) -> None:
    best = rowwise(differences, "multi", "base", "speedup_best")
    assert best["difference"] == pytest.approx((2.0 + 1.0) / 2 - 0.5)
    assert (best["num_tasks"], best["num_seeds"], best["num_seeds_against"]) == (6, 2, 1)
    assert best["difference_low"] <= best["difference"] <= best["difference_high"]
    assert bool(best["excludes_zero"]) is True
    zero = differences[(differences["difference_low"] < 0) & (differences["difference_high"] > 0)]
    assert len(zero) and not zero["excludes_zero"].any()
    fast = rowwise(differences, "multi", "base", "fast_1_avg")
    assert fast["difference"] == pytest.approx((1.0 + 0.5) / 2 - 0.0)


def test_shares_of_turns_are_over_kernels(differences: pd.DataFrame) -> None:
    mended = rowwise(differences, "multi", "base", "mended")
    assert mended["difference"] == pytest.approx((1.0 + 0.0) / 2 - 0.5)
    kept = rowwise(differences, "multi", "base", "kept")
    assert math.isnan(kept["difference"]) and pd.isna(kept["excludes_zero"]), "the base keeps none: it had none to keep"


def test_every_pair_measure_and_part_has_a_row(differences: pd.DataFrame) -> None:
    assert len(differences) == len(METRICS) * 2, "one pair, one split, with and without the flawed task"
    assert rowwise(differences, "multi", "base", "correct_avg", "without flawed tasks")["num_tasks"] == 5
    shown = show.differences(differences, trained_study(2, single=False))
    assert len(shown.cells) == 2 and list(shown.filters) == ["Which"]
    assert shown.cells.droplevel(0, axis=1)["Policy"].iloc[0] == "multi (2 seeds)"


def test_where_all_tasks_agree_nothing_tells_what_could_have_been_shown() -> None:
    same = {task: [[1.0, 2.0]] for task in SIX}
    study = trained_study(1, single=False)
    table = differences_table(pd.concat([scored(name, same) for name in ("base", "multi")]), study)
    best = rowwise(table, "multi", "base", "speedup_best")
    assert (best["difference"], best["difference_low"], best["difference_high"]) == (0, 0, 0)
    assert math.isnan(best["detectable"])
    (cell,) = show.differences(table, study).cells["Speedup", "best"]
    assert cell == "+0.00×\n+0.00 to +0.00"


def test_a_claim_of_which_nothing_tells_what_could_have_been_shown_names_nothing() -> None:
    table = TABLES["claims"].query("verdict == 'not shown'")
    study = trained_study(1, single=False)
    known, unknown = (show.claims(own, study).cells.to_string() for own in (table, table.assign(detectable=math.nan)))
    assert "could have been shown" in known and "could have been shown" not in unknown


def test_policies_without_a_common_task_have_no_numbers() -> None:
    scores = pd.concat([scored("base", {"a": [[1.0]]}), scored("multi", {"b": [[1.0]]})])
    table = differences_table(scores, trained_study(1, single=False))
    assert table["difference"].isna().all() and set(table["num_tasks"]) == {0}
