"""What tests of a judging device share: a protocol whose timing is short, and tasks that add a number."""

from __future__ import annotations

import time
from collections.abc import Callable

from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.types import Task
from kevin.tasks.format import inspect_task

PROTOCOL = JudgeProtocol(rules=(), timing=TimingProtocol(min_rounds=3, max_rounds=3, budget_s=0.05, warmup_s=0))
SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + {added}
def get_inputs():
    return [torch.randn({size})]
def get_init_inputs():
    return []
"""


def adding_task(added: int, size: int) -> Task:
    """Adds ``added`` to each of ``size`` elements."""
    name, source = f"add{added}", SOURCE.format(added=added, size=size)
    return Task(id=name, level=1, name=name, source=source, origin="user", spec=inspect_task(source, name))


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Raises AssertionError where it does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
