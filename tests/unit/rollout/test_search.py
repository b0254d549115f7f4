"""Ways to spend the same kernels: in the loop, in the configuration, and as a table."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from report_fixtures import make_turn
from rollout_fixtures import SETTINGS, TASKS, Killed, N, ScriptedJudge, ScriptedPolicy, failing, run

from kevin.core.config import StrategyConfig
from kevin.core.errors import DataError, SandboxError
from kevin.core.types import Outcome
from kevin.rollout.search import Beam, Evolution, Trajectories, make_search, shuffled_feedback
from kevin.rollout.settings import TurnTiming, turn_seconds

EVOLUTION = Evolution(population=4, num_parents=2, seed=1)
SHUFFLED = SETTINGS.model_copy(update={"feedback": "shuffled"})
BEAM, OF_FOUR = Beam(turns_per_round=2, num_kept=2), SETTINGS.model_copy(update={"num_trajectories": 4})
COUPLED = {
    "beam": {"search": BEAM, "settings": OF_FOUR},
    "evolution": {"search": EVOLUTION, "settings": SETTINGS},
    "shuffled": {"settings": SHUFFLED},
}


def kernels_shown(request) -> list[str]:
    """``trajectory turn`` of every kernel in a prompt."""
    found = []
    for message in request.conversation:
        if message.role == "assistant":
            _, _, trajectory, turn = message.content.split("```cpp\n")[1].split("\n")[0].split()
            found.append(f"{trajectory} {turn}")
    return found


class TestBeam:
    def test_the_fastest_go_on_copied(self):
        policy = ScriptedPolicy()
        turns = run(policy, **COUPLED["beam"])
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
        turns = run(judge=ScriptedJudge(wrong), **COUPLED["beam"])
        first = [t.kernel.source.split()[2] for t in turns if t.task_id == "l1/a" and t.turn == 1]
        assert first == ["0", "0", "1", "1"]


class TestEvolution:
    def test_prompts_show_the_best_kernels_of_all_trajectories_the_best_last(self):
        policy = ScriptedPolicy()
        run(policy, settings=SETTINGS, search=EVOLUTION)
        asked = [r for batch in policy.requests for r in batch if r.task_id == "l1/b"]
        assert all(not kernels_shown(r) for r in asked if r.turn == 1)
        for r in (r for r in asked if r.turn > 1):
            # the speedup of a kernel is turn + trajectory / 10: these are the four best before this turn
            speed = {f"{k} {n}": n + k / 10 for k in range(3) for n in range(1, r.turn)}
            best = sorted(speed, key=speed.get)[-4:]
            shown = kernels_shown(r)
            assert len(shown) == min(2, len(best)) and set(shown) <= set(best)
            assert [speed[s] for s in shown] == sorted(speed[s] for s in shown)
        others = Counter(s.split()[0] != str(r.trajectory) for r in asked for s in kernels_shown(r))
        assert others[True] > 0, "kernels of other trajectories are shown"

    def test_no_kernel_outside_the_population_is_a_parent(self):
        policy = ScriptedPolicy()
        run(policy, search=Evolution(population=2, num_parents=2))
        for batch in policy.requests[1:]:
            assert all(kernels_shown(r) == [f"1 {r.turn - 1}", f"2 {r.turn - 1}"] for r in batch)

    def test_better_parents_are_drawn_more_often(self):
        turns = {
            ("t", k): [make_turn("t", k, 1, Outcome.CORRECT, float(k + 1), text=f"```cpp\n{k}\n```\n")]
            for k in range(4)
        }
        drawn = Counter()
        for seed in range(400):
            one = EVOLUTION.model_copy(update={"seed": seed, "num_parents": 1})
            drawn.update(t.trajectory for t in one.shown(("t", 0), turns, SETTINGS.history))
        expected = {k: 400 * (1 / (4 - k)) / (1 + 1 / 2 + 1 / 3 + 1 / 4) for k in range(4)}
        for k, count in expected.items():
            assert abs(drawn[k] - count) < 4 * math.sqrt(count)

    def test_wrong_kernels_are_parents_where_there_is_nothing_better(self):
        wrong = {(t.id, k, n): failing((t.id, k, n)) for t in TASKS for k in range(3) for n in range(1, 5)}
        policy = ScriptedPolicy()
        run(policy, ScriptedJudge(wrong), search=EVOLUTION)
        assert all(len(kernels_shown(r)) == 2 for r in policy.requests[1])


@pytest.mark.parametrize("options", COUPLED.values(), ids=COUPLED)
class TestCoupledTrajectories:
    @pytest.mark.parametrize("call", range(1, N + 1))
    def test_killed_and_started_again(self, tmp_path, options, call):
        with pytest.raises(Killed):
            run(judge=ScriptedJudge(die_at_call=call), checkpoint=tmp_path / "c", **options)
        assert run(checkpoint=tmp_path / "c", **options) == run(**options)

    def test_a_retry_that_changes_the_others_plays_their_later_turns_again(self, tmp_path, options):
        num_trajectories = options["settings"].num_trajectories
        failed = {("l1/b", num_trajectories - 1, 2): SandboxError("x")}
        run(judge=ScriptedJudge(failed), checkpoint=tmp_path / "c", **options)
        policy = ScriptedPolicy()
        assert run(policy, checkpoint=tmp_path / "c", **options) == run(**options)
        later = {(t.id, k, n) for t in TASKS for k in range(num_trajectories) for n in range(3, N + 1)}
        assert {p for p in policy.asked() if p[2] > 2} == later

    def test_it_does_not_go_on_with_a_plain_rollout(self, tmp_path, options):
        run(settings=options["settings"].model_copy(update={"feedback": "own"}), checkpoint=tmp_path / "c")
        with pytest.raises(DataError, match=r"search: was absent|rollout\.feedback"):
            run(checkpoint=tmp_path / "c", **options)


class TestShuffledFeedback:
    def test_prompts_tell_of_another_task_s_kernel(self):
        policy = ScriptedPolicy()
        wrong = {("l1/a", k, n): failing(("l1/a", k, n)) for k in range(3) for n in range(1, 5)}
        turns = run(policy, ScriptedJudge(wrong), SHUFFLED)
        assert all("l1/b" not in t.feedback for t in turns if t.task_id == "l1/b"), (
            "right kernels are told of wrong ones"
        )
        for batch in policy.requests[1:]:
            for request in batch:
                feedbacks = [m.content for m in request.conversation if m.role == "user"][1:]
                own = "Correct," if request.task_id == "l1/b" else "Correctness error"
                assert feedbacks and not any(f.startswith(own) for f in feedbacks)
        outcomes = {t.outcome for t in turns if t.task_id == "l1/a"}
        assert outcomes == {Outcome.INCORRECT}, "what was judged stays"

    def test_of_one_task_it_is_another_trajectory_s(self):
        turns = [make_turn("t", k, 1, Outcome.CORRECT, k + 1.0) for k in range(3)]
        told = shuffled_feedback(turns, seed=0)
        assert all(a.feedback != b.feedback for a, b in zip(turns, told, strict=True))
        assert {t.feedback for t in told} <= {t.feedback for t in turns}
        assert told == shuffled_feedback(turns, seed=0)
        assert [t.model_copy(update={"feedback": ""}) for t in told] == [
            t.model_copy(update={"feedback": ""}) for t in turns
        ]

    def test_alone_it_has_none(self):
        (told,) = shuffled_feedback([make_turn("t", 0, 1, Outcome.CORRECT, 1.0)], seed=0)
        assert told.feedback == ""


def test_a_beam_is_the_authors_at_their_size():
    settings = SETTINGS.model_copy(update={"num_trajectories": 16, "num_turns": 8})
    assert make_search(StrategyConfig(method="beam"), settings) == Beam()
    assert make_search(StrategyConfig(), settings) == Trajectories()


def test_seconds_of_resumed_turns_add_up(tmp_path):
    path = tmp_path / "timing.jsonl"
    common = {"num_answers": 1, "num_kernels": 1, "num_prompt_tokens": 1, "num_completion_tokens": 1, "judge_s": 50.0}
    rows = [(1, 2.0, 0.5), (2, 4.0, 0.25), (2, 1.0, 0.0)]
    timings = [TurnTiming(turn=t, generate_s=g, device_s=d, total_s=99.0, **common) for t, g, d in rows]
    path.write_text("".join(t.model_dump_json() + "\n" for t in timings))
    assert turn_seconds(path, 2) == [2.5, 5.25]
    assert turn_seconds(tmp_path / "none", 1) == [0.0]
