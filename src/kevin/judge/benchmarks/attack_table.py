"""Every attack that was tried on the judge: its verdict, what its honest control gets, and what KernelBench says of it.

The latter is `kevin.judge.benchmarks.unguarded`, or, for modules on a GPU, the harness of a checkout itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kevin.core.files import append_line, write_csv, write_text
from kevin.core.progress import Progress, progress
from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.provenance import device_name
from kevin.core.scratch import scratch_folder
from kevin.core.texts import split_lines, strict_json
from kevin.core.types import Device, Frozen, Kernel, Outcome, Task, Verdict, digest
from kevin.judge.benchmarks.attacks import Attack, Suite, suites
from kevin.judge.benchmarks.throughput import KernelBenchHarness, Result
from kevin.judge.benchmarks.unguarded import Unguarded, UnguardedStore, measure_unguarded
from kevin.judge.device.judging import Judging
from kevin.judge.evaluate import judge_on
from kevin.judge.store import VerdictStore, verdict_key
from kevin.tasks.format import inspect_task

_HARNESS_TIMEOUT_S = 120.0
RESTATED, HARNESS = "restated", "harness"
"""Who spoke for KernelBench."""


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


class Answers(Frozen):
    """On one kernel; ``harness`` is absent where it was not asked, None where it did not answer."""

    verdict: Verdict
    restated: Unguarded | None
    asked_harness: bool = False
    harness: dict[str, Any] | None = None

    def kernelbench(self, prefix: str = "") -> dict[str, Any]:
        """What KernelBench says of it, as columns."""
        speedup: float | None = None
        said, by = None, RESTATED
        if self.asked_harness:
            by, said = HARNESS, "no answer"
            if self.harness is not None:
                said = "passed" if self.harness["correct"] else "failed"
                if times := list(zip(self.harness["reference_us"], self.harness["kernel_us"], strict=True)):
                    speedup = times[0][0] / times[0][1]
        elif self.restated is not None:
            said, speedup = "passed" if self.restated.passed else "failed", self.restated.speedup
        return {f"{prefix}kernelbench": said, f"{prefix}kernelbench_speedup": speedup, f"{prefix}kernelbench_by": by}


def attack_rows(
    tried: Sequence[Tried],
    open_judging: Callable[[], Judging],
    protocol: JudgeProtocol,
    store: Path,
    *,
    checkout: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """A row for each attack. What ``store`` holds of an earlier run is not judged again.

    Args:
        open_judging: opens the device of ``protocol``, once, when there is something to judge.
        store: folder of verdicts, and of what KernelBench says.
        checkout: of KernelBench, whose own harness is asked about modules on a GPU.

    Raises:
        HarnessError: a kernel without a verdict; start again, what was judged is kept.
    """
    pairs = {_id(pair): pair for t in tried for pair in (t.hostile, t.honest)}
    verdicts = _verdicts(tried, open_judging, protocol, VerdictStore(store))
    bar: Progress[Any] = progress(len(pairs), "KernelBench's check and clock", "kernels")
    with bar:
        measured = measure_unguarded(
            list(pairs.values()),
            open_judging,
            device_name(protocol.device),
            protocol,
            UnguardedStore(store / "unguarded.jsonl"),
            found=lambda i, result: bar.update(),
        )
    restated = {key: m if isinstance(m, Unguarded) else None for key, m in zip(pairs, measured, strict=True)}
    asked = {key: pair for key, pair in pairs.items() if pair[1].dialect == "load_inline"} if checkout else {}
    harness = _ask_harness(asked, checkout, store / "kernelbench.jsonl") if checkout else {}

    def answers(pair: tuple[Task, Kernel], rules: Sequence[str]) -> Answers:
        key = _id(pair)
        return Answers(
            verdict=verdicts[key, tuple(rules)],
            restated=restated[key],
            asked_harness=key in asked,
            harness=harness.get(key),
        )

    for t in tried:
        yield _row(t, answers(t.hostile, t.attack.rules), answers(t.honest, t.attack.rules))


def _id(pair: tuple[Task, Kernel]) -> str:
    return digest("attack", pair[0].digest, pair[1].digest)


def _verdicts(
    tried: Sequence[Tried], open_judging: Callable[[], Judging], protocol: JudgeProtocol, store: VerdictStore
) -> dict[tuple[str, tuple[str, ...]], Verdict]:
    found: dict[tuple[str, tuple[str, ...]], Verdict] = {}
    name, cores = device_name(protocol.device), os.sched_getaffinity(0)
    bar: Progress[Any] = progress(len(tried), "attacks", "attacks")
    try:
        with bar, scratch_folder("kevin-attacks-") as scratch:
            for t in tried:
                own = protocol.model_copy(update={"rules": t.attack.rules})
                for task, kernel in (t.hostile, t.honest):
                    key = verdict_key(task, kernel, own, name)
                    verdict = store.get(key)
                    if verdict is None:
                        verdict = judge_on(open_judging(), task, kernel, own, scratch)
                        store.put(verdict)
                    found[_id((task, kernel)), t.attack.rules] = verdict
                bar.update()
    finally:
        os.sched_setaffinity(0, cores)
    return found


def _ask_harness(asked: dict[str, tuple[Task, Kernel]], checkout: Path, path: Path) -> dict[str, Result]:
    """Its answers, also those of an earlier run."""
    lines = [json.loads(line) for line in split_lines(path.read_text())] if path.exists() else []
    origin = checkout.resolve().name
    known: dict[str, Result] = {line["id"]: line["result"] for line in lines if line["checkout"] == origin}
    todo = [key for key in asked if key not in known]

    def keep(i: int, result: Result) -> None:
        known[todo[i]] = result
        append_line(path, strict_json({"id": todo[i], "checkout": origin, "result": result}))

    if todo:
        with scratch_folder("kevin-kernelbench-") as scratch:
            pairs = [asked[key] for key in todo]
            KernelBenchHarness(pairs, checkout, scratch, found=keep, timeout_s=_HARNESS_TIMEOUT_S).time(len(pairs))
    return known


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


def write_attacks(out: Path, rows: Sequence[dict[str, Any]], provenance: dict[str, Any]) -> list[Path]:
    """``attacks.csv``, ``attacks.md``, ``attacks.provenance.json`` in the folder ``out``; returns their paths."""
    paths = [out / f"attacks.{ending}" for ending in ("csv", "md", "provenance.json")]
    write_csv(paths[0], pd.DataFrame(rows))
    write_text(paths[1], markdown(rows, str(provenance["device_name"])))
    write_text(paths[2], strict_json(provenance, indent=1, sort_keys=True) + "\n")
    return paths


_HEAD = ("attack", "what it tries", "verdict", "rules it also breaks", "honest control", "KernelBench", "its control")


def markdown(rows: Sequence[dict[str, Any]], device: str) -> str:
    """A table for people: a section for each dialect and language."""
    by = sorted({str(row["kernelbench_by"]) for row in rows})
    says = {
        RESTATED: "its check and clock as this judge restates them",
        HARNESS: "its own harness (modules)",
    }
    text = (
        f"Attacks on the judge, on {device}. Beside each verdict: rules that it breaks and that were not enforced, an "
        f"honest kernel for the same reference, and what KernelBench says of both, by "
        f"{' and '.join(says[who] for who in by)}; times are speedups over eager PyTorch.\n"
    )
    kinds = list(dict.fromkeys((str(r["dialect"]), str(r["language"])) for r in rows))
    for kind in kinds:
        text += f"\n## {kind[0]}, {kind[1]}\n\n| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}\n"
        for r in rows:
            if (r["dialect"], r["language"]) == kind:
                text += f"| {' | '.join(_cells(r))} |\n"
    return text


def _cells(r: dict[str, Any]) -> list[str]:
    found = str(r["outcome"]) + (f": {r['reason']}" if r["reason"] else _times(r["speedup"]))
    if r["rules"]:
        found += f" (rule {r['rules']})"
    flags = [flag for flag in str(r["flags"]).split() if flag not in str(r["rules"]).split()]
    return [
        str(r["attack"]),
        str(r["tries"]),
        found,
        ", ".join(flags) or "–",
        f"{r['control_outcome']}{_times(r['control_speedup'])}",
        f"{r['kernelbench'] or 'not measured'}{_times(r['kernelbench_speedup'])}",
        f"{r['control_kernelbench'] or 'not measured'}{_times(r['control_kernelbench_speedup'])}",
    ]


def _times(speedup: float | None) -> str:
    return "" if speedup is None else f", {speedup:.3g}x"


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
