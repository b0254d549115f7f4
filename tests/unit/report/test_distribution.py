import numpy as np
import pandas as pd
import pytest
from report_fixtures import make_study

from kevin.report.figures.distribution import COMPILE, MAX_POINTS, plot_speedup_distribution, speedup_distribution_data
from kevin.report.figures.style import look

STUDY = make_study(2)
NO_BASELINES = pd.DataFrame(columns=["task_id", "baseline", "ratio_to_eager"])


def make_scores(speedups: dict[str, dict[str, list[float | None]]], split: str = "level1") -> pd.DataFrame:
    rows = [
        {"policy": policy, "split": split, "task_id": task, "speedup": speedup,
         "outcome": "incorrect" if speedup is None else "correct"}
        for policy, tasks in speedups.items()
        for task, values in tasks.items()
        for speedup in values
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"speedup": "float64"})


def test_shares_are_those_of_the_correct_kernels() -> None:
    scores = make_scores({"p0": {"a": [2.0, 0.5, None], "b": [1.0, 4.0]}, "ceiling": {"a": [3.0, 5.0], "b": [2.0]}})
    data = speedup_distribution_data(scores, NO_BASELINES, STUDY)
    own = data[data["policy"] == "p0"]
    assert own["speedup"].tolist() == [0.5, 1.0, 2.0, 4.0]
    assert own["share"].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert set(own["num_kernels"]) == {4} and set(own["num_tasks"]) == {2}
    assert data.loc[data["policy"] == "ceiling", "speedup"].tolist() == [2.0, 5.0]
    assert COMPILE not in set(data["policy"])


def test_torch_compile_is_there_where_it_was_measured() -> None:
    scores = make_scores({"p0": {"a": [2.0], "b": [None]}})
    baselines = pd.DataFrame(
        {"task_id": ["a", "b", "c", "a"], "baseline": ["compile"] * 3 + ["eager"], "ratio_to_eager": [1.5, 0.9, 7, 1.0]}
    )
    data = speedup_distribution_data(scores, baselines, STUDY)
    assert data.loc[data["policy"] == COMPILE, "speedup"].tolist() == [0.9, 1.5]


def test_long_curves_are_drawn_through_quantiles() -> None:
    values = np.random.default_rng(0).permutation(np.arange(1, 10 * MAX_POINTS + 1)).astype(float)
    data = speedup_distribution_data(make_scores({"p0": {"a": list(values)}}), NO_BASELINES, STUDY)
    assert len(data) == MAX_POINTS
    assert data["speedup"].tolist() == pytest.approx([10.0 * (i + 1) for i in range(MAX_POINTS)])
    assert set(data["num_kernels"]) == {10 * MAX_POINTS}


def test_seeds_are_one_curve() -> None:
    policies = {**STUDY.policies, "p1": STUDY.policies["p1"].model_copy(update={"seed_of": "p0"})}
    study = STUDY.model_copy(update={"policies": policies})
    data = speedup_distribution_data(
        make_scores({"p0": {"a": [1.0]}, "p1": {"a": [2.0]}}), NO_BASELINES, study
    )  # fmt: skip
    assert data["policy"].tolist() == ["p0", "p0"] and data["speedup"].tolist() == [1.0, 2.0]


def test_a_split_without_a_correct_kernel_says_so() -> None:
    scores = pd.concat(
        [make_scores({"p0": {"a": [2.0, 8.0]}}), make_scores({"p0": {"b": [None]}}, split="level2")], ignore_index=True
    )
    data = speedup_distribution_data(scores, NO_BASELINES, STUDY)
    with look():
        figure = plot_speedup_distribution(data, ["level1", "level2"])
        figure.draw_without_rendering()
        first, second = figure.axes
        assert [t.get_text() for t in second.texts] == ["no correct kernel"]
        low, high = first.get_xlim()
        assert low < 1 and high > 8
        ticks = [t.get_text() for t in first.get_xticklabels()]
        assert ticks == ["1", "2", "5"]
