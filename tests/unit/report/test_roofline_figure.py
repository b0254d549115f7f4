from pathlib import Path

import pandas as pd
import pytest
from core_fixtures import make_verdict
from report_fixtures import make_study, make_task

from kevin.core.errors import DataError, UsageError
from kevin.core.files import verdict_path
from kevin.core.types import Outcome
from kevin.judge.store import VerdictStore
from kevin.report.catalogue import make_figure
from kevin.report.figures.look import theme
from kevin.report.figures.roofline import EAGER, read_measured, roofline, roofline_data, traffic_bytes

STUDY = make_study(2)


def store_verdict(folder: Path, key: str, kernel_us: float, eager_us: float, **details: float) -> None:
    verdict = make_verdict(Outcome.CORRECT, key=key, kernel_us=kernel_us, eager_us=eager_us, details=details)
    VerdictStore(folder).put(verdict)


def make_scores(*rows: tuple[str, int, str | None, float]) -> pd.DataFrame:
    columns = ["task_id", "trajectory", "verdict_key", "speedup"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(policy="p0", split="level1", outcome="correct")


def test_points_follow_from_the_verdicts(tmp_path: Path) -> None:
    store_verdict(tmp_path, "aa", 100.0, 300.0, bandwidth_share=0.25)
    store_verdict(tmp_path, "bb", 50.0, 310.0, bandwidth_share=0.5)
    store_verdict(tmp_path, "cc", 200.0, 100.0, bandwidth_share=0.1, flop_share=0.4)
    scores = make_scores(("relu", 0, "aa", 3.0), ("relu", 1, "bb", 6.2), ("relu", 0, "aa", 3.0), ("mm", 0, "cc", 0.5))
    data = roofline_data(scores, tmp_path, STUDY, {})
    own = data[data["policy"] == "p0"].set_index(["task_id", "kernel_us"])
    assert own.loc[("relu", 100.0), "memory_us"] == own.loc[("relu", 50.0), "memory_us"] == pytest.approx(25.0)
    assert own["is_fastest"].to_dict() == {("relu", 100.0): False, ("relu", 50.0): True, ("mm", 200.0): True}
    assert own.loc[("mm", 200.0), "intensity"] == pytest.approx(4.0)
    assert own.loc[("relu", 50.0), ["intensity", "product_share"]].isna().all()
    eager = data[data["policy"] == EAGER].set_index("task_id")
    assert eager.loc["relu", "kernel_us"] == pytest.approx(305.0)
    assert eager.loc["mm", "product_share"] == pytest.approx(0.4 * 200 / 100)


def test_the_fastest_copy_that_any_process_measured_stands_for_the_device(tmp_path: Path) -> None:
    store_verdict(tmp_path, "quiet", 100.0, 300.0, bandwidth_share=0.5)
    store_verdict(tmp_path, "busy", 100.0, 300.0, bandwidth_share=0.9)
    store_verdict(tmp_path, "other", 100.0, 300.0, bandwidth_share=0.9)
    scores = make_scores(("relu", 0, "quiet", 3.0), ("relu", 1, "busy", 3.0), ("tanh", 0, "other", 3.0))
    for traffic, expected in (
        ({}, {"relu": 50.0, "tanh": 90.0}),
        ({"relu": 1000, "tanh": 200}, {"relu": 50.0, "tanh": 10.0}),
    ):
        data = roofline_data(scores, tmp_path, STUDY, traffic)
        assert data.groupby("task_id")["memory_us"].agg(set).to_dict() == {t: {us} for t, us in expected.items()}


def test_traffic_is_every_tensor_once() -> None:
    assert traffic_bytes([make_task("relu", 1)]) == {"l1/relu": 2 * 64 * 256 * 4}
    assert traffic_bytes([make_task("relu", 1).model_copy(update={"spec": None})]) == {}


def test_a_trajectory_stands_with_its_fastest_kernel(tmp_path: Path) -> None:
    for key, us in (("aa", 10.0), ("bb", 20.0)):
        store_verdict(tmp_path, key, us, 40.0, bandwidth_share=0.5)
    data = roofline_data(make_scores(("relu", 0, "bb", 2.0), ("relu", 0, "aa", 4.0)), tmp_path, STUDY, {})
    assert data.loc[data["policy"] == "p0", "kernel_us"].tolist() == [10.0]


def test_what_the_store_does_not_tell_is_left_out_and_the_figure_says_so(tmp_path: Path) -> None:
    store_verdict(tmp_path, "old", 10.0, 40.0)
    scores = make_scores(("relu", 0, "old", 4.0), ("relu", 1, "gone", 4.0))
    with theme():
        figure, data = roofline(scores, tmp_path, [], STUDY)
        assert data.empty
        texts = [t.get_text() for ax in figure.axes for t in ax.texts]
    assert texts == ["no verdict of such a kernel holds a roofline"] * 2


def test_the_report_finds_verdicts_where_the_judge_puts_them(tmp_path: Path) -> None:
    store_verdict(tmp_path, "abcd", 10.0, 40.0, bandwidth_share=0.5)
    assert verdict_path(tmp_path, "abcd").exists()
    (row,) = read_measured(tmp_path, ["abcd", "abcd", "gone"]).to_dict("records")
    assert (row["device"], row["kernel_us"], row["eager_us"], row["bandwidth_share"]) == ("A CPU", 10.0, 40.0, 0.5)
    assert pd.isna(row["flop_share"])


def test_bad_input_is_named(tmp_path: Path) -> None:
    path = verdict_path(tmp_path, "abcd")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(DataError, match=r"abcd\.json.*delete it"):
        read_measured(tmp_path, ["abcd"])
    with pytest.raises(UsageError, match="--store"):
        make_figure("roofline", tmp_path, study=STUDY, scores=[path])
