"""Judging while later answers are being generated."""

import threading
from collections import Counter

import pytest
from rollout_fixtures import ALL, Killed, ScriptedJudge, ScriptedPolicy, run

from kevin.core.config import JudgePoolConfig, PolicyConfig
from kevin.rollout.beside import judges_beside


class TestBeside:
    """Judging while later answers are being generated."""

    def test_the_same_turns_and_every_kernel_judged_once(self, tmp_path):
        judge, timings = ScriptedJudge(), []
        turns = run(judge=judge, beside=True, checkpoint=tmp_path / "c", on_timing=timings.append)
        assert turns == run()
        assert Counter(judge.judged()) == Counter("kernel " + " ".join(map(str, p)) for p in ALL)
        assert all(0 <= t.beside_s <= t.generate_s for t in timings)

    def test_the_first_answer_is_judged_before_the_second_is_given(self):
        judged = threading.Event()

        class Judge(ScriptedJudge):
            def __call__(self, pairs):
                judged.set()
                return super().__call__(pairs)

        class Slow(ScriptedPolicy):
            def complete(self, requests, sampling, on_completion=None):
                def tell(i, completion):
                    on_completion(i, completion)
                    assert judged.wait(20)

                return super().complete(requests, sampling, tell)

        assert run(Slow(), Judge(), beside=True) == run()

    def test_a_policy_that_tells_of_nothing_on_the_way(self):
        class Silent(ScriptedPolicy):
            def complete(self, requests, sampling, on_completion=None):
                return super().complete(requests, sampling)

        assert run(Silent(), beside=True) == run()

    @pytest.mark.parametrize("call", [1, 2])
    def test_a_judge_that_fails_is_heard(self, call):
        with pytest.raises(Killed):
            run(judge=ScriptedJudge(die_at_call=call), beside=True)

    def test_killed_anywhere_it_goes_on(self, tmp_path):
        for answers in range(0, len(ALL), 5):
            folder = tmp_path / str(answers)
            with pytest.raises(Killed):
                run(ScriptedPolicy(die_after=answers), beside=True, checkpoint=folder)
            assert run(beside=True, checkpoint=folder) == run()

    @pytest.mark.parametrize(
        ("pool", "policy", "expected"),
        [
            ({}, None, False),
            ({}, {"model": "m"}, False),
            ({"scheduler": "tcp://judges:8786"}, None, True),
            ({"scheduler": "tcp://judges:8786", "while_generating": "never"}, None, False),
            ({"while_generating": "always"}, {"model": "m"}, True),
            ({}, {"model": "m", "backend": "openai"}, True),
            ({}, {"model": "m", "backend": "openai", "base_url": "http://gpu7:8000/v1"}, True),
            ({}, {"model": "m", "backend": "openai", "base_url": "http://localhost:8000/v1"}, False),
            ({}, {"model": "m", "backend": "replay", "base_url": None}, False),
        ],
    )
    def test_only_where_the_devices_are_surely_not_the_same(self, pool, policy, expected):
        assert judges_beside(JudgePoolConfig(**pool), PolicyConfig(**policy) if policy else None) is expected
