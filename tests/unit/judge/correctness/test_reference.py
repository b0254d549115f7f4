"""What a task's own module says is right, and what its secret inputs are, whatever flags of PyTorch were left at."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from kevin.core.errors import TaskError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task
from kevin.judge.correctness.compare import Slack, compare
from kevin.judge.correctness.reference import ReferenceTask

PROTOCOL = JudgeProtocol()
SOURCE = """
import torch
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = False
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(8)]
def get_init_inputs():
    return []
"""
SQUARE = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x, y):
        return x @ y
def get_inputs():
    a = torch.randn(64, 64)
    return [torch.randn(64, 64), a + a.T]
def get_init_inputs():
    return []
"""


def _flags() -> tuple[bool, bool, bool]:
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.benchmark


@pytest.mark.parametrize(("tf32", "users"), [("torch_default", (True, False, False)), ("off", (False, False, False))])
def test_eager_is_timed_as_a_users_process_runs_it(
    monkeypatch: pytest.MonkeyPatch, tf32: str, users: tuple[bool, bool, bool]
) -> None:
    """Flags are the whole process's: one that a module sets, or that something else left so, was in others' times."""
    for owner, name in ((torch.backends.cudnn, "allow_tf32"), (torch.backends.cudnn, "benchmark")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    task = Task(id="test", level=1, name="test", source=SOURCE, origin="user")
    reference = ReferenceTask(task, JudgeProtocol(tf32=tf32))  # type: ignore[arg-type]
    assert _flags() == (False, False, True), "what the module has set"
    seen: list[tuple[bool, bool, bool]] = []
    forward = reference.model.forward

    def watched(x: torch.Tensor) -> Any:
        seen.append(_flags())
        return forward(x)

    monkeypatch.setattr(reference.model, "forward", watched)
    inputs = reference.trials[0].inputs
    _, kept = reference.run_timed(lambda call: call() or 1, inputs, [inputs], [0])  # type: ignore[func-returns-value]
    assert len(kept) == 1 and torch.equal(kept[0][0], inputs[0] + 1)
    reference.run_burst(inputs, 1)
    assert seen == [users] * 3
    list(reference._eager_outputs(inputs, []))
    reference.forward(inputs, [])
    assert seen[3:] == [users, (False, False, False)]
    assert _flags() == (False, False, True)


def test_the_tolerance_grows_by_what_default_flags_may_deviate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution in TF32, which cuDNN may choose only when it searches, is as right as the one that it chose."""
    source = SQUARE.replace("import torch\n", "import torch  # a convolution\n", 1)
    for text, slack in ((SQUARE, [Slack(0.5, 0.5)]), (source, [Slack(2.0, 2.0)])):
        reference = ReferenceTask(Task(id="test", level=1, name="test", source=text, origin="user"), PROTOCOL)
        images = torch.randn(2, 3, 4, 5)
        layouts: list[bool] = []

        def forward(inputs, parameters, flags=None, seen=layouts):  # type: ignore[no-untyped-def]
            seen.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
            with (flags or nullcontext)():
                return [torch.ones(2) + (0 if flags is None else 1.0 if torch.backends.cudnn.benchmark else 0.25)]

        monkeypatch.setattr(reference, "forward", forward)
        reference._widen = True
        trial = reference._trial([images, 3.0], [], is_kernelbenchs=True)
        assert (trial.outputs[0] == 1).all()
        assert trial.slack == [pytest.approx(s) for s in slack]
        searched = text is source
        assert [float(e[0][0]) for e in trial.eager_outputs or []] == ([1.25, 2.0] if searched else [1.25])
        assert layouts == ([False, False, True] if searched else [False, False])
        assert not torch.backends.cudnn.benchmark


def test_eager_is_asked_once_what_it_adds_to_the_tolerance_of_a_large_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a trial is made anew for every candidate, and searching for cuDNN's fastest algorithm takes seconds."""
    monkeypatch.setattr("kevin.judge.correctness.trials._KEPT_BYTES", 0)
    source = SQUARE.replace("import torch\n", "import torch  # a convolution\n", 1)
    task = Task(id="test", level=1, name="test", source=source, origin="user")
    reference = ReferenceTask(task, PROTOCOL)
    reference._widen, asked = True, []

    def eager(inputs, parameters):  # type: ignore[no-untyped-def]
        asked.append(1)
        yield reference.forward(inputs, parameters) if len(asked) > 1 else [torch.zeros(64, 64)]

    monkeypatch.setattr(reference, "_eager_outputs", eager)
    reference.trials._slacks.clear()
    first, again = reference.trials[1], reference.trials[1]
    assert len(asked) == 1
    assert again.slack == first.slack and again.slack[0].absolute > 1
    assert torch.equal(again.outputs[0], first.outputs[0])
    kept = ReferenceTask(task, PROTOCOL)
    assert reference.trials[2].slack != first.slack and len(asked) == 2, "each trial has its own"
    assert kept.trials[0].eager_outputs is not None


def test_a_reference_that_draws_random_numbers_is_as_right_as_it_is_again() -> None:
    """KernelBench's 2/66: dropout before a softmax of tiny values."""
    source = SQUARE.replace("return x @ y", "return torch.softmax(torch.nn.functional.dropout(x @ y, 0.2), -1)")
    source = source.replace("64, 64", "1024, 1024").replace("x @ y", "0.05 * x")
    reference = ReferenceTask(Task(id="test", level=1, name="test", source=source, origin="user"), PROTOCOL)
    reference._widen = True
    trial = reference._trial(reference.trials[0].inputs, [])
    expected, (slack,) = trial.outputs[0], trial.slack
    again = reference.forward(trial.inputs, [])[0]
    tolerance = {"atol": 1e-4, "rtol": 1e-4}
    assert not compare("out", again, expected, **tolerance).passed
    assert compare("out", again, expected, **tolerance, slack=slack).passed
    assert not compare("out", torch.zeros_like(again), expected, **tolerance, slack=slack).passed


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_reference_of_another_precision_is_refused_by_name(dtype: str) -> None:
    """Its model would be made in float32 and called with what its inputs are."""
    source = SQUARE.replace("return [torch.randn(64, 64),", f"return [torch.randn(64, 64, dtype=torch.{dtype}),")
    source = source.replace("x @ y", "x.float() @ y")
    with pytest.raises(TaskError, match=f"task test: x is {dtype}, .* judged in float32: make it float32"):
        ReferenceTask(Task(id="test", level=1, name="test", source=source, origin="user"), PROTOCOL)


def test_changes_of_the_inputs_do_not_add_up() -> None:
    task = Task(id="test", level=1, name="test", source=SQUARE, origin="user")
    reference = ReferenceTask(task, PROTOCOL)
    slots = [[x.clone() for x in reference.trials[0].inputs] for _ in range(2)]
    views = [[x.clone() for x in slot] for slot in slots]
    first, symmetric = reference.trials[0].inputs
    seen = set()
    for _ in range(50):
        for slot in range(2):
            reference.change_some(slots[slot], views[slot], reference.trials[0].inputs)
            assert all(torch.equal(x, view) for x, view in zip(slots[slot], views[slot], strict=True))
            x, y = slots[slot]
            changed = int((x != first).sum())
            assert 0 < changed <= first.numel() // 8 + 64
            assert torch.equal(y, y.mT)
            assert 0.6 < float(y.norm() / symmetric.norm()) < 1.6
            seen.add(x.numpy().tobytes())
    assert len(seen) == 100  # no call has inputs that were there before


INTEGERS = """
import torch
class Model(torch.nn.Module):
    def forward(self, ids, offsets, graph, kinds):
        return ids.float().sum(1) + offsets[:-1] + graph.sum(1) + kinds
def get_inputs():
    links = torch.randint(0, 2, (8, 8))
    return [torch.randint(0, 9999, (8, 5)), torch.arange(0, 45, 5), links + links.T, torch.randint(0, 9999, (8,))]
def get_init_inputs():
    return []
"""


def test_inputs_without_floating_point_numbers_are_put_in_another_order() -> None:
    reference = ReferenceTask(Task(id="test", level=1, name="test", source=INTEGERS, origin="user"), PROTOCOL)
    first = reference.trials[0].inputs
    own, views = [x.clone() for x in first], [x.clone() for x in first]
    seen = set()
    for _ in range(20):
        reference.change_some(own, views, first)
        assert all(torch.equal(x, view) for x, view in zip(own, views, strict=True))
        ids, offsets, graph, kinds = own
        assert torch.equal(offsets, first[1]) and torch.equal(graph, first[2])
        rows = {(*row, kind) for row, kind in zip(ids.tolist(), kinds.tolist(), strict=True)}
        assert rows == {(*row, kind) for row, kind in zip(first[0].tolist(), first[3].tolist(), strict=True)}, (
            "of one number"
        )
        seen.add(ids.numpy().tobytes())
    assert len(seen) > 15


def test_large_trials_are_made_again_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stays; of the others there is never more than one, and each candidate is given the same."""
    task = Task(id="test", level=1, name="test", source=SQUARE, origin="user")
    small = ReferenceTask(task, PROTOCOL)
    assert small.trials[2] is small.trials[2] and len(small.trials) == PROTOCOL.num_trials
    monkeypatch.setattr("kevin.judge.correctness.trials._KEPT_BYTES", 0)
    large = ReferenceTask(task, PROTOCOL)
    assert large.trials[0] is large.trials[0]
    for i in (1, 2):
        once, again = large.trials[i], large.trials[i]
        assert once is not again and not torch.equal(once.inputs[0], large.trials[0].inputs[0])
        for a, b in zip((*once.inputs, *once.outputs), (*again.inputs, *again.outputs), strict=True):
            assert torch.equal(a, b)
    with pytest.raises(IndexError):
        large.trials[PROTOCOL.num_trials]
