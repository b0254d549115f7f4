"""Verdicts on the paper's claims: each of them from scores that make it so."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from report_fixtures import scored, trained_study

from kevin.core.config import Study
from kevin.report import paper, show
from kevin.report.claims import COLUMNS, NOT_MEASURED, NOT_SHOWN, REFUTED, SHOWN, claims, claims_table, interval_verdict
from kevin.report.metrics import Interval

TASKS = [f"t{i}" for i in range(8)]
GOOD, BAD = [[None, 2.0], [None, 2.0]], [[None, None], [None, 0.5]]


def table(study: Study, **policies: list[list[float | None]]) -> pd.DataFrame:
    """Every task with the same trajectories for each policy."""
    scores = pd.concat([scored(name, dict.fromkeys(TASKS, own)) for name, own in policies.items()])
    return claims_table(scores, study, "a machine").set_index("claim")


def named(frame: pd.DataFrame, text: str) -> pd.Series:
    found = frame[frame.index.str.contains(text)]
    assert len(found) == 1, text
    return found.iloc[0]


def test_verdicts_follow_the_interval() -> None:
    assert interval_verdict(Interval(1, 0.1, 2), 0, at_least=False) == SHOWN
    assert interval_verdict(Interval(1, -0.1, 2), 0, at_least=False) == NOT_SHOWN
    assert interval_verdict(Interval(-1, -2, -0.1), 0, at_least=False) == REFUTED
    assert interval_verdict(Interval(0, 0, 0), 0, at_least=False) == NOT_SHOWN, "no difference is none shown"
    assert interval_verdict(Interval(0.5, 0.46, 0.6), 0.46, at_least=True) == SHOWN


def test_what_is_better_is_shown_and_what_is_worse_refuted() -> None:
    better = table(trained_study(2), base=BAD, multi=GOOD, multi_1=GOOD, single=BAD)
    worse = table(trained_study(2), base=GOOD, multi=BAD, multi_1=BAD, single=GOOD)
    for text in ("more trajectories correct", "best kernels faster", "RL gain", "beats single-turn RL"):
        assert named(better, text)["verdict"] == SHOWN, text
        assert named(worse, text)["verdict"] == REFUTED, text
    row = named(better, "more trajectories correct")
    assert row["ours"] == pytest.approx(0.5) and row["paper"] == pytest.approx(0.46 - 0.11)
    assert (row["num_tasks"], row["num_seeds"], row["num_seeds_against"]) == (8, 2, 1)
    assert row["policies"] == "multi (2 seeds), base model" and row["setting"] == "2 × 2"
    assert named(better, "of tasks are solved$")["verdict"] == SHOWN
    assert named(worse, "trajectories are correct")["verdict"] == SHOWN, "half of them, the paper has 46 %"
    assert named(worse, "tasks are solved as fast")["verdict"] == REFUTED


@pytest.mark.slow
def test_what_the_clock_alone_may_make_is_not_shown_and_not_refuted() -> None:
    slow, fast = [[2.0, 2.0], [2.0, 2.0]], [[2.0, 2.015], [2.0, 2.015]]
    study = trained_study(1)
    for resolution, better, worse in ((0.01, NOT_SHOWN, NOT_SHOWN), (0.005, SHOWN, REFUTED)):
        read = study.model_copy(update={"report": study.report.model_copy(update={"timing_resolution": resolution})})
        row = named(table(read, base=slow, multi=fast, single=slow), "beats single-turn RL")
        assert row["ours"] == pytest.approx(0.015) and row["ours_low"] > 0 and row["verdict"] == better
        assert named(table(read, base=slow, multi=slow, single=fast), "beats single-turn RL")["verdict"] == worse
        serial = named(table(read, base=slow, multi=fast, single=slow), "serial budget beats")
        assert serial["ours_low"] > 1 and serial["verdict"] == better
    assert (
        "than times are told apart, 0.02"
        in named(table(study, base=slow, multi=fast, single=slow), "beats single-turn RL")["why"]
    )
    shares = named(table(study, base=BAD, multi=GOOD, single=BAD), "more trajectories correct")
    assert shares["verdict"] == SHOWN, "kernels are counted, not timed"


def test_serial_over_parallel_is_the_ratio_at_equal_kernels() -> None:
    serial, parallel = [[1.0, 3.0], [1.0, 3.0]], [[2.0, 2.0], [2.0, 2.0]]
    frame = table(trained_study(1), base=BAD, multi=serial, single=parallel)
    own = named(frame, "serial budget beats")
    assert own["ours"] == pytest.approx(3.0) and own["verdict"] == SHOWN and own["setting"] == "1 × 2 and 2 × 1"
    assert own["paper"] == pytest.approx(1.10 / 0.65)
    assert named(frame, "worth more after")["ours"] == pytest.approx(3.0 - 1.0)
    swapped = table(trained_study(1), base=BAD, multi=parallel, single=serial)
    assert named(swapped, "worth more after")["verdict"] == REFUTED
    assert named(swapped, "serial budget beats")["verdict"] == NOT_SHOWN


def test_what_cannot_be_measured_says_why() -> None:
    alone = table(trained_study(1, single=False), base=BAD, multi=GOOD)
    row = named(alone, "beats single-turn RL")
    assert row["verdict"] == NOT_MEASURED and "single-turn RL" in row["why"] and math.isnan(row["ours"])
    assert named(alone, "more trajectories correct")["verdict"] == SHOWN
    untrained = table(trained_study(1), base=BAD)
    assert set(untrained["verdict"]) == {NOT_MEASURED} and untrained["ours"].isna().all()
    no_base = table(trained_study(1), multi=GOOD, single=BAD)
    assert "base, which" in named(no_base, "best kernels faster")["why"]
    one_turn = table(trained_study(1), base=[[1.0]], multi=[[1.0]], single=[[1.0]])
    assert "in two ways" in named(one_turn, "serial budget beats")["why"]
    nothing = table(trained_study(1), base=BAD, multi=BAD, single=BAD)
    assert "nothing to divide by" in named(nothing, "serial budget beats")["why"]


def test_the_best_are_compared_at_as_many_trajectories_and_turns_as_both_have() -> None:
    """Of four trajectories the best is faster than that of one, and of three turns than that of two."""
    many, few = [[1.0, 1.0, 9.0], [2.0, 1.0, 9.0], [3.0, 1.0, 9.0], [4.0, 1.0, 9.0]], [[2.0, 2.5]]
    row = named(table(trained_study(1), base=many, multi=few, single=many), "best kernels faster")
    assert row["ours"] == pytest.approx(2.5 - (1 + 2 + 3 + 4) / 4) and row["setting"] == "1 × 2"
    row = named(table(trained_study(1), base=few, multi=many, single=few), "best kernels faster")
    assert row["ours"] == pytest.approx((1 + 2 + 3 + 4) / 4 - 2.5) and row["setting"] == "1 × 2"
    assert named(table(trained_study(1), base=few, multi=many, single=few), "best kernels are")["ours"] == 9.0


def test_few_tasks_are_too_few() -> None:
    scores = pd.concat([scored("base", {"a": BAD, "b": BAD}), scored("multi", {"a": GOOD, "b": GOOD})])
    row = named(claims_table(scores, trained_study(1), "m").set_index("claim"), "best kernels faster")
    assert row["verdict"] == NOT_MEASURED and "2 tasks" in row["why"]


@pytest.mark.parametrize(
    ("speedup", "task", "verdict"),
    [(9.7, "kb/1/40", SHOWN), (9.0, "kb/1/40", NOT_SHOWN), (12.0, "l1/layer_norm", NOT_MEASURED)],
)
def test_layer_norm_is_about_one_kernel_of_one_task(speedup: float, task: str, verdict: str) -> None:
    gpu = {"judge": {"device": "cuda"}, "tasks": {"source": "kernelbench", "case_study": task}}
    study = trained_study(1, **gpu)
    scores = pd.concat([scored("base", {task: [[99.0]]}), scored("multi", {task: [[None, speedup], [1.0, 2.0]]})])
    row = named(claims_table(scores, study, "NVIDIA H200").set_index("claim"), "LayerNorm")
    assert (row["verdict"], row["ours"], row["paper"]) == (verdict, speedup, 9.61)
    if verdict == NOT_MEASURED:
        assert "l1/layer_norm" in row["why"]


@pytest.mark.slow
def test_layer_norm_is_looked_for_among_the_kernels_of_search_too() -> None:
    gpu = {"judge": {"device": "cuda"}, "tasks": {"source": "kernelbench", "case_study": "kb/1/40"}}
    study = trained_study(1, **gpu)
    scores = pd.concat([scored(p, {"kb/1/40": [[None, 2.0], [1.0, 2.0]]}) for p in ("base", "multi", "single")])
    first = pd.concat([scored(p, {"kb/1/40": [[v], [1.0]] * 2}) for p, v in (("multi", 3.0), ("single", 12.0))])
    of_base = scored("base", {"kb/1/40": [[99.0]] * 4})

    def row(search: pd.DataFrame) -> pd.Series:
        frame = claims_table(scores, study, "NVIDIA H200", search.assign(strategy="parallel"))
        return named(frame.set_index("claim"), "LayerNorm")

    assert (row(first)["verdict"], row(first)["ours"]) == (SHOWN, 12.0)
    assert row(first)["setting"] == "2 × 2 and 4 × 1"
    alone = first[first["policy"] == "single"]
    assert (row(alone)["ours"], row(alone)["setting"]) == (12.0, "2 × 2 and 4 × 1"), "of some of the policies alone"
    assert (row(of_base)["verdict"], row(of_base)["ours"]) == (NOT_SHOWN, 2.0), "a kernel of no trained policy"
    assert row(of_base)["setting"] == "2 × 2"


def test_the_papers_numbers_are_those_of_its_tables() -> None:
    numbers = {claim.text: claim.paper for claim in claims(trained_study(1))}
    assert numbers["Multi-turn RL beats single-turn RL in speedup"] == pytest.approx(1.10 - 0.85)
    assert numbers["After multi-turn RL: at least 46 % of trajectories are correct"] == 0.46
    assert numbers["After multi-turn RL: at least 43 % of tasks are solved as fast as by eager"] == 0.43
    assert numbers["Turns are worth more after multi- than after single-turn RL"] == pytest.approx(
        1.1 / 0.65 - 0.85 / 0.7
    )
    assert max(t.speedup or 0 for t in paper.LAYER_NORM) == numbers["LayerNorm is made 9.61 times as fast"]


def test_a_miniature_measures_no_claim() -> None:
    study = trained_study(2)
    miniature = study.model_copy(update={"report": study.report.model_copy(update={"miniature": True})})
    frame = table(miniature, base=BAD, multi=GOOD, single=BAD)
    assert set(frame["verdict"]) == {NOT_MEASURED} and set(frame["why"]) == {"a miniature of the study"}
    assert frame["ours"].isna().all() and frame["paper"].notna().sum() == len(frame) - 1


def test_the_page_shows_every_claim_with_its_verdict() -> None:
    study = trained_study(2)
    scores = pd.concat([scored(p, dict.fromkeys(TASKS, GOOD)) for p in study.evaluate])
    frame = claims_table(scores, study, "a machine")
    assert list(frame.columns) == COLUMNS
    shown = show.claims(frame, study)
    assert len(shown.cells) == len(claims(study))
    assert [cell.partition("\n")[0] for cell in shown.cells["Verdict"]] == frame["verdict"].tolist()
    assert "laptop scale, a machine" in shown.notes
    assert shown.cells["Seeds"].iloc[1] == "2, 1"
