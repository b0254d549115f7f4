"""What tests of a judging device share: a protocol whose timing is short, and tasks that add a number."""

from __future__ import annotations

from core_fixtures import make_module

from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.types import Task
from kevin.tasks.format import inspect_task

PROTOCOL = JudgeProtocol(rules=(), timing=TimingProtocol(min_rounds=3, max_rounds=3, budget_s=0.05, warmup_s=0))


def adding_task(added: int, size: int) -> Task:
    """Adds ``added`` to each of ``size`` elements."""
    name, source = f"add{added}", make_module(f"return x + {added}", f"torch.randn({size})")
    return Task(id=name, level=1, name=name, source=source, origin="user", spec=inspect_task(source, name))
