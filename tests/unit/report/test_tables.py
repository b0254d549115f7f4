from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import make_study, scored, trained_study, write_scores, write_study

from kevin.core.errors import DataError, UsageError
from kevin.report import paper
from kevin.report.catalogue import make_table
from kevin.report.tables import OURS, policies_table, read_baselines, table2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    root = tmp_path_factory.mktemp("study")
    study = make_study(2)
    files = write_study(root, study)
    scores = write_scores(root, study, files)
    tables = {"scores": pd.concat(pd.read_parquet(p) for p in scores)}
    shared = ("serial_parallel", "turns", "mended", "pass_at_k", "tasks")
    for name in ("primary", "table1", "table2", "level1", "level2", *shared):
        out = make_table(name, root / f"{name}.csv", study=study, scores=scores, baselines=files["baselines"][0])
        tables[name] = pd.read_csv(out)
    tables["bare"] = pd.read_csv(make_table("level1", root / "bare.csv", study=study, scores=scores))
    tables["baselines"] = pd.read_parquet(files["baselines"][0])
    return tables


def row(table: pd.DataFrame, policy: str, baseline: str = "eager", subset: str = "all tasks") -> pd.Series:
    found = table[(table["policy"] == policy) & (table["baseline"] == baseline) & (table["subset"] == subset)]
    assert len(found) == 1
    return found.iloc[0]


def test_level_table_agrees_with_a_count_by_hand(made: dict[str, pd.DataFrame]) -> None:
    own = made["scores"].query("policy == 'p0' and split == 'level1'")
    best = own["speedup"].fillna(0).groupby([own["task_id"], own["trajectory"]]).max().unstack()
    got = row(made["level1"], "p0")
    assert got["speedup_best"] == pytest.approx(best.max(axis=1).mean())
    assert got["speedup_avg"] == pytest.approx(best.to_numpy().mean())
    assert got["fast_1_avg"] == pytest.approx((best >= 1).to_numpy().mean())
    assert got["correct_best"] == pytest.approx((best > 0).any(axis=1).mean())
    assert got["fast_0_avg"] == got["correct_avg"] == pytest.approx((best > 0).to_numpy().mean())
    assert (got["num_tasks"], got["trajectories"], got["turns"], got["num_turns"]) == (8, 4, 4, 128)


def test_intervals_enclose_their_values(made: dict[str, pd.DataFrame]) -> None:
    ours = made["level2"].query("source == @OURS")
    names = [c.removesuffix("_low") for c in ours.columns if c.endswith("_low")]
    assert "geomean_best" in names and "fast_1.5_avg" in names
    for name in names:
        known = ours[ours[name].notna()]
        assert (known[f"{name}_low"] <= known[name]).all() and (known[name] <= known[f"{name}_high"]).all()


def test_rows_by_policy_baseline_and_subset(made: dict[str, pd.DataFrame]) -> None:
    ours = made["level1"].query("source == @OURS")
    assert set(ours["policy"]) == {"p0", "p1", "ceiling", "torch.compile"}
    assert set(ours["baseline"]) == {"eager", "torch.compile"}
    assert row(made["level1"], "p1", subset="without flawed tasks")["num_tasks"] == 7
    assert set(made["level2"].query("source == @OURS")["subset"]) == {"all tasks"}
    assert set(made["bare"]["baseline"]) == {"eager"}


def test_speedup_over_compile_is_over_eager_times_the_ratio(made: dict[str, pd.DataFrame]) -> None:
    times = made["baselines"].pivot(index="task_id", columns="baseline", values="median_us")
    compiled = times["compile"] / times["eager"]
    own = made["scores"].query("policy == 'p1' and split == 'level1'")
    best = own.groupby("task_id")["speedup"].max().fillna(0)
    assert row(made["level1"], "p1", "torch.compile")["speedup_best"] == pytest.approx(
        (best * compiled).dropna().mean()
    )
    shared = compiled[compiled.index.isin(best.index)]
    assert row(made["level1"], "torch.compile")["speedup_best"] == pytest.approx((1 / shared).mean())


def test_the_papers_rows_are_apart(made: dict[str, pd.DataFrame]) -> None:
    theirs = made["table1"].query("source == @paper.SOURCE")
    kevin = theirs.iloc[0]
    assert len(theirs) == 5
    assert (kevin["correct_best"], kevin["speedup_best"], kevin["fast_1.5_avg"]) == (0.82, 1.10, 0.06)
    assert theirs["correct_best_low"].isna().all()
    assert set(theirs["subset"]) == {paper.TASKS} and set(theirs["baseline"]) == {"eager"}
    assert set(made["table1"]["source"]) == {OURS, paper.SOURCE, paper.BLOG}
    assert theirs["num_seeds"].isna().all()


def test_level_tables_hold_only_what_is_said_of_that_level(made: dict[str, pd.DataFrame]) -> None:
    second = made["level2"].query("source != @OURS").set_index("policy")
    assert set(second["source"]) == {paper.BLOG} and set(second["num_tasks"]) == {100}
    assert second.loc["Kevin, multi-turn RL", ["correct_avg", "speedup_best"]].tolist() == [0.48, 1.74]
    assert second.loc["o3", ["correct_avg", "speedup_best"]].tolist() == [0.093, 1.2]
    assert second["fast_1_best"].isna().all() and second["subset"].str.contains("90 % of them trained on").all()
    first = made["level1"].query("source != @OURS")
    assert first[["correct_avg", "speedup_best"]].to_numpy().tolist() == [pytest.approx([0.82, 1.08])]
    assert first["subset"].str.contains("not printed there").all()
    both = made["table1"].query("source == @paper.BLOG").set_index("policy")
    assert both.loc["o4-mini", "correct_best"] == 0.53 and set(both["num_tasks"]) == {200}


def test_table1_is_over_all_splits_together(made: dict[str, pd.DataFrame]) -> None:
    got = row(made["table1"], "p1")
    levels = [row(made[name], "p1") for name in ("level1", "level2")]
    for column in ("speedup_best", "correct_avg", "fast_1.5_best"):
        assert got[column] == pytest.approx(sum(r[column] * r["num_tasks"] for r in levels) / 13)
    assert (got["num_tasks"], got["num_seeds"]) == (13, 1)
    assert row(made["table1"], "p1", subset="without flawed tasks")["num_tasks"] == 12


def test_one_budget_serial_and_parallel(made: dict[str, pd.DataFrame]) -> None:
    ours = made["serial_parallel"].query("source == @OURS and split == 'level1' and policy == 'p0'")
    assert ours[["trajectories", "turns"]].to_numpy().tolist() == [[4, 1], [2, 2], [1, 4]]
    assert set(ours["budget"]) == {4}
    serial = ours[ours["turns"] == 4].iloc[0]
    assert serial["speedup"] == pytest.approx(row(made["level1"], "p0")["speedup_avg"])
    assert "ceiling" not in set(made["serial_parallel"]["policy"])
    assert set(made["serial_parallel"]["source"]) == {OURS}


def test_table2_is_one_budget_over_all_splits_beside_the_papers(made: dict[str, pd.DataFrame]) -> None:
    ours = made["table2"].query("source == @OURS and policy == 'p0'")
    assert ours[["trajectories", "turns"]].to_numpy().tolist() == [[4, 1], [2, 2], [1, 4]]
    assert set(ours["split"]) == {"all"} and set(ours["num_tasks"]) == {13}
    assert ours.query("turns == 4").iloc[0]["speedup"] == pytest.approx(row(made["table1"], "p0")["speedup_avg"])
    theirs = made["table2"].query("source == @paper.SOURCE")
    assert set(theirs["budget"]) == {128} and len(theirs) == 9
    assert set(theirs["split"]) == {paper.TASKS}


def test_seeds_of_a_recipe_have_a_row_each_and_one_together() -> None:
    study = trained_study(2, single=False)
    tasks = [f"t{i}" for i in range(6)]
    parts = {"base": [[1.0, None]], "multi": [[1.0, 3.0]], "multi_1": [[None, 2.0]]}
    scores = pd.concat([scored(p, dict.fromkeys(tasks, own)) for p, own in parts.items()])
    table = policies_table(scores, read_baselines(None), study, [])
    assert table[["policy", "num_seeds"]].to_numpy().tolist() == [
        ["base", 1],
        ["multi", 1],
        ["multi_1", 1],
        ["multi", 2],
    ]
    pooled = table.iloc[3]
    assert pooled["speedup_best"] == 2.5 and pooled["label"] == "multi (2 seeds)"
    assert (pooled["num_tasks"], pooled["num_turns"], pooled["trajectories"]) == (6, 24, 1)
    assert table.iloc[1]["speedup_best_low"] == table.iloc[1]["speedup_best_high"] == 3.0
    assert pooled["speedup_best_low"] < 2.5 < pooled["speedup_best_high"], "the seeds differ, the tasks do not"
    budget = table2(scores, study).query("source == @OURS and num_seeds == 2")
    assert budget["speedup"].tolist() == [0.5] and budget["num_tasks"].tolist() == [6]


def test_tasks_table_has_every_task_and_policy(made: dict[str, pd.DataFrame]) -> None:
    table = made["tasks"]
    assert len(table) == 13 * 3
    assert table["eager_us"].notna().all()
    mean = table.query("policy == 'p0' and split == 'level2'")["speedup_best"].mean()
    assert mean == pytest.approx(row(made["level2"], "p0")["speedup_best"])


def test_unknown_table_and_absent_split(tmp_path: Path) -> None:
    study = make_study(1)
    scores = write_scores(tmp_path, study, write_study(tmp_path, study))
    with pytest.raises(UsageError, match="serial_parallel"):
        make_table("fastest", tmp_path / "t.csv", study=study, scores=scores[:1])
    with pytest.raises(DataError, match="level2"):
        make_table("level2", tmp_path / "t.csv", study=study, scores=scores[:1])
