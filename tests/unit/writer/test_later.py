"""Later turns of the school: true feedback before them, and every way of going on as it is named."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from past_fixtures import LARGEST, TASKS, small_past_tasks, told, written_pasts
from writer_fixtures import right_results, task_of

from kevin.core import abi, dialogue
from kevin.core.errors import TaskError
from kevin.core.types import Outcome
from kevin.tasks.format import inspect_task
from kevin.tasks.ops import call
from kevin.writer import later_turns
from kevin.writer.first_turns import answer, styled_anew
from kevin.writer.later_turns import Past, later_transcripts, past_of, past_tasks, read_plan, written_answers
from kevin.writer.plan import FLAWLESS, Plan, mistakes_of, plan_space, render, sample_plan, without_mistake
from kevin.writer.slots import SENTENCES
from kevin.writer.ways import Seen, Ways, fastest_of, first_turn, go_on, hints

PROFILE = " It reaches 12 % of the memory bandwidth. It reaches 71 % of the arithmetic peak."


@pytest.fixture(autouse=True)
def four_turns_and_even_ways(monkeypatch):
    monkeypatch.setattr(later_turns, "MAX_PAST", 4)
    monkeypatch.setattr(later_turns, "WAYS", Ways())


def only(*ways: str) -> Ways:
    return Ways(**{name: float(name in ways) for name in Ways._fields})


@pytest.fixture(scope="module")
def linear():
    """A task whose plans have several decisions."""
    task = task_of([call("linear"), call("relu")], {"batch_size": 8, "in_features": 16, "out_features": 16})
    return past_tasks([task], "cuda", 1, 0, largest=LARGEST)[0]


def plans(task, num, seed=0) -> list[Plan]:
    rng = random.Random(seed)
    found = {p.slots: p for p in (without_mistake(sample_plan(rng, task.plain, "cuda")) for _ in range(200))}
    return list(found.values())[:num]


def seen(task, plan, speedup=None, **how) -> Seen:
    """As the judge would tell of it; without a speedup the kernel holds a mistake."""
    made = plan
    if speedup is None:
        made = plan.model_copy(update={"mistake": mistakes_of(task.plain, plan)[0]})
    source = render(task.plain, made, task.styled.names)
    text = answer(task.plain, task.styled.names, first_turn(plan, source))
    return Seen(told(task, text, speedup, **how), plan)


def next_turn(task, shown, ways, seed=0):
    return go_on(random.Random(seed), task.plain, task.styled.names, "cuda", shown, ways, FLAWLESS)


def differing(a: Plan, b: Plan) -> list[str]:
    return [slot for slot, value in b.slots if dict(a.slots)[slot] != value]


# --- the tasks and the writer's answers ---------------------------------------------------------------------


def test_held_out_past_tasks_are_in_styles_that_are_never_trained_on(monkeypatch):
    asked = []
    monkeypatch.setattr(
        later_turns,
        "styled_anew",
        lambda *args, held_out: asked.append(held_out) or styled_anew(*args, held_out=held_out),
    )
    for held_out in (True, False):
        past_tasks(TASKS, "cuda", 3, 0, largest=LARGEST, held_out=held_out)
    assert asked == [True] * 3 + [False] * 3


def test_past_tasks_follow_from_seed_and_number():
    tasks = small_past_tasks(12)
    assert small_past_tasks(5) == tasks[:5]
    assert len({t.shown.id for t in tasks}) == 12
    assert [t.plain.level for t in tasks] == [1, 2] * 6
    assert past_tasks(TASKS, "cuda", 5, 1, largest=LARGEST) != tasks[:5]
    held_out = small_past_tasks(5, held_out=True)
    assert [t.shown.id.split("~")[1] for t in held_out] == ["h1", "h2", "h3", "h4", "h5"]
    for task in (*tasks, *held_out):
        spec = inspect_task(task.shown.source, task.shown.id)
        assert spec == task.shown.spec
        assert max(t.num_elements for t in (*spec.inputs, *spec.parameters, *spec.outputs)) <= LARGEST


def test_tasks_that_cannot_be_as_small_are_refused():
    with pytest.raises(TaskError, match="tensors of at most 0 elements"):
        past_tasks(TASKS[:2], "cuda", 1, 0, largest=0)


def test_written_answers_are_different_kernels_and_the_wrong_ones_come_last():
    for task in small_past_tasks(6):
        texts = written_answers(task, "cuda", 3, 2, 0)
        assert texts == written_answers(task, "cuda", 3, 2, 0)
        sources = [dialogue.parse_completion(t, "c_abi", "cuda").kernel.source.strip() for t in texts]
        assert len(set(sources)) == len(sources) == 5
        right = [
            render(task.plain, read_plan(task.plain, "cuda", t), task.styled.names).strip() == s
            for t, s in zip(texts, sources, strict=True)
        ]
        assert right == [True, True, True, False, False]


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_the_plan_is_read_back_from_what_the_answer_says(language):
    rng = random.Random(0)
    for task in small_past_tasks(12, language):
        plan = sample_plan(rng, task.plain, language)
        text = answer(task.plain, task.styled.names, first_turn(plan))
        assert read_plan(task.plain, language, text) == Plan(language=language, slots=plan.slots)


def test_a_plan_that_is_half_said_takes_the_plainest_values_and_one_that_is_not_said_is_none(linear):
    plan = Plan(language="cuda", slots=tuple((s, v[-1]) for s, v in plan_space(linear.plain, "cuda").items()))
    text = answer(linear.plain, linear.styled.names, first_turn(plan))
    slot, value = plan.slots[1]
    read = read_plan(linear.plain, "cuda", text.replace(SENTENCES[slot][value], "Numbers are garbled."))
    assert differing(plan, read) == [slot]
    assert dict(read.slots)[slot] == plan_space(linear.plain, "cuda")[slot][0]
    assert read_plan(linear.plain, "cuda", "<think>\nOkay, hello.\n</think>\n" + text.split("</think>\n")[1]) is None


# --- ways of going on ---------------------------------------------------------------------------------------


def test_a_wrong_kernel_is_mended_with_its_own_decisions(linear):
    fast, wrong = plans(linear, 2)
    taken = next_turn(linear, [seen(linear, fast, 1.5), seen(linear, wrong)], only("mend"))
    assert (taken.way, taken.plan, taken.source) == ("mend", wrong, None)
    assert taken.said == (
        'The last one: Compile error: kernel.cu(12): error: identifier "num" is undefined',
        "The fastest so far: 1.5x, an earlier one.",
        "I keep the last one's decisions and write it right.",
    )
    assert taken.summary == "mended the compile error."


def test_what_the_writer_would_write_again_cannot_be_mended(linear):
    (plan,) = plans(linear, 1)
    said_wrong = Seen(told(linear, seen(linear, plan, 1.0).turn.completion), plan)
    assert not said_wrong.is_correct
    assert next_turn(linear, [said_wrong], only("mend")).way == "start_anew"


def test_one_decision_of_the_fastest_is_changed(linear):
    slow, fast, wrong = plans(linear, 3)
    shown = [seen(linear, slow, 0.251), seen(linear, fast, 1.26), seen(linear, wrong)]
    changed = Counter()
    for seed in range(40):
        taken = next_turn(linear, shown, only("change"), seed)
        (slot,) = differing(fast, taken.plan)
        changed[slot] += 1
        assert taken.said[1:] == (
            "The fastest so far: 1.3x, an earlier one.",
            f"I keep the fastest one's decisions but for {slot}.",
        )
        assert taken.summary == f"changed {slot}."
        assert taken.plan.mistake is None
    assert changed.keys() == {s for s, values in plan_space(linear.plain, "cuda").items() if len(values) > 1}


def test_of_equal_speeds_as_they_are_told_the_last_counts(linear):
    a, b, c = plans(linear, 3)
    shown = [seen(linear, a, 1.22), seen(linear, b, 1.18), seen(linear, c, 1.1)]
    assert fastest_of(shown) is shown[1]
    assert fastest_of([seen(linear, a)]) is None


def test_going_back_gives_the_fastest_to_the_letter(linear):
    fast, slow = plans(linear, 2)
    shown = [seen(linear, fast, 1.5), seen(linear, slow, 0.5)]
    taken = next_turn(linear, shown, only("go_back"))
    assert (taken.plan, taken.source) == (fast, shown[0].turn.kernel.source)
    assert taken.said == (
        "The last one: Correct, 0.5x the speed of PyTorch.",
        "The fastest so far: 1.5x, an earlier one.",
        "I go back to the fastest one.",
    )
    assert next_turn(linear, shown[::-1], only("go_back")).way == "start_anew"  # the last one is the fastest


def test_a_correct_kernel_may_be_repeated_and_a_wrong_one_not(linear):
    right, wrong = plans(linear, 2)
    shown = [seen(linear, wrong), seen(linear, right, 2.0)]
    taken = next_turn(linear, shown, only("repeat"))
    assert (taken.plan, taken.source) == (right, shown[1].turn.kernel.source)
    assert taken.summary == "changed nothing."
    assert next_turn(linear, shown[::-1], only("repeat")).way == "start_anew"


def test_a_change_at_random_keeps_the_last_whatever_became_of_it(linear):
    fast, wrong = plans(linear, 2)
    numbers = set()
    for seed in range(40):
        taken = next_turn(linear, [seen(linear, fast, 3.0), seen(linear, wrong)], only("change_at_random"), seed)
        numbers.add(len(differing(wrong, taken.plan)))
        assert taken.plan.mistake is None
    assert max(numbers) == 3 and min(numbers) <= 1


def test_the_profile_names_its_sentence_and_a_decision_that_it_points_to(linear):
    (plan,) = plans(linear, 1)
    shown = [seen(linear, plan, 1.0, profile=PROFILE)]
    (hint,) = hints(shown[0].turn.feedback)  # an arithmetic peak that is nearly reached is no complaint
    assert hint.said == "It reaches 12 % of the memory bandwidth."
    for seed in range(10):
        taken = next_turn(linear, shown, only("follow_profile"), seed)
        (slot,) = differing(plan, taken.plan)
        assert slot in hint.slots
        assert taken.said[-1] == f"{hint.said} I keep the fastest one's decisions but for {slot}."
    assert next_turn(linear, [seen(linear, plan, 1.0)], only("follow_profile")).way == "start_anew"


@pytest.mark.parametrize(
    ("said", "slot"),
    [
        ("Of the warps that a multiprocessor holds 30 % are active.", "block_size"),
        ("Warps wait for a barrier 60%, global memory 20%.", "rows"),
        ("Warps wait for global memory 60%, a barrier 20%.", "grid"),
        ("It uses 255 registers a thread, 64 bytes spilled.", "product"),
    ],
)
def test_what_a_profile_complains_of(said, slot):
    (hint,) = hints(f"Correct, 1x the speed of PyTorch. It can be faster. {said}")
    assert hint.said == said and slot in hint.slots


def test_profiles_are_told_as_the_dialogue_tells_them():
    details = {"bandwidth_share": 0.1, "flop_share": 0.1, "achieved_occupancy_share": 0.1, "registers": 9}
    details |= {"stalls": "a barrier 90%", "spilled_bytes": 4}
    told_of = " ".join(dialogue._profile(details))
    assert len(hints(told_of)) == 5


def test_nothing_is_known_of_an_answer_without_a_plan(linear):
    text = "<think>\nOkay.\n</think>\nno code"
    turn = told(linear, text).model_copy(update={"outcome": Outcome.PARSE_ERROR, "feedback": "Parse error: no code"})
    (unread,) = past_of(linear, "cuda", [turn]).answers
    assert unread.plan is None and turn.kernel is None
    ways = {next_turn(linear, [unread], Ways(), seed).way for seed in range(30)}
    assert ways == {"start_anew"}


def test_a_way_without_a_share_is_never_taken(linear):
    fast, slow = plans(linear, 2)
    shown = [seen(linear, fast, 1.5), seen(linear, slow, 0.5, profile=PROFILE)]
    ways = Counter(next_turn(linear, shown, only("go_back", "repeat", "mend"), seed).way for seed in range(60))
    assert ways.keys() == {"go_back", "repeat"} and min(ways.values()) > 15


# --- transcripts --------------------------------------------------------------------------------------------


def later(pasts, num, language="cuda", seed=0, **options):
    return list(later_transcripts(pasts, language, num, seed, **{"max_prompt_chars": 50_000, **options}))


def test_transcripts_show_what_was_said_to_the_letter():
    tasks = small_past_tasks(8)
    pasts = written_pasts(tasks)
    written = later(pasts, 80)
    assert written == later(pasts, 80) != later(pasts, 80, seed=1)
    by_id = {p.task.shown.id: p for p in pasts}
    numbers = Counter(t.exchanges[0].turn for t in written)
    assert numbers.keys() == {2, 3, 4, 5} and numbers[2] > numbers[5]
    for transcript in written:
        past = by_id[transcript.task_id]
        (exchange,) = transcript.exchanges
        prompt, *rest = transcript.conversation
        assert prompt.content == dialogue.base_prompt(past.task.shown, "c_abi", "cuda", with_example=False)
        assert len(rest) == 2 * (exchange.turn - 1)
        shown = [re.search(r"```cuda\n(.*?)```", m.content, re.S).group(1).strip() for m in rest[::2]]
        assert len(set(shown)) == len(shown)
        feedback = {a.turn.kernel.source.strip(): a.turn.feedback for a in past.answers}
        for source, message in zip(shown, rest[1::2], strict=True):
            assert message.content == f"{feedback[source]}\nWrite the complete new code."
        (text,) = exchange.answers
        parsed = dialogue.parse_completion(text, "c_abi", "cuda")
        assert parsed.kernel is not None and parsed.summary
        assert text.startswith("<think>\nOkay, this is computed:\n")
        assert abi.signature(past.task.shown.spec, "cuda") in parsed.kernel.source


def test_the_oldest_turns_give_way_where_the_prompt_is_too_long():
    pasts = written_pasts(small_past_tasks(4))
    limit = max(sum(len(m.content) for m in t.conversation) for t in later(pasts, 60)) // 2
    short = later(pasts, 60, max_prompt_chars=limit)
    for transcript in short:
        size = sum(len(m.content) for m in transcript.conversation)
        assert size <= limit or transcript.exchanges[0].turn == 2
    both = [[later(pasts, 1, seed=seed, max_prompt_chars=n)[0].conversation for n in (50_000, 1)] for seed in range(6)]
    assert max(len(whole) for whole, _ in both) > 3
    for whole, shortest in both:
        assert len(shortest) == 3 and shortest[-2:] == whole[-2:]  # the newest is always shown


def test_some_pasts_have_forgotten_their_first_turn():
    written = later(written_pasts(small_past_tasks(4)), 100)
    first = [t.conversation[1].content.rpartition("Summary: ")[2] for t in written]
    num_forgotten = sum(summary != "first version." for summary in first)
    assert 5 <= num_forgotten <= 30


@pytest.mark.parametrize("num", [12, pytest.param(48, marks=pytest.mark.slow)])
@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_kernels_of_later_turns_are_right(language, num, tmp_path):
    tasks = small_past_tasks(12, language)
    pasts = written_pasts(tasks, language)
    by_id = {p.task.shown.id: p.task.shown for p in pasts}
    pairs = []
    for transcript in later(pasts, num, language):
        kernel = dialogue.parse_completion(transcript.exchanges[0].answers[0], "c_abi", language).kernel
        pairs.append((by_id[transcript.task_id], kernel.source))
    right = right_results(pairs, tmp_path, language)
    assert [t.id for (t, _), ok in zip(pairs, right, strict=True) if not ok] == []


@pytest.mark.parametrize(
    ("way", "num_said"),
    [("mend", 0), ("go_back", 0), ("repeat", 0), ("change", 1), ("change_at_random", None), ("start_anew", "all")],
)
def test_a_later_turn_says_the_decisions_that_it_makes(linear, way, num_said, monkeypatch):
    """All else is to be copied from the kernel it goes on from, which the prompt shows; its decisions are not shown."""
    fast, slow, wrong = plans(linear, 3)
    answers = [seen(linear, fast, 1.5), seen(linear, slow, 0.5)] + ([seen(linear, wrong)] if way == "mend" else [])
    past = Past(linear, tuple(answers))
    sentences = {SENTENCES[s][v]: s for s, values in plan_space(linear.plain, "cuda").items() for v in values}
    monkeypatch.setattr(later_turns, "WAYS", only(way))
    met = set()
    for transcript in later([past], 30):
        lines = transcript.exchanges[0].answers[0].splitlines()
        said, rest = [x for x in lines if x in sentences], [x for x in lines if x not in sentences]
        if "I decide anew." in rest:
            assert len(said) == len(plan_space(linear.plain, "cuda"))
            met.add("anew")
            continue
        (decided,) = (x for x in rest if x.startswith("I "))
        named = decided.removesuffix(".").partition("but for ")[2]
        assert [sentences[x] for x in said] == (named.split(", ") if named else [])
        assert num_said in (len(said), None)
        met.add("kept")
    assert ("anew" if way == "start_anew" else "kept") in met


def test_turns_without_a_verdict_are_left_out(linear):
    turn = seen(linear, plans(linear, 1)[0], 1.0).turn
    failed = turn.model_copy(update={"outcome": None, "speedup": None, "feedback": ""})
    assert len(past_of(linear, "cuda", [turn, failed]).answers) == 1
