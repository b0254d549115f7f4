"""School transcripts: kernels are right under the names that the prompt shows, and the answer restates the module."""

from __future__ import annotations

import random
import re

import pytest
from past_fixtures import small_past_tasks
from writer_fixtures import right_results, small_tasks, task_of

from kevin.core import abi, dialogue
from kevin.core.errors import TaskError
from kevin.tasks.format import inspect_task
from kevin.tasks.ops import call, trace_task
from kevin.writer import first_turns
from kevin.writer.first_turns import restated
from kevin.writer.modules.sizes import vary_sizes
from kevin.writer.modules.styled import restyle
from kevin.writer.plan import renamed, render, sample_plan
from kevin.writer.slots import CARE
from kevin.writer.ways import first_turn

TASKS = small_tasks()
SQUARE = {"in_features": 6, "out_features": 6}


def test_names_are_replaced_with_their_constants_and_nothing_else():
    text = '#define PRAGMA(x) _Pragma(#x)\nextern "C" int B = x_d0 + threadIdx.x + x[B] * xs + 2.0f * w_size;\n'
    new = renamed(text, {"x": "A", "w": "B", "out": "out"})
    head, line, _ = new.split("\n")
    assert head == "#define PRAGMA(x) _Pragma(#x)"
    assert line == 'extern "C" int B_ = A_d0 + threadIdx.x + A[B_] * xs + 2.0f * B_size;'
    text = 'asm("f %0;" : "+f"(f)); y[0] = x[0];'
    assert renamed(text, {"x": "f", "y": "out"}) == 'asm("f %0;" : "+f"(f_)); out[0] = f[0];', "strings stay"


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_the_launcher_is_the_shown_specs(language):
    rng = random.Random(0)
    for task in TASKS:
        styled = restyle(task, rng)
        source = render(task, sample_plan(rng, task, language).model_copy(update={"mistake": None}), styled.names)
        assert abi.signature(styled.shown.spec, language) in source


AWKWARD = [
    task_of([call("argmax")], {"batch_size": 3, "channels": 4, "length": 7}),
    task_of([call("matvec")], {"rows": 5, "inner": 9}),
    task_of(
        [call("matmul_batched"), call("clamp"), call("avg_pool1d", kernel=3, stride=2), call("mul_param")],
        {"batch_size": 2, "rows": 3, "inner": 5, "cols": 9},
    ),
    task_of([call("linear"), call("sub_param"), call("mul_residual", of=0)], {"batch_size": 4, **SQUARE}),
]


@pytest.mark.parametrize(
    ("language", "num"),
    [
        ("cpp", 20),
        ("cuda", 8),
        pytest.param("cpp", 120, marks=pytest.mark.slow),
        pytest.param("cuda", 48, marks=pytest.mark.slow),
    ],
)
def test_kernels_are_right_under_the_names_of_the_prompt(language, num, tmp_path, monkeypatch):
    monkeypatch.setattr(first_turns, "vary_sizes", lambda task, rng: vary_sizes(task, rng, largest=3000))
    monkeypatch.setattr(first_turns, "_OWN_SIZES_SHARE", 0.5)
    written = [
        *first_turns.first_transcripts(AWKWARD, language, 3 * len(AWKWARD), 0),
        *first_turns.first_transcripts(TASKS, language, num, 0),
    ]
    pairs = []
    tasks = {t.id: t for t in (*TASKS, *AWKWARD)}
    for transcript in written:
        prompt, (answer,) = transcript.conversation[0].content, transcript.exchanges[0].answers
        source = re.search(r"```python\n(.*?)```", prompt, re.S).group(1)
        spec = inspect_task(source, transcript.task_id)
        assert abi.header(spec, language) in prompt
        kernel = dialogue.parse_completion(answer, "c_abi", language).kernel
        shown = tasks[transcript.task_id].model_copy(update={"source": source, "spec": spec})
        pairs.append((shown, kernel.source))
    right = right_results(pairs, tmp_path, language)
    assert [t.task_id for t, ok in zip(written, right, strict=True) if not ok] == []


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_answers_parse_and_say_nothing_of_care(language):
    written = list(first_turns.first_transcripts(TASKS, language, 60, 0))
    assert written == list(first_turns.first_transcripts(TASKS, language, 60, 0))
    assert written != list(first_turns.first_transcripts(TASKS, language, 60, 1))
    for transcript in written:
        (message,), (exchange,) = transcript.conversation, transcript.exchanges
        (answer,) = exchange.answers
        parsed = dialogue.parse_completion(answer, "c_abi", language)
        assert parsed.kernel is not None and parsed.problem is None and parsed.summary
        assert "For example, an element-wise sum" in message.content
        assert answer.startswith("<think>\nOkay, this is computed:\n")
        assert not any(said in answer for said in CARE.values())


def test_the_restatement_is_the_same_in_every_style_but_for_names():
    rng = random.Random(0)
    for task in TASKS:
        plain = restated(
            trace_task(task).steps, task.spec, {s.name: s.name for s in (*task.spec.inputs, *task.spec.parameters)}
        )
        assert len(plain) == len(task.ops)
        for _ in range(3):
            styled = restyle(task, rng)
            lines = restated(trace_task(task).steps, task.spec, styled.names)
            named = {s.name for s in (*styled.shown.spec.inputs, *styled.shown.spec.parameters)}
            assert all(any(re.search(rf"\b{n}\b", line) for line in lines) for n in named)
            numbers = [re.findall(r"\([\d, ]*\)", line) for line in lines]
            assert numbers == [re.findall(r"\([\d, ]*\)", line) for line in plain]


def test_the_restatement_stands_in_an_answer():
    rng = random.Random(0)
    for task in small_past_tasks(12):
        plan = sample_plan(rng, task.plain, "cuda")
        text = first_turns.answer(task.plain, task.styled.names, first_turn(plan)._replace(said=("I decide anew.",)))
        lines = restated(trace_task(task.plain).steps, task.plain.spec, task.styled.names)
        assert "this is computed:\n" + "\n".join(lines) + "\n" in text


def test_a_restated_convolution():
    task = next(t for t in TASKS if t.id == "l1/conv2d")
    names = {"x": "x", "conv2d_weight": "conv_weight", "conv2d_bias": "conv_bias", "out": "out"}
    assert restated(trace_task(task).steps, task.spec, names) == [
        "conv2d of x (8, 8, 16, 16) with conv_weight (16, 8, 3, 3), conv_bias (16), kernel 3, stride 1, padding 0, "
        "dilation 1, groups 1 -> out (8, 16, 14, 14)"
    ]


def test_windows_say_every_option_in_one_order_numbers_are_short_and_what_is_read_twice_is_itself():
    image = {"batch_size": 2, "in_channels": 4, "height": 9, "width": 9, "out_channels": 6}
    ops = [
        call("conv_transpose2d", groups=2, kernel_0=3, kernel_1=5, output_padding=1, stride=2),
        call("max_pool2d", kernel=3, stride=1, dilation=2),
        call("hardtanh", min=-2.0, max=0.5),
    ]
    task = task_of(ops, image)
    names = {s.name: s.name for s in (*task.spec.inputs, *task.spec.parameters)}
    first, second, third = (line.rpartition(" -> ")[0] for line in restated(trace_task(task).steps, task.spec, names))
    window = "kernel 3, kernel_0 3, kernel_1 5, stride 2, padding 0, output_padding 1, dilation 1, groups 2"
    assert first.endswith(window)
    assert second == "max_pool2d of it with kernel 3, stride 1, padding 0, dilation 2"
    assert third == "hardtanh of it with min -2, max 0.5"
    twice = [call("relu"), call("hardtanh"), call("add_residual", of=2), call("mul_residual", of=1)]
    again = task_of(twice, {"batch_size": 2, "dim": 4})
    lines = restated(trace_task(again).steps, again.spec, {"x": "x"})
    assert lines[2].startswith("add_residual of it with itself -> ")
    assert lines[3].startswith("mul_residual of it with line 1 -> ")


def test_a_foreign_task_is_refused():
    foreign = TASKS[0].model_copy(update={"origin": "kernelbench", "ops": ()})
    with pytest.raises(TaskError):
        next(first_turns.first_transcripts([foreign], "cuda", 1, 0))
    with pytest.raises(TaskError, match="no task"):
        next(first_turns.first_transcripts([], "cuda", 1, 0))
