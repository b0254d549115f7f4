"""What a later turn sees: by hand, and the same in rollouts, training and the report."""

from __future__ import annotations

import pytest
from core_fixtures import make_kernel, make_turn
from hypothesis import given
from hypothesis import strategies as st
from rollout_fixtures import SETTINGS, TASKS, ScriptedJudge, ScriptedPolicy, failing, run

from kevin.core import history
from kevin.core.config import HistoryConfig, Study, validate_study
from kevin.core.errors import ConfigError
from kevin.core.history import ranking, standing
from kevin.core.types import Outcome, Turn


def turn(number: int, result: Outcome | float, source: str | None = "") -> Turn:
    """``result``: a speedup, or what went wrong. ``source``: None is an answer without code."""
    correct = isinstance(result, float)
    kernel = None if source is None else make_kernel(source or f"kernel {number}")
    found = {"outcome": Outcome.CORRECT if correct else result, "speedup": result if correct else None}
    return make_turn(turn=number, kernel=kernel, **found)


def numbers(turns) -> list[int]:
    return [t.turn for t in turns]


PAST = [
    turn(1, Outcome.INCORRECT),
    turn(2, 1.5),
    turn(3, Outcome.COMPILE_ERROR),
    turn(4, 3.0),
    turn(5, 0.5),
    turn(6, Outcome.PARSE_ERROR, None),
]


AGAIN = [turn(1, 2.0, "same"), turn(2, 1.0), turn(3, 2.0, "same")]


@pytest.mark.parametrize(
    ("view", "past", "expected"),
    [
        ("all", PAST, [1, 2, 3, 4, 5, 6]),
        ("fastest_and_last", PAST, [4, 6]),
        ("fastest_and_last", PAST[:4], [4]),  # once
        ("fastest_and_last", [PAST[0], PAST[2]], [3]),
        ("best_and_worst", PAST, [3, 5, 2, 4]),
        ("best_and_worst", AGAIN, [2, 3]),
        ("best_and_worst", [PAST[5]], [6]),  # an answer without code stands only alone
        ("best", PAST, [4]),
        ("best", [PAST[0], PAST[2]], [1]),  # of wrong kernels the one that came furthest
        ("best", [PAST[2], PAST[5]], [3]),
        ("best", [PAST[5]], [6]),
        ("best", [], []),
        ("fastest", PAST, [4]),
        ("fastest", [PAST[0], PAST[4], PAST[2]], [5]),
        ("fastest", [PAST[0], PAST[2], PAST[5]], []),
        ("fastest", [], []),
    ],
)
def test_views_by_hand(view, past, expected):
    assert numbers(HistoryConfig(view=view).shown(past)) == expected


@pytest.mark.parametrize(("num_best", "expected"), [(1, [3, 4]), (9, [3, 1, 5, 2, 4])])
def test_the_best_beside_the_worst_are_counted(monkeypatch, num_best, expected):
    monkeypatch.setattr(history, "NUM_BEST", num_best)
    assert numbers(HistoryConfig(view="best_and_worst").shown(PAST)) == expected


results = st.lists(
    st.one_of(st.floats(0.1, 9), st.sampled_from([o for o in Outcome if o is not Outcome.CORRECT])), max_size=7
)


@given(results, st.sampled_from(["all", "fastest_and_last", "best_and_worst"]))
def test_every_view_shows_some_of_the_past_and_all_of_a_short_one(outcomes, view):
    past = [turn(i, o) for i, o in enumerate(outcomes, start=1)]
    shown = HistoryConfig(view=view).shown(past)
    assert bool(shown) == bool(past)
    assert set(numbers(shown)) <= set(numbers(past)) and len(set(numbers(shown))) == len(shown)
    if len(past) == 1:
        assert shown == past
    if view == "best_and_worst" and past:
        keys = sorted(map(standing, past))
        assert [standing(t) for t in shown] == (keys if len(keys) <= 3 else [keys[0], *keys[-3:]])


def test_how_far_a_kernel_came_ranks_wrong_ones():
    order = [Outcome.REFUSED, Outcome.COMPILE_ERROR, Outcome.RUNTIME_ERROR, Outcome.TIMEOUT, Outcome.INCORRECT]
    wrong = [turn(i, o) for i, o in enumerate(order, start=1)]
    assert numbers(ranking([*wrong[::-1], turn(9, 0.1)])) == [1, 2, 3, 4, 5, 9]


class TestInTheLoop:
    def prompts(self, **view):
        """Kernels in each prompt of the first trajectory of l1/b, whose speedups are 1, 9, wrong, 4."""
        policy = ScriptedPolicy()
        place = ("l1/b", 0)
        script = {(*place, 3): failing((*place, 3))}
        judge = ScriptedJudge(script)
        settings = SETTINGS.model_copy(update={"history": HistoryConfig(**view), "num_turns": 5})
        run(policy, judge, settings, TASKS[:1])
        asked = [next(r for r in batch if r.trajectory == 0) for batch in policy.requests]
        return [
            [m.content.split("kernel l1/b 0 ")[1][0] for m in r.conversation if m.role == "assistant"] for r in asked
        ]

    def test_prompts_hold_what_the_view_shows(self, monkeypatch):
        assert self.prompts() == [[], ["1"], ["1", "2"], ["1", "2", "3"], ["1", "2", "3", "4"]]
        # turn 3 is wrong, turns 1, 2 and 4 have the speedups 1, 2 and 4
        assert self.prompts(view="fastest_and_last") == [[], ["1"], ["2"], ["2", "3"], ["4"]]
        assert self.prompts(view="fastest") == [[], ["1"], ["2"], ["2"], ["4"]]
        monkeypatch.setattr(history, "NUM_BEST", 1)
        best = self.prompts(view="best_and_worst")
        assert best == [[], ["1"], ["1", "2"], ["3", "2"], ["3", "4"]]


class TestInTheConfiguration:
    def study(self, **changes) -> Study:
        raw = {
            "policies": {
                "base": {"model": "<results>/base_model"},
                "rl": {"model": "<results>/policies/rl"},
                "rl_plain": {"model": "<results>/policies/plain"},
            },
            "runs": {
                "rl": {"rollout": {"history": {"view": "fastest_and_last"}, "profile_feedback": True}},
                "plain": {},
            },
        }
        return validate_study({**raw, **changes}, "test")

    def test_a_policy_sees_at_test_what_it_saw_in_training(self):
        study = self.study()
        assert study.for_policy("rl").rollout == study.for_run("rl").rollout
        assert study.for_policy("rl").rollout.history.view == "fastest_and_last"
        assert study.for_policy("rl").rollout.profile_feedback
        for other in ("base", "rl_plain"):
            assert study.for_policy(other).rollout == study.rollout
        assert study.for_run("plain").rollout == study.rollout

    def test_a_run_may_not_change_how_many_kernels_are_drawn(self):
        with pytest.raises(ConfigError, match=r"runs\.rl\.rollout: only history and profile_feedback.*num_turns"):
            self.study(runs={"rl": {"rollout": {"num_turns": 2}}})
        with pytest.raises(ConfigError, match=r"runs\.rl\.rollout\.history\.view"):
            self.study(runs={"rl": {"rollout": {"history": {"view": "none"}}}})
