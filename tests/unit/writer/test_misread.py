"""Modules read wrongly by the kernel writer, and what is said of a wrong reading."""

from __future__ import annotations

import random

import pytest
from past_fixtures import small_past_tasks
from writer_fixtures import right_results

from kevin.core import dialogue
from kevin.tasks.format import inspect_task
from kevin.tasks.render import trace_task
from kevin.writer.misread import misread
from kevin.writer.past import written_answers
from kevin.writer.restate import compared, readings, restated


def module_lines(task):
    return restated(trace_task(task.plain).steps, task.plain.spec, task.styled.names)


def test_a_misread_module_has_the_same_tensors_and_other_operators_or_numbers():
    rng = random.Random(0)
    for task in small_past_tasks(30):
        others = [misread(task.plain, rng) for _ in range(3)]
        for other in others:
            assert other.spec == task.plain.spec == inspect_task(other.source, other.id)
            assert other.ops != task.plain.ops
    (task,) = small_past_tasks(1)
    assert misread(task.plain, random.Random(1)) == misread(task.plain, random.Random(1))


def test_answers_to_a_misread_module_come_last_say_what_was_read_and_are_wrong(tmp_path):
    pairs = []
    for task in small_past_tasks(24, "cpp"):
        texts = written_answers(task, "cpp", 1, 0, 0, num_misread=2)
        assert texts[:1] == written_answers(task, "cpp", 1, 0, 0)
        assert readings(texts[0]) == module_lines(task)
        for text in texts[1:]:
            assert readings(text) != module_lines(task)
            assert compared(readings(text), module_lines(task)) != "It read the module right."
            source = dialogue.parse_completion(text, "c_abi", "cpp").kernel.source
            pairs.append((task.shown, source))
    assert len(pairs) == 48
    assert sum(right_results(pairs, tmp_path)) <= 8  # a relu after a relu, say


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (["conv2d", "relu"], "It read the module right."),
        (["conv2d"], "It left out relu."),
        (["square", "conv2d", "relu"], "It computed square, which is not there."),
        (["conv2d", "gelu"], "It took relu for gelu."),
    ],
)
def test_what_was_misread_is_said_in_a_sentence(read, said):
    conv = "conv2d of x (1, 3, 8, 8) with w (4, 3, 3, 3), kernel 3, stride 1, padding 1 -> (1, 4, 8, 8)"
    was, right = (
        [conv if op == "conv2d" else f"{op} of it -> (4)" for op in ops] for ops in (read, ["conv2d", "relu"])
    )
    assert compared(was, right) == said


def test_of_one_operator_the_numbers_are_compared_and_then_shapes_and_tensors():
    def conv(numbers, out="(1, 4, 8, 8)"):
        return [f"conv2d of x (1, 3, 8, 8) with w (4, 3, 3, 3), b (4), {numbers} -> out {out}"]

    right = conv("kernel 3, stride 1, groups 2")
    assert compared(conv("kernel 5, stride 1, groups 2"), right) == "In conv2d it took kernel 3 for kernel 5."
    assert compared(conv("kernel 3, stride 1"), right) == "In conv2d it left out groups 2."
    assert compared(conv("kernel 3, stride 1, groups 2, dilation 2"), right) == "In conv2d it put in dilation 2."
    assert compared(conv("kernel 3, stride 1, groups 2", "(1, 4, 6, 6)"), right) == (
        "It took a shape or a tensor for another."
    )
    assert compared([], right) == "It left out conv2d, kernel 3, stride 1, groups 2."
    clamp, other = (f"clamp of it with min {low}, max 1.0 -> (4)" for low in (-1.0, -0.5))
    assert compared([other], [clamp]) == "In clamp it took min -1.0 for min -0.5."
