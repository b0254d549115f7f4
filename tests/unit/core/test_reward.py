"""Scores, returns and advantages: cases computed by hand, and properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kevin.core.config import RewardConfig
from kevin.core.reward import advantages, configured_returns, configured_score, turn_rewards
from kevin.core.types import Outcome

scores = st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=8)
gammas = st.floats(0, 1)


def score(outcome, speedup, **options):
    return configured_score(outcome, speedup, RewardConfig(**options))


def rewards_of(values, **options):
    """Of answers of 100 tokens each."""
    return turn_rewards(values, [100] * len(values), RewardConfig(**options))


def returns(values, **options):
    return configured_returns(values, [100] * len(values), RewardConfig(**options))


def test_score_is_correctness_plus_speedup_up_to_a_cap():
    assert score(Outcome.CORRECT, 2.0) == pytest.approx(2.3)
    assert score(Outcome.CORRECT, 0.5, correctness_weight=1.0) == pytest.approx(1.5)
    assert score(Outcome.CORRECT, 9.6, speedup_cap=3.0) == pytest.approx(3.3)
    assert score(Outcome.CORRECT, 1.5, speedup_cap=3.0) == pytest.approx(1.8)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.CORRECT])
def test_everything_else_scores_zero(outcome):
    assert score(outcome, None) == 0.0
    assert score(None, None) is None


@pytest.mark.parametrize("speedup", [None, 0.0, -1.0, math.inf, math.nan])
def test_a_correct_kernel_without_a_real_speedup_is_an_error(speedup):
    with pytest.raises(ValueError, match="finite positive speedup"):
        score(Outcome.CORRECT, speedup)


def test_sum_returns_by_hand():
    # R4 = 2; R3 = 0 + .4 * 2; R2 = 1 + .4 * .8; R1 = 0 + .4 * 1.32
    assert returns([0.0, 1.0, 0.0, 2.0], gamma=0.4) == pytest.approx([0.528, 1.32, 0.8, 2.0])


def test_max_returns_by_hand():
    # max of .8^(i-t) * S_i: from turn 1 on 0, .8, 0, .8^3 * 2 = 1.024
    assert returns([0.0, 1.0, 0.0, 2.0], gamma=0.8, returns="max") == pytest.approx([1.024, 1.28, 1.6, 2.0])


@given(scores, gammas)
def test_returns_match_their_definitions(values, gamma):
    for mode, combine in (("sum", math.fsum), ("max", max)):
        result = returns(values, gamma=gamma, returns=mode)
        for t, r in enumerate(result):
            if values[t] is None:
                assert r is None
                continue
            terms = [gamma ** (i - t) * s for i, s in enumerate(values) if i >= t and s is not None]
            assert r == pytest.approx(combine(terms), abs=1e-9)


def test_group_advantages_by_hand():
    # mean 2, unbiased std of (1, 2, 3) is 1
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


# --- variants -----------------------------------------------------------------------------------------------------


def test_progress_by_hand():
    scores = [1.0, 0.0, 3.0, 2.0]
    assert rewards_of(scores) == scores
    assert rewards_of(scores, progress_weight=1.0) == [1.0, -1.0, 3.0, -1.0]
    assert rewards_of(scores, progress_weight=1.0, progress_over="best") == [1.0, -1.0, 2.0, -1.0]
    assert rewards_of(scores, progress_weight=0.5) == [1.0, -0.5, 3.0, 0.5]


@given(scores, st.floats(0, 1), st.sampled_from(["last", "best"]))
def test_progress_matches_its_definition(values, weight, over):
    result = rewards_of(values, progress_weight=weight, progress_over=over)
    for t, value in enumerate(values):
        known = [v for v in values[:t] if v is not None]
        before = 0.0 if not known else known[-1] if over == "last" else max(known)
        assert result[t] == (None if value is None else pytest.approx(value - weight * before))


def test_a_floor_by_hand():
    """What fails, is slower or is the same again earns nothing; tokens are taken off below the floor too."""
    scores = [1.0, 0.0, 3.0, 2.0, 3.0]
    best = {"progress_weight": 1.0, "progress_over": "best"}
    assert rewards_of(scores, **best, progress_floor=0.0) == [1.0, 0.0, 2.0, 0.0, 0.0]
    assert rewards_of(scores, **best, progress_floor=-0.5) == [1.0, -0.5, 2.0, -0.5, 0.0]
    assert rewards_of(scores, **best, progress_floor=0.0, length_penalty=1.0)[1] == pytest.approx(-0.1)


@given(scores)
def test_progress_over_the_best_with_a_floor_of_zero_adds_up_to_the_best_score(values):
    rewards = rewards_of(values, progress_weight=1.0, progress_over="best", progress_floor=0.0)
    known = [v for v in values if v is not None]
    assert math.fsum(r for r in rewards if r is not None) == pytest.approx(max(known, default=0.0))
    assert all(r is None or r >= 0 for r in rewards)


def test_tokens_are_taken_off_right_and_wrong_answers_alike_and_not_off_progress():
    """2 for 1,000 tokens; the second turn starts from a score of 1, not from what was left of it."""
    scores, num_tokens = [1.0, 0.0, None], [50, 400, 900]
    alone = turn_rewards(scores, num_tokens, RewardConfig(length_penalty=2.0))
    assert alone == [pytest.approx(0.9), pytest.approx(-0.8), None]
    both = turn_rewards(scores, num_tokens, RewardConfig(length_penalty=2.0, progress_weight=1.0))
    assert both == [pytest.approx(0.9), pytest.approx(-1.8), None]
    assert turn_rewards(scores, num_tokens, RewardConfig()) == scores


def test_every_answer_has_its_length():
    with pytest.raises(ValueError, match="zip"):
        turn_rewards([1.0, 2.0], [50], RewardConfig())


def test_the_largest_of_rewards_below_zero_is_below_zero():
    assert returns([1.0, -0.5], gamma=0.5, returns="max") == [1.0, -0.5]
    assert returns([-2.0, -1.0], gamma=0.5, returns="max") == [-0.5, -1.0]
    assert returns([None, -1.0, None], gamma=0.5, returns="max") == [None, -1.0, None]


groups = st.lists(st.tuples(st.none() | st.floats(0, 100), st.integers(1, 4)), max_size=32)


@given(groups, st.sampled_from(["turn", "turn_leave_one_out"]))
def test_advantages_by_turn_compare_one_turn_number_only(samples, mode):
    values, turns = [r for r, _ in samples], [t for _, t in samples]
    result = advantages(values, mode=mode, turns=turns)
    for i, (value, turn) in enumerate(samples):
        others = [r for j, (r, t) in enumerate(samples) if t == turn and r is not None and j != i]
        same = [r for r, t in samples if t == turn and r is not None]
        if value is None or not others or max(same) == min(same):
            assert result[i] == 0.0
        elif mode == "turn_leave_one_out":
            assert result[i] == pytest.approx(value - math.fsum(others) / len(others), abs=1e-6)
        else:
            mean = math.fsum(same) / len(same)
            std = math.sqrt(math.fsum((r - mean) ** 2 for r in same) / (len(same) - 1))
            assert result[i] == pytest.approx((value - mean) / (std + 1e-4), abs=1e-6)


def test_equal_kernels_on_every_turn_punish_the_last_one_unless_compared_by_turn():
    """Scores of 1 on both turns of two trajectories, gamma 0.5: returns 1.5 and 1."""
    values, turns = [1.5, 1.0, 1.5, 1.0], [1, 2, 1, 2]
    assert advantages(values)[1] < 0 < advantages(values)[0]
    assert advantages(values, mode="turn", turns=turns) == [0.0] * 4
    with pytest.raises(ValueError, match="need the turn number of each of the 4 returns"):
        advantages(values, mode="turn")
