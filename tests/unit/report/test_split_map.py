"""The serial/parallel map against brute force, and its law against surfaces whose optimum is known."""

import numpy as np
import pandas as pd
import pytest
from report_fixtures import make_study, scored

from kevin.report.budgets import doublings
from kevin.report.figures.look import theme
from kevin.report.figures.split_map import (
    CELL,
    MIN_R2,
    best_turns,
    budget_map_data,
    fit_law,
    serial_parallel_map,
)

STUDY = make_study(1)


def make_scores(
    num_tasks: int = 5, num_trajectories: int = 4, num_turns: int = 4, *, skill: float = 0.5, seed: int = 0
) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    shape = (num_tasks, num_trajectories, num_turns)
    speedups = np.where(rng.random(shape) < skill, rng.uniform(0.2, 3, shape), 0.0).tolist()
    return scored("p0", {f"t{i}": [[v or None for v in row] for row in own] for i, own in enumerate(speedups)})


def law_surface(a: float, b: float, c: float, d: float, *, shifts: tuple[float, ...] = (0.0,)) -> pd.DataFrame:
    """Tasks that follow the law exactly, each with its own slope in turns beside ``c``."""
    cells = [(k, t) for t in (1, 2, 4, 8) for k in (1, 2, 4, 8, 16)]
    rows = [[a + b * np.log2(k) + (c + s) * np.log2(t) + d * np.log2(k) * np.log2(t) for k, t in cells] for s in shifts]
    return pd.DataFrame(rows, columns=pd.MultiIndex.from_tuples(cells))


def test_the_best_split_of_a_budget_is_the_highest_cell() -> None:
    cells = budget_map_data(make_scores(), STUDY).query("kind == @CELL and row == 'correct'")
    for _, own in cells.groupby("budget"):
        if len(own) == 1:
            assert own["is_best"].isna().all()
        else:
            best = own.loc[own["is_best"].eq(True), "value"]
            assert len(best) == (own["value"] == own["value"].max()).sum() and set(best) == {own["value"].max()}


def test_the_law_of_an_exact_surface_is_found_again() -> None:
    law = fit_law(law_surface(0.3, 0.1, 0.2, 0.05), STUDY)
    assert law is not None
    assert law.parameters == pytest.approx([0.3, 0.1, 0.2, 0.05])
    assert law.r2 == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_optimum_is_that_of_a_fine_grid(seed: int) -> None:
    a, b, c, d = parameters = np.random.default_rng(seed).normal(size=4)
    budget, least, most = 32, 2, 8
    turns = 2 ** np.linspace(np.log2(least), np.log2(most), 4001)
    heights = a + b * np.log2(budget / turns) + c * np.log2(turns) + d * np.log2(budget / turns) * np.log2(turns)
    assert best_turns(parameters, budget, least, most)[0] == pytest.approx(turns[heights.argmax()], rel=1e-3)


def test_tasks_that_disagree_leave_the_optimum_open() -> None:
    together = law_surface(0, 0.1, 0.1, 0.05, shifts=(0.0,) * 8)
    apart = law_surface(0, 0.1, 0.1, 0.05, shifts=(-3.0, 3.0) * 4)
    ends = []
    for values in (together, apart):
        law = fit_law(values, STUDY)
        assert law is not None
        ends.append(np.percentile(best_turns(law.resampled, 16, 1, 8), [2.5, 97.5]))
    assert ends[0] == pytest.approx([4, 4])
    assert ends[1] == pytest.approx([1, 8])


def test_an_open_optimum_is_said_to_be_open() -> None:
    data = budget_map_data(make_scores(2, skill=0.6, seed=3), STUDY).query("kind == 'optimum'")
    assert len(data)
    for optimum in data.itertuples():
        splits = [t for t in (1, 2, 4) if 1 <= optimum.budget / t <= 4]
        spans = optimum.turns_low <= min(splits) * 1.001 and optimum.turns_high >= max(splits) / 1.001
        assert optimum.determined is (not spans and optimum.r2 >= MIN_R2)
    with theme():
        figure, _ = serial_parallel_map(make_scores(2, seed=3), STUDY)
        assert any("R²" in ax.get_title(loc="left") for ax in figure.axes)


def test_splits_that_are_equally_good_are_all_marked() -> None:
    scores = make_scores(skill=1.0)
    cells = budget_map_data(scores, STUDY).query("kind == @CELL and row == 'correct'")
    assert cells.loc[cells["is_best"].notna(), "is_best"].eq(True).all()
    with theme():
        figure, _ = serial_parallel_map(scores, STUDY)
        assert sum(text.get_text() == "100*" for text in figure.axes[1].texts) == cells["is_best"].notna().sum() > 4


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 1), (2, 2)])
def test_too_few_cells_have_no_law(shape: tuple[int, int]) -> None:
    scores = make_scores(3, *shape)
    data = budget_map_data(scores, STUDY)
    assert set(data["kind"]) == {CELL}
    assert data["law"].isna().all()
    with theme():
        figure, _ = serial_parallel_map(scores, STUDY)
        assert any("no law" in ax.get_title(loc="left") for ax in figure.axes)


def test_a_surface_without_any_correct_kernel_has_no_law() -> None:
    data = budget_map_data(make_scores(skill=0.0), STUDY)
    assert set(data["kind"]) == {CELL} and data["value"].eq(0).all()


def test_doublings_end_at_the_longest() -> None:
    assert doublings(8) == [1, 2, 4, 8]
    assert doublings(6) == [1, 2, 4, 6]
    assert doublings(1) == [1] and doublings(0) == []
