"""Plans and transcripts: every choice without preference, every text reproducible."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter

import pytest
from writer_fixtures import small_tasks

from kevin.core import dialogue
from kevin.core.abi import wanted
from kevin.core.config import HistoryConfig
from kevin.core.dialogue import feedback
from kevin.core.errors import TaskError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome
from kevin.judge.compile.native import build_native
from kevin.judge.sandbox.isolation import Isolation
from kevin.tasks.catalog import catalog, catalog_extended
from kevin.writer.plan import Habits, Plan, enumerate_plans, mistakes_of, mutate_plan, plan_space, render, sample_plan
from kevin.writer.transcripts import SpeedLaw, made_up_feedback, transcripts
from kevin.writer.ways import Ways

TASKS = small_tasks()
LAW = SpeedLaw(random.Random(0))


def broken(task, language, mistake) -> Plan:
    """The first plan that can hold the mistake, with it."""
    plan = next(p for p in enumerate_plans(task, language) if mistake in mistakes_of(task, p))
    return plan.model_copy(update={"mistake": mistake, "care": "quick"})


def test_values_are_drawn_evenly_and_mistakes_stay_with_the_care():
    rng = random.Random(0)
    task = TASKS[0]
    plans = [sample_plan(rng, task, "cpp") for _ in range(2000)]
    for slot, values in plan_space(task, "cpp").items():
        seen = Counter(dict(p.slots)[slot] for p in plans)
        assert all(abs(seen[v] / 2000 - 1 / len(values)) < 0.05 for v in values)
    wrong = {care: [bool(p.mistake) for p in plans if p.care == care] for care in ("careful", "quick")}
    assert sum(wrong["careful"]) / len(wrong["careful"]) == pytest.approx(0.1, abs=0.03)
    assert sum(wrong["quick"]) / len(wrong["quick"]) == pytest.approx(0.8, abs=0.03)


def test_habits_make_a_writer_plain_and_careless():
    rng = random.Random(0)
    task = TASKS[0]
    habits = Habits(careful_one_in=10, careful_mistakes=0.5, quick_mistakes=1.0, plain_share=0.7)
    plans = [sample_plan(rng, task, "cpp", habits) for _ in range(2000)]
    assert sum(p.care == "careful" for p in plans) / 2000 == pytest.approx(0.1, abs=0.03)
    assert all(p.mistake for p in plans if p.care == "quick")
    for slot, values in plan_space(task, "cpp").items():
        plainest = sum(dict(p.slots)[slot] == values[0] for p in plans) / 2000
        assert plainest == pytest.approx(0.7 + 0.3 / len(values), abs=0.04)


def test_mutation_changes_at_most_three_slots():
    rng = random.Random(0)
    for task in TASKS:
        plan = sample_plan(rng, task, "cpp")
        changed = mutate_plan(rng, task, plan)
        assert sum(a != b for a, b in zip(plan.slots, changed.slots, strict=True)) <= 3
        render(task, changed)


def test_enumeration_holds_every_combination_once():
    task = TASKS[0]
    plans = list(enumerate_plans(task, "cpp"))
    size = 1
    for values in plan_space(task, "cpp").values():
        size *= len(values)
    assert len(set(plans)) == len(plans) == size


def test_a_foreign_task_is_refused():
    task = catalog("cpu")[0].model_copy(update={"origin": "kernelbench"})
    with pytest.raises(TaskError, match="catalog and composed"):
        plan_space(task, "cpp")


def test_made_up_speedups_rank_plans_by_chance_and_a_kernel_as_before():
    task = TASKS[0]
    first, second, *_ = enumerate_plans(task, "cpp")
    laws = [SpeedLaw(random.Random(seed)) for seed in range(200)]
    wins = sum(law.speedup(first) > law.speedup(second) for law in laws)
    assert 70 < wins < 130
    source = render(task, first)
    said = [made_up_feedback(random.Random(5), task, first, source, laws[0]) for _ in range(2)]
    assert said[0] == said[1] and said[0][0] is Outcome.CORRECT


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    "name",
    ["l1/relu", *(pytest.param(f"l1/{n}", marks=pytest.mark.slow) for n in ("softmax", "linear", "frobenius_norm_1"))],
)
def test_made_up_cuda_errors_are_nvccs_own_words(name, tmp_path):
    task = {t.id: t for t in [*catalog("gpu"), *catalog_extended("gpu", 1)]}[name]
    protocol = JudgeProtocol(device="cuda", cuda_flags=("-std=c++17", "-arch=sm_90"))
    known = mistakes_of(task, next(enumerate_plans(task, "cuda")))
    for mistake in {"undeclared_name", "missing_semicolon", "wrong_type"} & set(known):
        plan = broken(task, "cuda", mistake)
        source = render(task, plan)
        _, text = made_up_feedback(random.Random(0), task, plan, source, LAW)
        kernel = Kernel(dialect="c_abi", language="cuda", source=source)
        build = build_native(kernel, task.spec, protocol, tmp_path, Isolation.NONE)
        # the judge's own sentence on the launcher stands before them; what was written to pretrain on has none
        words = build.message.strip().removeprefix(f"{wanted(task.spec, 'cuda')}\n")
        assert text == feedback(Outcome.COMPILE_ERROR, words, None)


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("cuda", r'kernel\.cu\((\d+)\): error: identifier "num" is undefined\n  (.*)\n  ( *)\^'),
        ("cpp", r"kernel\.cpp:(\d+):\d+: error: 'num' was not declared in this scope\n +\d+ \| (.*)\n +\| ( *)\^"),
    ],
)
def test_made_up_compile_errors_name_the_line(language, said):
    task = TASKS[0]
    plan = broken(task, language, "undeclared_name")
    source = render(task, plan)
    outcome, text = made_up_feedback(random.Random(0), task, plan, source, LAW)
    assert outcome is Outcome.COMPILE_ERROR
    number, line, before = re.search(said, text).groups()
    assert line == source.splitlines()[int(number) - 1] and line[len(before) :].startswith("num")


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_transcripts_read_like_the_dialogue(language):
    written = list(transcripts(TASKS, language, 60, 4, 0, first_answers=2, later_answers=2))
    assert written == list(transcripts(TASKS, language, 60, 4, 0, first_answers=2, later_answers=2))
    assert {len(t.conversation) for t in written} == {1, 3, 5, 7}
    tasks = {t.id: t for t in TASKS}
    for transcript in written:
        first = dialogue.base_prompt(
            tasks[transcript.task_id], "c_abi", language, with_example=len(transcript.conversation) == 1
        )
        assert transcript.conversation[0].content == first
        assert transcript.exchanges[-1].turn == (len(transcript.conversation) + 1) // 2
        for exchange in transcript.exchanges:
            for answer in exchange.answers:
                parsed = dialogue.parse_completion(answer, "c_abi", language)
                assert parsed.kernel is not None and parsed.problem is None and parsed.summary


def test_later_turns_go_on_in_every_way_and_mend_what_was_wrong():
    said = {
        "mend": "I keep the last one's decisions and write it right.",
        "change": "I keep the fastest one's decisions but for",
        "go_back": "I go back to the fastest one.",
        "start_anew": "I decide anew.",
        "change_at_random": "I keep the last one's decisions but for",
        "repeat": "I give the last one again.",
    }
    counted = dict.fromkeys(said, 0)
    for t in transcripts(TASKS, "cpp", 400, 4, 0):
        for exchange in t.exchanges:
            before = t.conversation[2 * exchange.turn - 3] if exchange.turn > 1 else None
            for way, line in said.items():
                if line not in exchange.answers[0]:
                    continue
                counted[way] += 1
                answer = dialogue.parse_completion(exchange.answers[0], "c_abi", "cpp").kernel
                assert before is not None and answer is not None
                if way in ("repeat", "mend"):
                    assert (answer.source.strip() in before.content) == (way == "repeat")
    assert min(counted.values()) > 2, counted


def test_a_turn_says_its_own_decisions(monkeypatch):
    only = Ways(**{way: float(way == "change") for way in Ways._fields})
    monkeypatch.setattr("kevin.writer.transcripts.SHARES", only)
    written = transcripts(TASKS, "cpp", 100, 2, 0)
    answers = [e.answers[0] for t in written for e in t.exchanges if "decisions but for" in e.answers[0]]
    assert {a.split("I write it down")[1].split("</think>")[0].count("\n") - 1 for a in answers} == {1}


def test_a_view_of_the_past_is_the_transcripts_prompt():
    """Of three kernels before a last turn the prompt shows the best one, and every answer goes on from that."""
    history = HistoryConfig(view="best")
    written = list(transcripts(TASKS, "cpp", 120, 4, 0, later_answers=2, history=history))
    later = [t for t in written if len(t.conversation) > 1]
    assert {len(t.conversation) for t in later} == {3}
    correct = [t for t in later if t.conversation[2].content.startswith("Correct, ")]
    assert 0 < len(correct) < len(later)
    for t in later:
        (exchange,) = t.exchanges
        assert exchange.turn == 2 and len(exchange.answers) == 2
        said = "The fastest so far:" if t in correct else "None is correct so far."
        assert all(said in answer and "an earlier one" not in answer for answer in exchange.answers)


def test_where_no_kernel_before_is_correct_and_none_is_shown_a_later_turn_is_a_first_one(monkeypatch):
    monkeypatch.setattr("kevin.writer.transcripts.LATER_SHARE", 1)
    written = list(transcripts(TASKS, "cpp", 200, 4, 0, history=HistoryConfig(view="fastest")))
    alone = [t for t in written if len(t.conversation) == 1]
    others = [t for t in written if len(t.conversation) == 3]
    assert alone and others and len(alone) + len(others) == len(written)
    assert all(t.conversation[2].content.startswith("Correct, ") for t in others)
    for t in alone:
        (exchange,) = t.exchanges
        assert exchange.turn == 1 and "so far" not in exchange.answers[0] and "first version." in exchange.answers[0]


def test_the_conversation_goes_on_with_the_first_answer():
    written = [t for t in transcripts(TASKS, "cpp", 60, 3, 1, later_answers=2) if len(t.conversation) == 5]
    for transcript in written:
        answer = dialogue.parse_completion(transcript.exchanges[0].answers[0], "c_abi", "cpp")
        assert answer.kernel is not None
        assert answer.kernel.source.rstrip() in transcript.conversation[3].content


def test_most_chains_of_thought_open_as_expected():
    written = transcripts(TASKS, "cpp", 300, 1, 0)
    opened = [dialogue.opening_is_expected(a) for t in written for e in t.exchanges for a in e.answers]
    assert 0.9 < sum(opened) / len(opened) < 1
