"""Every attack that was tried on the judge: its verdict, its honest control's, and what KernelBench says of both."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.types import Device, Dialect, Kernel, Language, Outcome, Task, digest
from kevin.judge.benchmarks.attacks import Attack, c_abi_cpu, c_abi_cuda, modules, modules_cuda
from kevin.judge.benchmarks.kernel_answers import Answers, Asked, kernel_answers
from kevin.tasks.format import inspect_task


def attack_protocol(device: Device) -> JudgeProtocol:
    """No rules: attacks must fall to the measurement alone, unless one names rules of its own."""
    return JudgeProtocol(
        device=device,
        rules=(),
        run_timeout_s=3.0,
        build_timeout_s=10.0 if device == "cpu" else 60.0,
        memory_mb=1024,
        timing=TimingProtocol(min_rounds=3, max_rounds=6, budget_s=0.3),
    )


_ATTACKS: dict[Device, dict[Dialect, dict[str, Attack]]] = {
    "cpu": {"c_abi": c_abi_cpu.ATTACKS, "load_inline": modules.ATTACKS | modules.CPU_ONLY},
    "cuda": {
        "c_abi": c_abi_cuda.ATTACKS,
        "load_inline": modules.ATTACKS | modules_cuda.ATTACKS | modules_cuda.PROVEN,
    },
}


@dataclass(frozen=True)
class Tried:
    """An attack, and its honest control, for one task in one dialect and language."""

    name: str
    attack: Attack
    task: Task
    dialect: Dialect
    language: Language

    def asked(self, source: str) -> Asked:
        kernel = Kernel(dialect=self.dialect, language=self.language, source=source)
        return Asked(task=self.task, kernel=kernel, rules=self.attack.rules)


def all_tried(device: Device) -> list[Tried]:
    """Every attack that runs on a device, in order."""

    @functools.cache
    def task(reference: str) -> Task:
        key, spec = f"attack_{digest('task', reference)[:8]}", inspect_task(reference, "attack")
        return Task(id=key, level=1, name=key, source=reference, origin="user", spec=spec)

    language = attack_protocol(device).language
    return [
        Tried(name, attack, task(attack.reference), dialect, language)
        for dialect, attacks in _ATTACKS[device].items()
        for name, attack in attacks.items()
    ]


def attack_rows(
    tried: Sequence[Tried], protocol: JudgeProtocol, store: Path, *, checkout: Path | None = None
) -> list[dict[str, Any]]:
    """A row for each attack; arguments and errors as of `kernel_answers`."""
    asked = [t.asked(source) for t in tried for source in (t.attack.source, t.attack.control)]
    answers = kernel_answers(asked, protocol, store, checkout=checkout, what="attacks")
    return [_row(*each) for each in zip(tried, answers[::2], answers[1::2], strict=True)]


def _row(t: Tried, hostile: Answers, honest: Answers) -> dict[str, Any]:
    return {
        "attack": t.name,
        "dialect": t.dialect,
        "language": t.language,
        "tries": t.attack.tries,
        "rules": " ".join(t.attack.rules),
        **hostile.ours(),
        "as_expected": t.attack.may_get(hostile.verdict.outcome, hostile.verdict.reason),
        "control_outcome": str(honest.verdict.outcome),
        "control_speedup": honest.verdict.speedup,
        **hostile.kernelbench(),
        **honest.kernelbench("control_"),
    }


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the table says, in lines."""
    refused = [r for r in rows if r["outcome"] != Outcome.CORRECT]
    paid = [r for r in refused if r["kernelbench"] == "passed"]
    lines = [
        f"{len(refused)} of {len(rows)} attacks earn nothing; the others are harmless: correct, and timed as such",
        f"{sum(r['control_outcome'] == Outcome.CORRECT for r in rows)} of {len(rows)} honest controls are correct",
        f"of those that earn nothing here KernelBench would pay {len(paid)}: "
        + (", ".join(f"{r['attack']} in {r['dialect']}" for r in paid) or "none"),
    ]
    lines += [f"not as expected: {r['attack']}: {r['outcome']}, {r['reason']}" for r in rows if not r["as_expected"]]
    return lines
