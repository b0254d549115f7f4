"""A rollout that is killed anywhere, and what its checkpoint may be used for."""

import json
import re
from collections import Counter

import pytest
from core_fixtures import SPEC, make_task
from rollout_fixtures import ALL, SETTINGS, TASKS, Killed, M, N, ScriptedJudge, ScriptedPolicy, run

from kevin.core.errors import DataError, HarnessError, PolicyError, SandboxError


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

    @pytest.mark.parametrize("num_writes", range(N + 1))  # of the manifest, and of each turn
    def test_killed_while_writing(self, folder, monkeypatch, num_writes):
        from kevin.core import files
        from kevin.rollout import checkpoint as module

        count, real = 0, files.write_text

        def dying(path, text):
            nonlocal count
            count += 1
            if count > num_writes:
                raise Killed
            real(path, text)

        for owner in (files, module):
            monkeypatch.setattr(owner, "write_text", dying)
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

    @pytest.mark.parametrize("die_after", [9, len(ALL) - 1])
    def test_characters_that_other_programs_end_lines_at(self, folder, die_after):
        odd = "\u2028\u2029\u0085\x0b\x0c\x1e"

        script = {
            place: {"text": f"```cpp\nkernel {place[0]}{odd}{place[1]} {place[2]}\n```\nSummary: s"} for place in ALL
        }
        with pytest.raises(Killed):
            run(ScriptedPolicy(script, die_after=die_after), checkpoint=folder)
        policy = ScriptedPolicy(script)
        assert run(policy, checkpoint=folder) == run(ScriptedPolicy(script))
        assert policy.num_answers == len(ALL) - die_after
        kept = [path.read_text(encoding="utf-8") for path in folder.glob("turn_*.turns.jsonl")]
        assert all("\u2028" in text for text in kept)

    def test_harness_failures_are_tried_again_and_only_they(self, folder):
        script = {("l1/a", 0, 2): SandboxError("x"), ("l1/b", 1, 1): HarnessError("y")}
        first = ScriptedPolicy()
        run(first, ScriptedJudge(script), checkpoint=folder)
        second, judge = ScriptedPolicy(), ScriptedJudge()
        assert run(second, judge, checkpoint=folder) == run()
        missing = {("l1/a", 0, 3), ("l1/a", 0, 4), ("l1/b", 1, 2), ("l1/b", 1, 3), ("l1/b", 1, 4)}
        assert set(second.asked()) == missing
        assert set(judge.judged()) == {"kernel " + " ".join(map(str, p)) for p in missing | set(script)}

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
            ({"tasks": [*TASKS, make_task("l1/c", spec=SPEC)]}, "tasks.l1/c: is new"),
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
