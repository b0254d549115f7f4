"""Prompts and answers: what is kept, what is dropped, and what is cut."""

import pytest
from core_fixtures import make_kernel as kernel
from core_fixtures import make_turn, make_verdict
from hypothesis import given
from hypothesis import strategies as st

from kevin.core.dialogue import (
    base_prompt,
    conversation,
    feedback,
    opening_is_expected,
    parse_completion,
    past_answer,
    verdict_feedback,
)
from kevin.core.errors import TaskError
from kevin.core.types import Outcome, Round, Task, TaskSpec, TensorSpec

X = TensorSpec(name="x", shape=(4, 8), dtype="float32")
OUT = TensorSpec(name="out", shape=(4, 8), dtype="float32")
TASK = Task(
    id="l1/relu",
    level=1,
    name="relu",
    source="import torch\nclass Model(torch.nn.Module): ...\n",
    origin="catalog",
    spec=TaskSpec(inputs=(X,), outputs=(OUT,)),
)


def turn(n, **changes):
    said = {"completion": f"<think>secret thought {n}</think>...", "summary": f"did {n}", "feedback": f"Result {n}."}
    found = {"kernel": kernel(f"int k{n};\n"), "outcome": Outcome.INCORRECT, "speedup": None}
    return make_turn(task_id=TASK.id, turn=n, **{**said, **found, **changes})


def parse(text):
    return parse_completion(text, "c_abi", "cpp")


def text_of(messages):
    return "\n".join(m.content for m in messages)


class TestParse:
    def test_block_and_summary(self):
        parsed = parse("Okay.\n```cpp\nint a;\n  int b;\n```\nSummary: tiled the loop.\nmore")
        assert parsed.kernel == kernel("int a;\n  int b;\n")
        assert (parsed.summary, parsed.problem) == ("tiled the loop.", None)

    def test_the_last_complete_block_wins(self):
        assert parse("```cpp\na\n```\nbetter:\n```cpp\nb\n```").kernel == kernel("b\n")
        assert parse("```cpp\na\n```\n```cpp\nb").kernel == kernel("a\n")

    def test_a_summary_may_stand_out(self):
        for said in ("**Summary:** tiled", "Summary: **tiled**", "**Summary: tiled**"):
            assert parse(f"```cpp\na\n```\n{said}\nMore.").summary == "tiled"

    def test_blocks_that_could_be_the_kernel_are_counted(self):
        assert parse("```cpp\na\n```\n```cpp\nb\n```\n```bash\nmake\n```\n").num_candidates == 2

    def test_a_summary_before_the_code_is_not_the_summary(self):
        assert parse("Summary: early\n```cpp\na\n```").summary == ""

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "no code block"),
            ("use `x` here", "no code block"),
            ("<think>I wonder", "never closed"),
            ("<think>a</think>b<think>c\n```cpp\nx\n```", "never closed"),
            ("```cpp\nint a;", "ends inside"),
            ("```cpp\nint a;```\n", "ends inside"),
            ("```cpp\n \n```", "empty"),
        ],
    )
    def test_problems_are_named(self, text, problem):
        parsed = parse(text)
        assert parsed.kernel is None
        assert problem in parsed.problem

    @given(st.text())
    def test_any_text_is_a_kernel_or_a_problem(self, text):
        parsed = parse(text)
        assert (parsed.kernel is None) == (parsed.problem is not None)

    @given(st.text(alphabet=st.characters(blacklist_characters="`\r", blacklist_categories=["Cs"])))
    def test_code_comes_back_unchanged(self, code):
        if code.strip() and "<think>" not in code and "</think>" not in code:
            assert parse(f"<think>x</think>\n```cpp\n{code}\n```\nSummary: s").kernel == kernel(code + "\n")


class TestFeedback:
    @pytest.mark.parametrize(
        ("speedup", "shown"), [(1.0, "1x"), (0.0123, "0.012x"), (9.61, "9.6x"), (36.75, "37x"), (123.4, "120x")]
    )
    def test_two_significant_digits(self, speedup, shown):
        assert feedback(Outcome.CORRECT, "", speedup).startswith(f"Correct, {shown} the speed")

    def test_long_messages_are_cut(self):
        text = feedback(Outcome.COMPILE_ERROR, "e" * 5000, None, max_chars=100)
        assert text.startswith("Compile error: eee")
        assert text.endswith("[...]")
        assert len(text) < 130

    @pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.CORRECT])
    def test_every_failure_has_its_words(self, outcome):
        assert feedback(outcome, "because", None).endswith(": because")

    def test_a_verdict_without_rounds_still_has_a_speedup(self):
        verdict = make_verdict(Outcome.CORRECT, kernel_us=50.0, eager_us=100.0)
        assert verdict_feedback(verdict).startswith("Correct, 2x")

    @pytest.mark.parametrize(
        ("ratios", "speedup"), [([2.0], 2.0), ([10.0, 2.0, 3.0], 3.0), ([1.0, 2.0, 3.0, 9.0], 2.5)]
    )
    def test_its_rounds_decide_by_their_median(self, ratios, speedup):
        rounds = tuple(Round(kernel_us=10.0, reference_us=10.0 * ratio) for ratio in ratios)
        assert make_verdict(Outcome.CORRECT, kernel_us=50.0, eager_us=100.0, rounds=rounds).speedup == speedup

    def test_opening(self):
        assert opening_is_expected("<think>\nOkay, so")
        assert opening_is_expected("Okay, so")
        assert not opening_is_expected("<think>Hmm")


class TestConversation:
    def ask(self, past, **budget):
        return conversation(TASK, past, dialect="c_abi", language="cpp", **budget)

    def test_an_answer_without_code_stays_visible_as_such(self):
        assert past_answer(turn(1, kernel=None), "cpp") == "(no code)"
        assert "Summary" not in past_answer(turn(1, summary=""), "cpp")

    def test_the_oldest_turns_go_first(self):
        past = [turn(i) for i in range(1, 5)]
        sizes = [len(text_of(self.ask(past[i:]))) for i in range(4)]
        for first_kept in range(4):
            text = text_of(self.ask(past, count_tokens=lambda c: len(text_of(c)), max_prompt_tokens=sizes[first_kept]))
            assert text == text_of(self.ask(past[first_kept:]))

    def test_nothing_that_fits_is_an_error_with_the_fix(self):
        for past in ([], [turn(1)], [turn(1), turn(2)]):
            with pytest.raises(TaskError, match=r"l1/relu.*rollout\.max_prompt_tokens"):
                self.ask(past, count_tokens=lambda c: 100, max_prompt_tokens=99)

    def test_c_abi_needs_a_spec(self):
        with pytest.raises(TaskError, match="carries no spec"):
            base_prompt(TASK.model_copy(update={"spec": None}), "c_abi", "cpp", with_example=True)

    def test_a_later_turn_needs_no_example_of_a_module(self):
        assert "load_inline(" not in base_prompt(TASK, "load_inline", "cuda", with_example=False)

    def test_braces_in_the_source_are_left_alone(self):
        task = TASK.model_copy(update={"source": "d = {'a': {0}}"})
        assert "d = {'a': {0}}" in base_prompt(task, "c_abi", "cpp", with_example=False)

    def test_the_example_fits_its_dialect_and_parses(self):
        for dialect, language in (("c_abi", "cpp"), ("c_abi", "cuda")):
            prompt = base_prompt(TASK, dialect, language, with_example=True)
            example = prompt[prompt.index("For example") : prompt.index("Your kernel is compiled")]
            assert 'extern "C" void launch' in parse_completion(example, dialect, language).kernel.source
