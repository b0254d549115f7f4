"""The first table: every split of every number of kernels, the primary endpoint, and what there is to find."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from report_fixtures import scored, trained_study

from kevin.core.config import Study
from kevin.report import show
from kevin.report.claims import NOT_MEASURED, NOT_SHOWN, SHOWN, claims_table
from kevin.report.html import findings
from kevin.report.primary import COLUMNS, COMPILED, EAGER, KNOWN, ROOM, primary_table

TASKS = [f"t{i}" for i in range(8)]
Speeds = dict[str, list[list[float | None]]]


def study(trajectories: int = 1, turns: int = 2, **primary: Any) -> Study:
    report = {"num_bootstrap": 200, "primary": {"trajectories": trajectories, "turns": turns, **primary}}
    return trained_study(1, report=report)


def drawn(seed: int, shape: tuple[int, int] = (6, 4)) -> Speeds:
    rng = np.random.default_rng(seed)
    values = rng.choice([0.0, 0.4, 0.9, 1.0, 1.6, 3.0], size=(len(TASKS), *shape))
    return {t: [[v or None for v in row] for row in own] for t, own in zip(TASKS, values.tolist(), strict=True)}


def over_all_choices(own: list[list[float | None]], k: int, turns: int, measure: Any) -> float:
    bests = [max(v or 0.0 for v in row[:turns]) for row in own]
    return float(np.mean([measure(max(chosen)) for chosen in combinations(bests, k)]))


MEASURES = {
    "speedup": lambda best: best,
    "geomean": lambda best: math.log(max(best, 1.0)),
    "fast_1": lambda best: float(best >= 1),
    "solved": lambda best: float(best > 0),
}


@pytest.fixture(scope="module")
def speeds() -> dict[str, Speeds]:
    return {"base": drawn(1), "multi": drawn(2), "single": drawn(3)}


@pytest.fixture(scope="module")
def table(speeds: dict[str, Speeds]) -> pd.DataFrame:
    return primary_table(pd.concat([scored(name, own) for name, own in speeds.items()]), {"t0": 5.0}, study())


def at(table: pd.DataFrame, policy: str, k: int, turns: int) -> pd.Series:
    return table[(table["policy"] == policy) & (table["trajectories"] == k) & (table["turns"] == turns)].iloc[0]


def test_every_level_is_the_mean_over_all_choices_of_trajectories(
    speeds: dict[str, Speeds], table: pd.DataFrame
) -> None:
    ours = table[table["policy"].isin(speeds)]
    assert list(table.columns) == COLUMNS and set(ours["num_tasks"]) == {8}
    splits = {(k, t) for k in (1, 2, 4, 6) for t in (1, 2, 4)}
    assert set(zip(ours["trajectories"], ours["turns"], strict=True)) == splits and len(ours) == 36
    assert (ours["kernels"] == ours["trajectories"] * ours["turns"]).all() and ours["kernels"].is_monotonic_increasing
    for row in ours.to_dict("records"):
        for name, measure in MEASURES.items():
            own = [
                over_all_choices(speeds[row["policy"]][t], row["trajectories"], row["turns"], measure) for t in TASKS
            ]
            value = float(np.mean(own))
            assert row[name] == pytest.approx(math.exp(value) if name == "geomean" else value)
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]


def test_ratios_are_to_as_many_first_answers(table: pd.DataFrame) -> None:
    turns, first, theirs = at(table, "multi", 2, 2), at(table, "multi", 4, 1), at(table, "single", 4, 1)
    assert turns["over_first"] == pytest.approx(turns["speedup"] / first["speedup"])
    assert turns["over_reference"] == pytest.approx(turns["geomean"] / theirs["geomean"])
    assert math.isnan(first["over_first"]) and math.isnan(theirs["over_reference"])
    assert first["over_reference"] == pytest.approx(first["geomean"] / theirs["geomean"])
    assert math.isnan(at(table, "multi", 4, 4)["over_first"]), "nobody has sixteen first answers, six are the most"


def test_it_is_shown_where_it_is_so_and_says_that_it_was_declared() -> None:
    fast, slow = [[1.0, 3.0]] * 2, [[1.0, 1.5]] * 2
    scores = pd.concat([scored(p, dict.fromkeys(TASKS, v)) for p, v in (("multi", fast), ("single", slow))])
    own = study(declared=True, against="single")
    row = claims_table(scores, own, "m").iloc[0]
    assert (row["verdict"], row["why"]) == (SHOWN, "interval above 1×") and row["ours"] == pytest.approx(3.0)
    assert claims_table(scores, study(against="base"), "m").iloc[0]["verdict"] == NOT_MEASURED
    near = pd.concat([scored(p, dict.fromkeys(TASKS, v)) for p, v in (("multi", [[1.0, 1.005]] * 2), ("single", slow))])
    assert claims_table(near, own, "m").iloc[0]["verdict"] == NOT_SHOWN, "less than the clock tells apart"
    with pytest.raises(ValidationError, match=r"report\.primary\.against names a policy that is not defined"):
        study(against="nobody")


def test_what_there_is_to_find_stands_below_each_by_its_name(speeds: dict[str, Speeds], table: pd.DataFrame) -> None:
    rows = table.set_index("policy")
    known = [max(v or 0.0 for own in speeds.values() for row in own[t] for v in row) for t in TASKS]
    assert rows.loc[EAGER, "speedup"] == rows.loc[EAGER, "geomean"] == 1.0
    assert (rows.loc[COMPILED, "speedup"], rows.loc[COMPILED, "num_tasks"]) == (5.0, 1)
    assert rows.loc[KNOWN, "speedup"] == pytest.approx(np.mean(known))
    room = [max(1.0, v, 5.0 if t == "t0" else 0.0) for t, v in zip(TASKS, known, strict=True)]
    assert rows.loc[ROOM, "geomean"] == pytest.approx(math.exp(np.mean(np.log(room))))
    first = at(table, "single", 2, 1)["geomean"]
    assert rows.loc[ROOM, "over_reference"] == pytest.approx(rows.loc[ROOM, "geomean"] / first)
    assert rows.loc["Kevin, multi-turn RL", "speedup"].tolist() == [1.10, 1.02, 0.65]
    assert table.iloc[-9:]["source"].str.startswith("paper").all()


def test_more_first_answers_of_search_are_taken_where_all_tasks_have_them(speeds: dict[str, Speeds]) -> None:
    scores = pd.concat([scored(name, own) for name, own in speeds.items()])
    firsts = {t: [[2.0]] * 8 for t in TASKS}
    own = scored("multi", firsts).assign(strategy="parallel")
    found = primary_table(scores, {}, study(), own)
    assert set(found[found["kernels"] == 8].query("turns == 1")["policy"]) == {"multi"}
    assert at(found, "multi", 1, 1)["speedup"] == pytest.approx(2.0)
    some = primary_table(scores, {}, study(), own[own["task_id"] != "t0"])
    assert found[found["kernels"] == 8].query("turns == 1").size and some.query("kernels == 8 and turns == 1").empty


def test_the_page_begins_with_what_was_found(speeds: dict[str, Speeds], table: pd.DataFrame) -> None:
    scores = pd.concat([scored(name, own) for name, own in speeds.items()])
    claims = claims_table(scores, study(), "a machine")
    first, fastest, turns = findings(table, claims, study())
    assert first.startswith(
        "Primary endpoint (named after such kernels had been seen): with 2 kernels a task, multi as"
    )
    assert "could have been shown" in first and f"{claims.iloc[0]['ours']:.2f}×" in first
    unknown, *_ = findings(table, claims.assign(detectable=math.nan), study())
    assert unknown == first.partition(";")[0] + "."
    best = table[table["kernels"] == 2].sort_values("geomean").iloc[-1]
    assert f"is that of {best['label']} as" in fastest and "; torch.compile: 5.00×" in fastest
    assert turns.startswith("With 4 kernels a task, turns (1 × 4) find of what as many first answers")
    miniature = study().model_copy(update={"report": study().report.model_copy(update={"miniature": True})})
    assert findings(table, claims, miniature) == []
    untrained = claims_table(scores[scores["policy"] == "base"], study(), "a machine")
    assert "not measured, for no policy made by" in findings(table, untrained, study())[0]


def test_people_see_one_number_of_kernels_at_a_time(table: pd.DataFrame) -> None:
    shown = show.primary(table, study())
    cells = shown.cells.droplevel(0, axis=1)
    ours = cells[[not theirs for theirs in shown.theirs]]
    assert shown.filters == ["Kernels a task"] and cells["Kernels a task"].iloc[0] == "2"
    assert set(ours["Kernels a task"]) == {"2", "1", "4", "6", "8", "12", "16", "24", "–"}
    rows = ours[ours["Kernels a task"] == "2"]
    assert rows["Trajectories × turns"].tolist() == ["2 × 1", "1 × 2"] * 3
    assert rows["Policy"].str.endswith("\nprimary endpoint").sum() == 1
    assert "every other number is exploratory" in shown.notes and "named after these had been seen" in shown.notes


def test_of_nobody_there_is_nothing() -> None:
    scores = scored("base", {"t0": [[1.0]]})
    found = primary_table(scores.iloc[:0], {}, study())
    assert set(found["source"]) != {"this study"} and list(found.columns) == COLUMNS
