"""A task's module runs with the flags of PyTorch that it is meant to, whatever they were left at."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task
from kevin.judge.correctness.reference import ReferenceTask

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
