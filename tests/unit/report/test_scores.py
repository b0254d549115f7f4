from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import make_study, make_task, make_turn, write_report, write_scores, write_study

from kevin.core.config import RewardConfig, Study
from kevin.core.config.layers import plain
from kevin.core.config.study import validate_study
from kevin.core.errors import ConfigError, DataError
from kevin.core.files import read_parquet, read_table, write_csv
from kevin.core.types import Outcome
from kevin.report.recipes import policy_label, policy_order, split_label
from kevin.report.scores import read_scores, read_typed, score_frame

TASK = make_task("relu", 1)
TURNS = [
    make_turn(TASK.id, 0, 1, Outcome.CORRECT, 0.5),
    make_turn(TASK.id, 0, 2, None),
    make_turn(TASK.id, 0, 3, Outcome.CORRECT, 2.0),
    make_turn(TASK.id, 1, 1, Outcome.PARSE_ERROR),
]


def test_scores_and_returns_of_a_trajectory() -> None:
    frame = score_frame(TURNS[::-1], [TASK], RewardConfig(), policy="base", split="level1")
    assert frame["turn"].tolist() == [1, 2, 3, 1]
    assert frame["score"].tolist()[::2] == [0.8, 2.3]
    assert frame["return"].tolist()[0] == pytest.approx(0.8 + 0.4**2 * 2.3)
    assert frame["return"].tolist()[3] == 0.0


def test_a_turn_without_a_verdict_has_no_score() -> None:
    missing = score_frame(TURNS, [TASK], RewardConfig(), policy="base", split="level1").iloc[1]
    assert missing[["outcome", "score", "return"]].isna().all()


def test_no_kernel_has_no_digest() -> None:
    frame = score_frame(TURNS, [TASK], RewardConfig(), policy="base", split="level1")
    assert frame["kernel_digest"].isna().tolist() == [False, False, False, True]
    assert frame["expected_opening"].all()


def test_turns_of_unknown_tasks_are_an_error() -> None:
    with pytest.raises(DataError, match="l1/relu"):
        score_frame(TURNS, [make_task("gelu", 1)], RewardConfig(), policy="base", split="level1")


def test_files_round_trip_in_the_order_of_the_study(tmp_path: Path) -> None:
    study = make_study(2)
    scores = write_scores(tmp_path, study, write_study(tmp_path, study))
    frame = read_scores(scores[::-1], study)
    assert frame["policy"].unique().tolist() == ["p0", "p1", "ceiling"]
    assert frame["flawed"].any() and not frame["flawed"].all()
    _, meta = read_parquet(scores[0], "scores")
    assert (meta["policy"], meta["config_digest"], meta["rollouts"]["cpu"]) == ("p0", study.digest, "A CPU")
    with pytest.raises(DataError, match="same policy"):
        read_scores([scores[0], scores[0]], study)
    with pytest.raises(DataError, match="no scores in no files"):
        read_scores([], study)


def test_names_for_people() -> None:
    study = make_study(2)
    assert policy_order(["ceiling", "x", "p1", "p0"], study) == ["p0", "p1", "x", "ceiling"]
    assert [policy_label(p, study) for p in ("p0", "x", "ceiling")] == [
        "base model",
        "x",
        "ceiling (kernel writer)",
    ]
    assert [split_label(s) for s in ("level2", "train")] == ["Level 2", "train"]


ODD = ("007", "NA", "None", "1e5", "nan", "True", "null", "-1", "1.0", "inf", "N-A")


def renamed(study: Study, names: tuple[str, ...]) -> Study:
    policies = dict(zip(names, [p.model_copy(update={"label": None}) for p in study.policies.values()], strict=True))
    return study.model_copy(update={"policies": policies, "evaluate": names})


def test_names_come_back_from_a_table(tmp_path: Path) -> None:
    ones = ["1"] * len(ODD)
    columns = {"policy": list(ODD), "label": list(reversed(ODD)), "task_id": ones, "policies": ones}
    frame = pd.DataFrame(columns | {"speedup": [None, float("inf"), *[1 / 3] * (len(ODD) - 2)], "num_tasks": 7})
    write_csv(tmp_path / "t.csv", frame)
    found = read_table(tmp_path / "t.csv")
    assert list(found["policy"]) == list(ODD) and list(found["label"]) == list(reversed(ODD))
    assert list(found["task_id"]) == list(found["policies"]) == ones
    assert pd.isna(found["speedup"][0]) and found["speedup"][1:].tolist() == frame["speedup"][1:].tolist()
    assert found["num_tasks"].dtype == "int64"


def test_names_come_back_from_answers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"policy": list(ODD), "turn": range(len(ODD))})
    write_csv(tmp_path / "answers.csv", frame)
    pd.testing.assert_frame_equal(read_typed(tmp_path / "answers.csv", "answers", {"turn": "int64"}), frame)


@pytest.mark.slow
def test_a_whole_report_of_such_names(tmp_path: Path) -> None:
    study = renamed(make_study(4), ODD[:4])
    page = write_report(tmp_path, study, write_study(tmp_path, study)).read_text()
    for name in ("level1", "table1", "turns", "mended", "pass_at_k", "tasks"):
        policies = set(read_table(tmp_path / f"{name}.csv")["policy"])
        assert set(ODD[:4]) <= policies, name
        shown = (tmp_path / f"{name}.md").read_text()
        assert all(f" {policy} " in shown for policy in ODD[:4]), name
    assert all(f">{policy}<" in page for policy in ODD[:4])


@pytest.mark.parametrize("name", [7, 1e5, None, True])
def test_a_name_that_is_none_says_what_to_write(name: object) -> None:
    """As YAML reads ``007``, ``1.0e5``, ``null`` and ``yes``."""
    for raw in ({"policies": {name: {"model": "m"}}, "evaluate": []}, {"policies": {}, "evaluate": [name]}):
        with pytest.raises(ConfigError, match=r"(policies|evaluate).*in quotes"):
            validate_study(plain(raw), "config.yaml")
