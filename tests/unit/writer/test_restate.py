"""What an answer says that a module computes, and how that differs from what it does."""

from __future__ import annotations

import random

import pytest
from past_fixtures import small_past_tasks

from kevin.tasks.render import trace_task
from kevin.writer.plan import sample_plan
from kevin.writer.restate import compared, readings, restated
from kevin.writer.school import answer

CONV = "conv2d of x (1, 3, 8, 8) with w (4, 3, 3, 3), kernel 3, stride 1, padding 1 -> (1, 4, 8, 8)"


def test_the_lines_of_an_answer_are_read_back():
    rng = random.Random(0)
    for task in small_past_tasks(12):
        plan = sample_plan(rng, task.plain, "cuda")
        text = answer(task.plain, task.styled.names, plan, summary="first version.", goes_on=("I decide anew.",))
        lines = restated(trace_task(task.plain).steps, task.plain.spec, task.styled.names)
        assert readings(text) == lines
        assert compared(lines, lines) == "It read the module right."


@pytest.mark.parametrize(
    "text", ["", "<think>\nOkay.\n</think>\nno code", "<think>\n</think>\nOkay, this is computed:\na -> b"]
)
def test_an_answer_that_restates_nothing_has_no_lines(text):
    assert readings(text) == []


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (["conv2d", "relu"], "It read the module right."),
        (["conv2d"], "It left out relu."),
        (["square", "conv2d", "relu"], "It computed square, which is not there."),
        (["conv2d", "gelu"], "It took relu for gelu."),
        ([], "It left out conv2d, kernel 3, stride 1, padding 1."),
    ],
)
def test_what_was_misread_is_said_in_a_sentence(read, said):
    was, right = ([CONV if o == "conv2d" else f"{o} of it -> (4)" for o in ops] for ops in (read, ["conv2d", "relu"]))
    assert compared(was, right) == said


@pytest.mark.parametrize(
    ("read", "said"),
    [
        ("kernel 5, stride 1, groups 2", "In conv2d it took kernel 3 for kernel 5."),
        ("kernel 3, stride 1", "In conv2d it left out groups 2."),
        ("kernel 3, stride 1, groups 2, dilation 2", "In conv2d it put in dilation 2."),
    ],
)
def test_of_one_operator_the_numbers_are_compared(read, said):
    was, right = (f"conv2d of x (1, 3, 8, 8) with w (4, 3, 3, 3), b (4), {n} -> out (1, 4, 8, 8)"
                  for n in (read, "kernel 3, stride 1, groups 2"))  # fmt: skip
    assert compared([was], [right]) == said


def test_numbers_may_be_of_any_kind_and_shapes_come_last():
    clamp, other = (f"clamp of it with min {low}, max 1.0 -> (4)" for low in (-1.0, -0.5))
    assert compared([other], [clamp]) == "In clamp it took min -1.0 for min -0.5."
    assert (
        compared([CONV.replace("(1, 4, 8, 8)", "(1, 4, 6, 6)")], [CONV]) == "It took a shape or a tensor for another."
    )
