"""The loop with a scripted policy and a scripted judge: shapes, order, prompts, failures."""

from collections import Counter

import pytest
from rollout_fixtures import ALL, SETTINGS, TASKS, M, N, ScriptedJudge, ScriptedPolicy, failing, places, run

from kevin.core.errors import DataError, SandboxError, TaskError
from kevin.core.types import Outcome
from kevin.policy.interface import request_seed
from kevin.rollout.refine import refine


class TestShape:
    def test_all_turns_in_order_with_one_call_of_policy_and_judge_a_turn(self):
        policy, judge = ScriptedPolicy(), ScriptedJudge()
        turns = run(policy, judge)
        assert places(turns) == ALL
        assert [len(batch) for batch in policy.requests] == [len(TASKS) * M] * N
        assert [len(call) for call in judge.calls] == [len(TASKS) * M] * N
        assert all({r.turn for r in batch} == {n} for n, batch in enumerate(policy.requests, start=1))

    def test_a_turn_holds_answer_kernel_verdict_and_counts(self):
        turn = run()[1]
        assert turn.completion.startswith("<think>thought ('l1/b', 0, 2)")
        assert turn.kernel.source == "kernel l1/b 0 2\n"
        assert (turn.summary, turn.outcome, turn.speedup) == ("s2", Outcome.CORRECT, 2.0)
        assert turn.verdict_key == "key kernel l1/b 0 2"
        assert turn.feedback == "Correct, 2x the speed of PyTorch. It can be faster."
        assert (turn.num_prompt_tokens, turn.num_completion_tokens, turn.finish_reason) == (10, 5, "stop")

    def test_sampling_follows_the_settings_and_has_a_seed_a_turn(self):
        policy, again, other = ScriptedPolicy(), ScriptedPolicy(), ScriptedPolicy()
        run(policy)
        run(again, tasks=TASKS[::-1])
        run(other, settings=SETTINGS.model_copy(update={"seed": 8}))
        assert len({s.seed for s in policy.samplings}) == N
        assert policy.samplings == again.samplings
        assert not {s.seed for s in policy.samplings} & {s.seed for s in other.samplings}
        assert {(s.temperature, s.top_p, s.max_tokens) for s in policy.samplings} == {(0.9, 1.0, 100)}


class TestDialogue:
    def test_an_answer_without_code_is_a_parse_error_and_is_not_judged(self):
        judge = ScriptedJudge()
        turns = run(ScriptedPolicy({("l1/b", 0, 1): {"text": "I would rather not."}}), judge)
        assert (turns[0].outcome, turns[0].reason, turns[0].kernel) == (Outcome.PARSE_ERROR, "no_kernel_found", None)
        assert turns[0].feedback == "Parse error: the answer holds no code block"
        assert "kernel l1/b 0 1" not in judge.judged()
        assert places(turns) == ALL

    def test_an_answer_that_ran_into_the_limit_says_so_and_is_not_judged(self):
        judge = ScriptedJudge()
        turns = run(ScriptedPolicy({("l1/b", 0, 1): {"finish_reason": "length"}}), judge)
        assert (turns[0].outcome, turns[0].reason, turns[0].kernel) == (Outcome.PARSE_ERROR, "answer_too_long", None)
        assert "too long, it was cut off at 100 tokens" in turns[0].feedback
        assert "kernel l1/b 0 1" not in judge.judged()

    def test_no_kernel_at_all_calls_no_judge(self):
        judge = ScriptedJudge()
        turns = run(ScriptedPolicy({p: {"text": "no"} for p in ALL}), judge)
        assert judge.calls == []
        assert Counter(t.outcome for t in turns) == {Outcome.PARSE_ERROR: len(ALL)}

    def test_who_spreads_a_kernel_over_several_blocks_is_told(self):
        place = ("l1/b", 0, 1)
        two = {"text": "```cpp\nhelpers\n```\n```cpp\nkernel l1/b 0 1\n```\n"}
        for outcome, told in ((Outcome.COMPILE_ERROR, True), (Outcome.INCORRECT, False)):
            turns = run(ScriptedPolicy({place: two}), ScriptedJudge({place: failing(place, outcome)}))
            assert ("Of your 2 code blocks one was judged: write the whole" in turns[0].feedback) is told


class TestEarlyEnds:
    def test_a_first_prompt_that_does_not_fit_stops_the_run_before_any_work(self):
        policy = ScriptedPolicy()
        with pytest.raises(TaskError, match=r"l1/b.*max_prompt_tokens"):
            run(policy, settings=SETTINGS.model_copy(update={"max_prompt_tokens": 10}))
        assert policy.asked() == []

    def test_a_prompt_that_outgrew_the_budget_ends_its_trajectory_only(self, caplog):
        class Fussy(ScriptedPolicy):
            def count_tokens(self, conversation):
                return 10**9 if any("kernel l1/a 1 2" in m.content for m in conversation) else 1

        policy = Fussy()
        turns = run(policy)
        assert places(turns) == [p for p in ALL if p[:2] != ("l1/a", 1) or p[2] <= 2]
        assert "trajectory 1 ends before turn 3" in caplog.text
        assert len(policy.requests) == N

    def test_a_recording_that_ends_ends_its_trajectory(self):
        turns = run(ScriptedPolicy({("l1/b", 2, 2): None}))
        assert places(turns) == [p for p in ALL if p[:2] != ("l1/b", 2) or p[2] < 2]

    def test_the_policy_is_called_once_a_turn_even_when_all_trajectories_have_ended(self):
        policy = ScriptedPolicy({(t.id, k, 2): None for t in TASKS for k in range(M)})
        assert len(run(policy)) == len(TASKS) * M
        assert [len(batch) for batch in policy.requests] == [6, 6, 0, 0]

    def test_a_harness_failure_is_no_outcome_and_ends_the_trajectory(self, caplog):
        turns = run(judge=ScriptedJudge({("l1/a", 0, 2): SandboxError("no namespaces")}))
        assert places(turns) == [p for p in ALL if p[:2] != ("l1/a", 0) or p[2] <= 2]
        failed = [t for t in turns if t.outcome is None]
        assert places(failed) == [("l1/a", 0, 2)]
        assert (failed[0].reason, failed[0].speedup, failed[0].verdict_key) == ("SandboxError", None, None)
        assert "no namespaces" in caplog.text


def test_timing_tells_where_a_turn_went(tmp_path):
    timings = []
    run(checkpoint=tmp_path / "c", on_timing=timings.append)
    assert [t.turn for t in timings] == [1, 2, 3, 4]
    for t in timings:
        assert (t.num_answers, t.num_kernels, t.num_prompt_tokens, t.num_completion_tokens) == (6, 6, 60, 30)
        assert t.total_s >= t.generate_s + t.judge_s
        assert t.stages_s == pytest.approx({"check": 0.6, "admission": 1.2}) and t.device_s == pytest.approx(0.6)
        assert t.num_new == 6
    run(checkpoint=tmp_path / "c", on_timing=timings.append)
    assert len(timings) == N


def test_stages_are_those_of_verdicts_that_were_worked_out_for_the_turn():
    """What the store had, what another trajectory or an earlier turn wrote too took this one no time; what running the
    kernels takes is said of all."""

    class Sharing(ScriptedJudge):
        def made(self, key):
            return key != "key kernel l1/a 0 1"

        def expect(self, *_): ...

        def build_ahead(self, *_): ...

        def all_written(self, *_): ...

        def rest(self): ...

    timings = []
    again = {"text": "```cpp\nkernel l1/b 1 2\n```"}
    run(ScriptedPolicy({("l1/b", 2, 2): again, ("l1/b", 2, 3): again}), Sharing(), on_timing=timings.append)
    assert [t.num_new for t in timings] == [5, 5, 5, 6]
    assert [t.stages_s["check"] for t in timings] == pytest.approx([0.5, 0.5, 0.5, 0.6])
    assert [t.device_s for t in timings] == pytest.approx([0.6] * 4)


class TestStarts:
    """Trajectories that go on from a turn that is none of theirs."""

    def start(self):
        (turn,) = run(settings=SETTINGS.model_copy(update={"num_trajectories": 1, "num_turns": 1}), tasks=TASKS[:1])
        return turn.model_copy(update={"kernel": turn.kernel.model_copy(update={"source": "from before"})})

    def test_every_prompt_of_the_task_begins_with_it(self):
        policy = ScriptedPolicy()
        turns = run(policy, starts={"l1/b": self.start()})
        assert places(turns) == ALL, "it is none of the turns played"
        for request in (r for batch in policy.requests for r in batch):
            kernels = [m.content for m in request.conversation if m.role == "assistant"]
            assert len(kernels) == request.turn - (request.task_id == "l1/a")
            assert ("from before" in kernels[0] if kernels else False) == (request.task_id == "l1/b")

    def test_a_checkpoint_is_of_one_start(self, tmp_path):
        run(checkpoint=tmp_path / "c", starts={"l1/b": self.start()})
        with pytest.raises(DataError, match=r"starts"):
            run(checkpoint=tmp_path / "c")


def test_sets_that_are_played_together_draw_what_each_draws_alone():
    together, alone = ScriptedPolicy(), [ScriptedPolicy() for _ in TASKS]
    refine(TASKS, together, ScriptedJudge(), SETTINGS, progress=False, sets=[[task] for task in TASKS])
    for task, policy in zip(TASKS, alone, strict=True):
        refine([task], policy, ScriptedJudge(), SETTINGS, progress=False)
    drawn = [
        {(r.task_id, r.trajectory, r.turn): request_seed(sampling, r) for r in requests}
        for policy in (together, *alone)
        for sampling, requests in zip(policy.samplings, policy.requests, strict=True)
    ]
    of_all = {place: seed for own in drawn[:N] for place, seed in own.items()}
    assert of_all == {place: seed for own in drawn[N:] for place, seed in own.items()}
    assert len(set(of_all.values())) == len(of_all) == len(TASKS) * M * N
