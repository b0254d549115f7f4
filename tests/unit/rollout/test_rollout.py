"""The loop with a scripted policy and a scripted judge: shapes, order, prompts, failures, and being killed anywhere."""

import json
import re
import threading
from collections import Counter

import pytest
from rollout_fixtures import (
    ALL,
    SETTINGS,
    TASKS,
    Killed,
    M,
    N,
    ScriptedJudge,
    ScriptedPolicy,
    failing,
    make_task,
    places,
    run,
)

from kevin.core.config import JudgePoolConfig, PolicyConfig
from kevin.core.errors import DataError, HarnessError, PolicyError, SandboxError, TaskError
from kevin.core.types import Outcome
from kevin.rollout.beside import judges_beside
from kevin.rollout.search import Beam


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

    def test_single_turn_is_the_case_of_one(self):
        turns = run(settings=SETTINGS.model_copy(update={"num_turns": 1}))
        assert places(turns) == [p for p in ALL if p[2] == 1]

    def test_sampling_follows_the_settings_and_has_a_seed_a_turn(self):
        policy, again, other = ScriptedPolicy(), ScriptedPolicy(), ScriptedPolicy()
        run(policy)
        run(again, tasks=TASKS[::-1])
        run(other, settings=SETTINGS.model_copy(update={"seed": 8}))
        assert len({s.seed for s in policy.samplings}) == N
        assert policy.samplings == again.samplings
        assert not {s.seed for s in policy.samplings} & {s.seed for s in other.samplings}
        assert {(s.temperature, s.top_p, s.max_tokens) for s in policy.samplings} == {(0.9, 1.0, 100)}

    def test_two_tasks_of_one_id_are_refused(self):
        with pytest.raises(TaskError, match="different ids"):
            run(tasks=[TASKS[0], TASKS[0]])


class TestDialogue:
    def test_later_prompts_hold_every_kernel_summary_and_result_but_no_thought(self):
        policy = ScriptedPolicy()
        run(policy)
        for request in policy.requests[3]:
            text = "\n".join(m.content for m in request.conversation)
            own = [f"kernel {request.task_id} {request.trajectory} {n}\n" for n in (1, 2, 3)]
            assert all(kernel in text for kernel in own)
            assert [text.index(kernel) for kernel in own] == sorted(text.index(kernel) for kernel in own)
            assert all(f"Summary: s{n}" in text for n in (1, 2, 3))
            assert text.count("It can be faster.") == 3
            assert "thought" not in text
            other = TASKS[0].id if request.task_id == TASKS[1].id else TASKS[1].id
            assert other not in text

    def test_a_verdict_reaches_the_next_prompt(self):
        policy = ScriptedPolicy()
        run(policy, ScriptedJudge({("l1/a", 1, 1): failing(("l1/a", 1, 1))}))
        (request,) = [r for r in policy.requests[1] if (r.task_id, r.trajectory) == ("l1/a", 1)]
        assert "Correctness error: message for kernel l1/a 1 1" in request.conversation[-1].content

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

    def test_feedback_is_cut(self):
        long = failing(("l1/b", 0, 1)).model_copy(update={"message": "e" * 999})
        settings = SETTINGS.model_copy(update={"max_feedback_chars": 60})
        turns = run(judge=ScriptedJudge({("l1/b", 0, 1): long}), settings=settings)
        assert turns[0].feedback == "Correctness error: " + "e" * 60 + " [...]"


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


class TestResume:
    @pytest.fixture
    def folder(self, tmp_path):
        return tmp_path / "checkpoint"

    def test_a_checkpoint_changes_nothing(self, folder):
        assert run(checkpoint=folder) == run()

    @pytest.mark.parametrize("die_after", range(len(ALL)))
    def test_killed_while_generating_nothing_is_asked_twice(self, folder, die_after):
        first, judge = ScriptedPolicy(die_after=die_after), ScriptedJudge()
        with pytest.raises(Killed):
            run(first, judge, checkpoint=folder)
        second = ScriptedPolicy()
        assert run(second, judge, checkpoint=folder) == run()
        assert first.num_answers + second.num_answers == len(ALL)
        assert max(Counter(judge.judged()).values()) == 1

    @pytest.mark.parametrize("call", range(1, N + 1))
    def test_killed_while_judging_no_answer_is_lost(self, folder, call):
        first = ScriptedPolicy()
        with pytest.raises(Killed):
            run(first, ScriptedJudge(die_at_call=call), checkpoint=folder)
        second, judge = ScriptedPolicy(), ScriptedJudge()
        assert run(second, judge, checkpoint=folder) == run()
        assert Counter(first.asked() + second.asked()) == Counter(ALL)
        assert len(judge.calls) == N - call + 1

    @pytest.mark.parametrize("num_writes", range(2 * N))
    def test_killed_while_writing(self, folder, monkeypatch, num_writes):
        from kevin.rollout import checkpoint as module

        count, real = 0, module.write_text

        def dying(path, text):
            nonlocal count
            count += 1
            if count > num_writes:
                raise Killed
            real(path, text)

        monkeypatch.setattr(module, "write_text", dying)
        if num_writes <= N:
            with pytest.raises(Killed):
                run(checkpoint=folder)
        monkeypatch.undo()
        assert run(checkpoint=folder) == run()

    def test_a_finished_run_is_only_read(self, folder):
        expected = run(checkpoint=folder)
        policy, judge = ScriptedPolicy(), ScriptedJudge()
        assert run(policy, judge, checkpoint=folder) == expected
        assert (policy.asked(), judge.calls) == ([], [])

    def test_a_line_cut_short_by_a_kill_is_dropped(self, folder):
        with pytest.raises(Killed):
            run(ScriptedPolicy(die_after=9), checkpoint=folder)
        path = folder / "turn_002.completions.jsonl"
        path.write_bytes(path.read_bytes()[:-7])
        policy = ScriptedPolicy()
        assert run(policy, checkpoint=folder) == run()
        assert policy.num_answers == len(ALL) - 8

    def test_harness_failures_are_tried_again_and_only_they(self, folder):
        script = {("l1/a", 0, 2): SandboxError("x"), ("l1/b", 1, 1): HarnessError("y")}
        first = ScriptedPolicy()
        run(first, ScriptedJudge(script), checkpoint=folder)
        second, judge = ScriptedPolicy(), ScriptedJudge()
        assert run(second, judge, checkpoint=folder) == run()
        missing = {("l1/a", 0, 3), ("l1/a", 0, 4), ("l1/b", 1, 2), ("l1/b", 1, 3), ("l1/b", 1, 4)}
        assert set(second.asked()) == missing
        assert set(judge.judged()) == {"kernel " + " ".join(map(str, p)) for p in missing | set(script)}

    def test_a_failed_retry_keeps_the_failure(self, folder):
        script = {("l1/a", 0, 2): SandboxError("x")}
        first = run(judge=ScriptedJudge(script), checkpoint=folder)
        assert run(judge=ScriptedJudge(script), checkpoint=folder) == first

    def test_a_policy_error_keeps_what_was_answered(self, folder):
        class Dying(ScriptedPolicy):
            def complete(self, requests, sampling, on_completion=None):
                super().complete(requests[:2], sampling, on_completion)
                raise PolicyError("endpoint gone")

        with pytest.raises(PolicyError):
            run(Dying(), checkpoint=folder)
        policy = ScriptedPolicy()
        assert run(policy, checkpoint=folder) == run()
        assert len(policy.requests[0]) == len(TASKS) * M - 2

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"settings": SETTINGS.model_copy(update={"temperature": 0.5})}, "rollout.temperature: was 0.9, is 0.5"),
            ({"settings": SETTINGS.model_copy(update={"num_turns": 5})}, "rollout.num_turns: was 4, is 5"),
            ({"settings": SETTINGS.model_copy(update={"seed": 8})}, r"  seed: was \d, is 8"),
            ({"tasks": TASKS[:1]}, "tasks.l1/a: is gone"),
            ({"tasks": [*TASKS, make_task("l1/c")]}, "tasks.l1/c: is new"),
            ({"tasks": [TASKS[0], TASKS[1].model_copy(update={"source": "# new"})]}, "tasks.l1/a: its content has"),
            ({"identity": {"judge": {"version": 2}}}, "judge.version: was 1, is 2"),
        ],
    )
    def test_another_rollout_is_refused_with_the_difference_and_the_fix(self, folder, changes, words):
        arguments = {"identity": {"judge": {"version": 1}}, "checkpoint": folder}
        run(**arguments)
        with pytest.raises(DataError, match=rf"(?s)checkpoint holds.*{words}.*rm -r .*checkpoint") as told:
            run(**{**arguments, **changes})
        assert not re.search(r"[0-9a-f]{12}", str(told.value).split("\n", 1)[1].rsplit("\n", 1)[0]), "no digests"

    def test_a_checkpoint_without_an_answer_is_in_nobody_s_way(self, folder):
        class Unreachable(ScriptedPolicy):
            def complete(self, requests, sampling, on_completion=None):
                raise PolicyError("connection refused")

        with pytest.raises(PolicyError):
            run(Unreachable(), checkpoint=folder, identity={"policies": {"p": {"model": "misspelt"}}})
        identity = {"policies": {"p": {"model": "right"}}}
        assert run(checkpoint=folder, identity=identity) == run()
        assert json.loads((folder / "manifest.json").read_text())["policies"] == identity["policies"]

    def test_another_policy_is_refused(self, folder):
        run(checkpoint=folder)
        policy = ScriptedPolicy()
        policy.name = "kevin"
        with pytest.raises(DataError, match='policy: was "scripted", is "kevin"'):
            run(policy, checkpoint=folder)

    @pytest.mark.parametrize("name", ["manifest.json", "turn_001.completions.jsonl", "turn_001.turns.jsonl"])
    def test_a_damaged_file_is_named(self, folder, name):
        run(judge=ScriptedJudge({("l1/a", 0, 1): SandboxError("x")}), checkpoint=folder)
        (folder / name).write_text("{nonsense\n")
        with pytest.raises(DataError, match=f"{name}: damaged"):
            run(checkpoint=folder)


def test_timing_tells_where_a_turn_went(tmp_path):
    timings = []
    run(checkpoint=tmp_path / "c", on_timing=timings.append)
    assert [t.turn for t in timings] == [1, 2, 3, 4]
    for t in timings:
        assert (t.num_answers, t.num_kernels, t.num_prompt_tokens, t.num_completion_tokens) == (6, 6, 60, 30)
        assert t.total_s >= t.generate_s + t.judge_s
    run(checkpoint=tmp_path / "c", on_timing=timings.append)
    assert len(timings) == N


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


class TestBeam:
    settings = SETTINGS.model_copy(update={"num_trajectories": 4})
    beam = Beam(turns_per_round=2, num_kept=2)

    def search(self, policy=None, judge=None, **rest):
        return run(policy, judge, self.settings, search=self.beam, **rest)

    def test_the_fastest_go_on_copied(self):
        policy = ScriptedPolicy()
        turns = self.search(policy)
        assert [len(batch) for batch in policy.requests] == [8, 8, 8, 8]
        kernels = {
            k: [t.kernel.source.strip() for t in turns if (t.task_id, t.trajectory) == ("l1/b", k)] for k in range(4)
        }
        # after turn 2 trajectories 3 and 2 lead with 2.3 and 2.2
        assert kernels[0] == ["kernel l1/b 3 1", "kernel l1/b 3 2", "kernel l1/b 0 3", "kernel l1/b 0 4"]
        assert kernels[1][:2] == kernels[0][:2]
        assert kernels[2] == ["kernel l1/b 2 1", "kernel l1/b 2 2", "kernel l1/b 2 3", "kernel l1/b 2 4"]
        (request,) = [r for r in policy.requests[2] if (r.task_id, r.trajectory) == ("l1/b", 1)]
        assert "kernel l1/b 3 2" in "".join(m.content for m in request.conversation)

    def test_trajectories_without_a_correct_kernel_lose(self):
        wrong = {(t.id, k, n): failing((t.id, k, n)) for t in TASKS for k in (1, 2, 3) for n in (1, 2)}
        turns = self.search(judge=ScriptedJudge(wrong))
        first = [t.kernel.source.split()[2] for t in turns if t.task_id == "l1/a" and t.turn == 1]
        assert first == ["0", "0", "1", "1"]

    @pytest.mark.parametrize("call", range(1, N + 1))
    def test_killed_and_started_again(self, tmp_path, call):
        with pytest.raises(Killed):
            self.search(judge=ScriptedJudge(die_at_call=call), checkpoint=tmp_path / "c")
        assert self.search(checkpoint=tmp_path / "c") == self.search()

    def test_a_retry_that_changes_the_selection_plays_the_later_turns_again(self, tmp_path):
        failed = {("l1/b", 3, 2): SandboxError("x")}
        self.search(judge=ScriptedJudge(failed), checkpoint=tmp_path / "c")
        assert self.search(checkpoint=tmp_path / "c") == self.search()

    def test_it_does_not_resume_a_plain_rollout(self, tmp_path):
        run(settings=self.settings, checkpoint=tmp_path / "c")
        with pytest.raises(DataError, match="search: was absent"):
            self.search(checkpoint=tmp_path / "c")


def test_the_manifest_is_readable(tmp_path):
    run(checkpoint=tmp_path / "c")
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert manifest["policy"] == "scripted"
    assert manifest["rollout"]["num_turns"] == N
    assert set(manifest["tasks"]) == {t.id for t in TASKS}


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
