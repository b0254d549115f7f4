"""Scores, returns and advantages: cases computed by hand, and properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kevin.core.reward import advantages, returns, score
from kevin.core.types import Outcome

scores = st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=8)
gammas = st.floats(0, 1)


def test_score_is_correctness_plus_speedup():
    assert score(Outcome.CORRECT, 2.0) == pytest.approx(2.3)
    assert score(Outcome.CORRECT, 0.5, correctness_weight=1.0) == pytest.approx(1.5)


def test_speedup_cap_limits_the_contribution_only():
    assert score(Outcome.CORRECT, 9.6, speedup_cap=3.0) == pytest.approx(3.3)
    assert score(Outcome.CORRECT, 1.5, speedup_cap=3.0) == pytest.approx(1.8)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.CORRECT])
def test_everything_else_scores_zero(outcome):
    assert score(outcome, None) == 0.0


@pytest.mark.parametrize("speedup", [None, 0.0, -1.0, math.inf, math.nan])
def test_a_correct_kernel_without_a_real_speedup_is_an_error(speedup):
    with pytest.raises(ValueError, match="finite positive speedup"):
        score(Outcome.CORRECT, speedup)


def test_sum_returns_by_hand():
    # R4 = 2; R3 = 0 + .4 * 2; R2 = 1 + .4 * .8; R1 = 0 + .4 * 1.32
    assert returns([0.0, 1.0, 0.0, 2.0], gamma=0.4) == pytest.approx([0.528, 1.32, 0.8, 2.0])


def test_max_returns_by_hand():
    # max of .8^(i-t) * S_i: from turn 1 on 0, .8, 0, .8^3 * 2 = 1.024
    assert returns([0.0, 1.0, 0.0, 2.0], gamma=0.8, mode="max") == pytest.approx([1.024, 1.28, 1.6, 2.0])


def test_a_missing_score_has_no_return_and_adds_nothing_before_it():
    assert returns([1.0, None], gamma=0.5) == [1.0, None]
    assert returns([1.0, None, 4.0], gamma=0.5) == [2.0, None, 4.0]


@pytest.mark.parametrize("gamma", [-0.1, 1.1])
def test_gamma_outside_of_its_range_is_refused(gamma):
    with pytest.raises(ValueError, match="gamma"):
        returns([1.0], gamma=gamma)


@given(scores, gammas)
def test_returns_match_their_definitions(values, gamma):
    for mode, combine in (("sum", math.fsum), ("max", max)):
        result = returns(values, gamma=gamma, mode=mode)
        for t, r in enumerate(result):
            if values[t] is None:
                assert r is None
                continue
            terms = [gamma ** (i - t) * s for i, s in enumerate(values) if i >= t and s is not None]
            assert r == pytest.approx(combine(terms), abs=1e-9)


@given(scores, gammas)
def test_a_return_is_at_least_the_turns_own_score(values, gamma):
    for mode in ("sum", "max"):
        for own, r in zip(values, returns(values, gamma=gamma, mode=mode), strict=True):
            assert own is None or r >= own


@given(scores)
def test_gamma_zero_is_the_score_itself(values):
    assert returns(values, gamma=0.0) == values


def test_group_advantages_by_hand():
    # mean 2, unbiased std of (1, 2, 3) is 1
    assert advantages([1.0, 2.0, 3.0], eps=0.0) == pytest.approx([-1.0, 0.0, 1.0])
    assert advantages([1.0, 2.0, 3.0]) == pytest.approx([-1 / 1.0001, 0.0, 1 / 1.0001])


def test_leave_one_out_advantages_by_hand():
    assert advantages([0.0, 1.0, 5.0], mode="leave_one_out") == pytest.approx([-3.0, -1.5, 4.5])


@pytest.mark.parametrize("mode", ["group", "leave_one_out"])
@pytest.mark.parametrize("group", [[], [None], [3.0], [None, 3.0], [0.3, 0.3, 0.3], [0.0, None, 0.0]])
def test_no_variance_means_exactly_no_advantage(group, mode):
    assert advantages(group, mode=mode) == [0.0] * len(group)


@given(st.lists(st.none() | st.floats(0, 100), max_size=64), st.sampled_from(["group", "leave_one_out"]))
def test_advantages_are_centred_and_missing_ones_are_zero(group, mode):
    result = advantages(group, mode=mode)
    assert len(result) == len(group)
    assert all(a == 0.0 for r, a in zip(group, result, strict=True) if r is None)
    assert math.fsum(result) == pytest.approx(0.0, abs=1e-6)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20), st.lists(st.none(), max_size=5))
def test_missing_returns_do_not_move_the_others(group, missing):
    assert advantages([*group, *missing])[: len(group)] == advantages(group)
