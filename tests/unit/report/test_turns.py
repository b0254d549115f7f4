"""What turns are worth: estimators against loops over turns, on random scores."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from report_fixtures import make_study, make_task, make_turn, scored, trained_study

from kevin.core.types import Kernel, Outcome
from kevin.report.scores import score_frame, similarity, tokens
from kevin.report.turns import SHARES, mended_table, turn_changes, turns_table

WRONG = (Outcome.INCORRECT, Outcome.COMPILE_ERROR, Outcome.PARSE_ERROR)


def random_scores(policy: str, seed: int, num_tasks: int = 5, m: int = 4, n: int = 4) -> pd.DataFrame:
    """Tasks of differing ease; some trajectories end early, some turns have no verdict, some kernels are copies."""
    rng = np.random.default_rng(seed)
    rows = []
    for task in range(num_tasks):
        for trajectory in range(m):
            for turn in range(1, int(rng.integers(1, n + 1)) + 1):
                kind = rng.random()
                correct = kind < 0.2 + 0.15 * task
                outcome = "correct" if correct else None if kind > 0.95 else str(rng.choice([o.value for o in WRONG]))
                copy = rng.choice([0.5, 0.949, 0.95, 1.0, math.nan]) if turn > 1 else math.nan
                speedup = float(rng.choice([0.5, 0.52, 1.0, 3.0])) if correct else math.nan
                row = {"policy": policy, "split": "level1", "task_id": f"t{task}", "trajectory": trajectory}
                rows.append(row | {"turn": turn, "outcome": outcome, "speedup": speedup, "similarity": copy})
    frame = pd.DataFrame(rows)
    return frame.sample(frac=1, random_state=seed, ignore_index=True)


def counted(scores: pd.DataFrame, turn: int) -> dict[str, tuple[float, float]]:
    """(counted, of) of every share on one turn, by looking at each kernel and the one before."""
    place = {(r["task_id"], r["trajectory"], r["turn"]): r for r in scores.to_dict("records")}
    totals = dict.fromkeys(SHARES, (0, 0))

    def add(name: str, hit: bool) -> None:
        totals[name] = (totals[name][0] + hit, totals[name][1] + 1)

    for (task, trajectory, number), now in place.items():
        if number != turn or pd.isna(now["outcome"]):
            continue
        good = now["outcome"] == "correct"
        add("correct", good)
        before = [place.get((task, trajectory, n), {}).get("speedup", math.nan) for n in range(1, number)]
        if best := max((v for v in before if v > 0), default=0.0):
            add("improved", good and now["speedup"] > 1.05 * best)
        if not math.isnan(now["similarity"]):
            add("copied", now["similarity"] >= 0.95)
        last = place.get((task, trajectory, number - 1))
        if last is None or pd.isna(last["outcome"]):
            continue
        if last["outcome"] != "correct":
            add("mended", good)
            continue
        add("kept", good)
        add("faster", good and now["speedup"] / last["speedup"] > 1.05)
        add("slower", good and last["speedup"] / now["speedup"] > 1.05)
        add("repeated", now["similarity"] == 1)
    return totals


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_those_of_a_count_kernel_by_kernel(seed):
    scores = random_scores("p0", seed)
    table = by_turn(scores)
    for turn in table.index:
        for name, (hits, of) in counted(scores, turn).items():
            assert table.loc[turn, name] == pytest.approx(hits / of if of else math.nan, nan_ok=True), (turn, name)
        assert table.loc[turn, "num_wrong_before"] == counted(scores, turn)["mended"][1]
        assert table.loc[turn, "num_correct_before"] == counted(scores, turn)["kept"][1]
        assert table.loc[turn, "num_kernels"] == counted(scores, turn)["correct"][1]
    every = turns_table(scores, make_study(1)).query("split == 'all'").iloc[0]
    improved = [counted(scores, turn)["improved"] for turn in table.index]
    assert every["improved"] == pytest.approx(sum(h for h, _ in improved) / sum(n for _, n in improved))
    assert every["num_best_before"] == sum(n for _, n in improved) == table["num_best_before"].sum()


def test_an_improved_best_is_set_against_first_answers_of_the_other_trajectories():
    tasks = {"a": [[1.0, 2.0, 2.05], [1.5, None], [None, 1.0]], "b": [[2.0, 1.0]]}
    row = turns_table(scored("base", tasks), make_study(1)).query("split == 'all'").iloc[0]
    assert row["num_best_before"] == 4 and row["improved"] == 1 / 4, "2.05 is less than 5 % above 2"
    assert row["fresh"] == pytest.approx((1 / 2 + 0 + 0) / 3), "1.5 beats 1; nothing beats 2, nor 1.5; b has no other"
    assert row["over_fresh"] == pytest.approx(1 / 3 - 1 / 6)
    late = turn_changes(scored("base", {"a": [[1.0], [None, 1.0, 3.0], [math.nan, 9.0]]}))
    assert late.set_index(["trajectory", "turn"])["fresh"].dropna().to_dict() == {(1, 3): 0.0}


def by_turn(scores):
    return turns_table(scores, make_study(1)).query("split != 'all'").set_index("turn")


@pytest.mark.parametrize("seed", range(3))
def test_the_best_so_far_of_a_trajectory_and_of_all_of_a_task(seed):
    scores = random_scores("p0", seed)
    table = by_turn(scores)
    judged = scores[scores["outcome"].notna()]
    for turn in table.index:
        early = judged[judged["turn"] <= turn]
        best = early["speedup"].fillna(0).groupby([early["task_id"], early["trajectory"]]).max()
        means = {"trajectory_speedup": best.groupby("task_id").mean(), "best_speedup": best.groupby("task_id").max()}
        for name, by_task in means.items():
            row = table.loc[turn]
            assert row[name] == pytest.approx(by_task.mean())
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]


def test_kinds_of_error_add_up_to_all_of_them():
    scores = random_scores("p0", 1, num_tasks=8)
    table = mended_table(scores, make_study(1)).set_index("error")
    kinds = table.drop(index="any")
    assert kinds["num_kernels"].sum() == table.loc["any", "num_kernels"] > 0
    mended = (kinds["mended"] * kinds["num_kernels"]).sum() / kinds["num_kernels"].sum()
    assert mended == pytest.approx(table.loc["any", "mended"])
    turns = [counted(scores, t)["mended"] for t in range(2, 5)]
    assert table.loc["any", "mended"] == pytest.approx(sum(h for h, _ in turns) / sum(n for _, n in turns))


def test_what_is_mended_is_set_against_first_answers_of_the_other_trajectories():
    """Task a: of three first answers one is right, so of the two wrong ones' others a half; b: all are wrong."""
    study = trained_study(1, single=False)
    tasks = {"a": [[1.0, None], [None, 1.0], [None, None]], "b": [[None, None]] * 3, "c": [[None, 1.0]]}
    table = mended_table(scored("base", tasks), study).set_index("error")
    row = table.loc["any"]
    assert row["num_kernels"] == 6
    assert row["mended"] == pytest.approx(2 / 6)
    assert row["fresh"] == pytest.approx((0.5 + 0.5 + 0 + 0 + 0) / 5), "c has no other trajectory"
    assert row["over_fresh"] == pytest.approx(1 / 5 - 1 / 5)
    alone = mended_table(scored("base", {"c": [[None, 1.0]]}), study).set_index("error").loc["any"]
    assert alone["mended"] == 1.0 and math.isnan(alone["fresh"]) and math.isnan(alone["over_fresh"])


def test_first_answers_that_were_not_judged_are_none():
    scores = scored("base", {"a": [[math.nan, None, 1.0], [1.0], [None, None]]})
    table = mended_table(scores, trained_study(1, single=False)).set_index("error")
    assert table.loc["any", "fresh"] == pytest.approx((1 / 2 + 1) / 2)


class TestSimilarity:
    CODE = "// one\nfor (int i = 0; i < n; i++) {\n  y[i] = x[i] * 2; /* two */\n}\n"

    def test_comments_and_layout_are_not_looked_at(self):
        assert similarity(self.CODE, "for(int i=0;i<n;i++){y[i]=x[i]*2;}") == 1
        assert tokens("# note\n#pragma omp parallel\n#include <x>")[:3] == ("#", "pragma", "omp")

    def test_it_is_twice_the_matching_tokens_over_all(self):
        assert similarity("a b c d", "a b x d") == 2 * 3 / 8
        assert similarity("a b", "c d") == 0
        assert similarity("x a b c", "a y b x c") == pytest.approx(2 * 3 / 9), "in order, not in one piece"

    def test_a_changed_name_is_a_change(self):
        assert similarity(self.CODE, self.CODE.replace("* 2", "* 3")) < 1

    def test_scores_hold_it_against_the_turn_before(self):
        task = make_task("relu", 1)
        kernel = Kernel(dialect="c_abi", language="cpp", source="a b c d")
        other = kernel.model_copy(update={"source": "a b x d"})
        turns = [make_turn(task.id, 0, i, Outcome.INCORRECT) for i in (1, 2, 3, 4)]
        changes = [{"kernel": kernel}, {"kernel": other}, {"kernel": None}, {"kernel": kernel}]
        turns = [t.model_copy(update=c) for t, c in zip(turns, changes, strict=True)]
        frame = score_frame(turns, [task], make_study(1).reward, policy="p0", split="level1")
        assert frame["similarity"].tolist() == pytest.approx([math.nan, 0.75, math.nan, math.nan], nan_ok=True)
