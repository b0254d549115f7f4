"""Every attack that was tried on the judge: its verdict, its honest control's, and what KernelBench says of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.types import Device, Frozen, Kernel, Outcome, Task, digest
from kevin.judge.benchmarks.attacks import Attack, Suite, c_abi_cpu, c_abi_cuda, modules, modules_cuda
from kevin.judge.benchmarks.kernel_answers import Answers, Asked, kernel_answers
from kevin.judge.device.judging import Judging
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


def suites(device: Device) -> tuple[Suite, ...]:
    """Those that run on a device."""
    if device == "cpu":
        return (
            Suite(name="c_abi_cpu", dialect="c_abi", language="cpp", attacks=c_abi_cpu.ATTACKS | c_abi_cpu.SINGLE),
            Suite(
                name="modules_cpu",
                dialect="load_inline",
                language="cpp",
                attacks=modules.ATTACKS | modules.SINGLE | modules.CPU_ONLY,
            ),
        )
    return (
        Suite(
            name="c_abi_cuda",
            dialect="c_abi",
            language="cuda",
            attacks=c_abi_cuda.ATTACKS | _named("a stream: ", c_abi_cuda.STREAMS) | c_abi_cuda.SINGLE,
        ),
        Suite(
            name="modules_cuda",
            dialect="load_inline",
            language="cuda",
            attacks=modules.ATTACKS
            | modules.SINGLE
            | modules_cuda.ATTACKS
            | _named("a stream: ", modules_cuda.STREAMS)
            | modules_cuda.SINGLE,
        ),
    )


def _named(kind: str, attacks: dict[str, Attack]) -> dict[str, Attack]:
    """Under names that say of what kind they are; their tests have a name of their own for that."""
    return {f"{kind}{name}": attack for name, attack in attacks.items()}


class Tried(Frozen):
    """An attack of a suite, and its honest control."""

    name: str
    suite: Suite
    attack: Attack
    task: Task

    @property
    def hostile(self) -> tuple[Task, Kernel]:
        return self.task, self.suite.kernel(self.attack.source)

    @property
    def honest(self) -> tuple[Task, Kernel]:
        return self.task, self.suite.kernel(self.attack.control)


def all_tried(device: Device) -> list[Tried]:
    """Every attack that runs on a device, in order."""
    tasks: dict[str, Task] = {}
    found = []
    for suite in suites(device):
        for name, attack in suite.attacks.items():
            if attack.reference not in tasks:
                spec = inspect_task(attack.reference, "attack")
                key = f"attack_{digest('task', attack.reference)[:8]}"
                tasks[attack.reference] = Task(
                    id=key, level=1, name=key, source=attack.reference, origin="user", spec=spec
                )
            found.append(Tried(name=name, suite=suite, attack=attack, task=tasks[attack.reference]))
    return found


def attack_rows(
    tried: Sequence[Tried],
    open_judging: Callable[[], Judging],
    protocol: JudgeProtocol,
    store: Path,
    *,
    checkout: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """A row for each attack; arguments and errors as of `kernel_answers`."""
    pairs = [
        Asked(task=task, kernel=kernel, rules=t.attack.rules) for t in tried for task, kernel in (t.hostile, t.honest)
    ]
    answers = kernel_answers(pairs, open_judging, protocol, store, checkout=checkout, what="attacks")
    for t, hostile, honest in zip(tried, answers[::2], answers[1::2], strict=True):
        yield _row(t, hostile, honest)


def _row(t: Tried, hostile: Answers, honest: Answers) -> dict[str, Any]:
    verdict = hostile.verdict
    return {
        "attack": t.name,
        "dialect": t.suite.dialect,
        "language": t.suite.language,
        "tries": t.attack.tries,
        "rules": " ".join(t.attack.rules),
        "outcome": str(verdict.outcome),
        "reason": verdict.reason,
        "flags": " ".join(verdict.flags),
        "speedup": verdict.speedup,
        "as_expected": verdict.outcome in t.attack.outcomes
        and (not t.attack.reasons or verdict.reason in t.attack.reasons),
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
