"""What this judge and KernelBench say of given kernels, asked once and kept.

The latter is `kevin.judge.benchmarks.unguarded`, or, for modules on a GPU, the harness of a checkout itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import HarnessError
from kevin.core.files import append_line, parse_object, read_lines
from kevin.core.progress import Progress
from kevin.core.protocol import JudgeProtocol, Rule
from kevin.core.scratch import scratch_folder
from kevin.core.texts import strict_json
from kevin.core.types import Frozen, Kernel, Task, Verdict, digest
from kevin.judge.benchmarks.harness import KernelBenchHarness, Result
from kevin.judge.benchmarks.unguarded import Unguarded, measure_unguarded
from kevin.judge.evaluate import open_device
from kevin.judge.pool.judge_pool import JudgePool

log = logging.getLogger(__name__)

_HARNESS_TIMEOUT_S = 120.0


class Asked(Frozen):
    """A kernel, and the rules that are enforced on it."""

    task: Task
    kernel: Kernel
    rules: tuple[Rule, ...] = ()

    @property
    def pair(self) -> tuple[Task, Kernel]:
        return self.task, self.kernel

    @property
    def id(self) -> str:
        """Whatever the rules."""
        return digest("attack", self.task.digest, self.kernel.digest)


class Answers(Frozen):
    """On one kernel; ``harness`` is absent where it was not asked, None where it did not answer."""

    verdict: Verdict
    restated: Unguarded | None
    asked_harness: bool = False
    harness: dict[str, Any] | None = None

    def ours(self) -> dict[str, Any]:
        """The verdict, as columns."""
        v = self.verdict
        return {"outcome": str(v.outcome), "reason": v.reason, "flags": " ".join(v.flags), "speedup": v.speedup}

    def kernelbench(self, prefix: str = "") -> dict[str, Any]:
        """What KernelBench says of it, and who spoke for it, as columns."""
        speedup: float | None = None
        said, by = None, "restated"
        if self.asked_harness:
            by, said = "harness", "no answer"
            if self.harness is not None:
                said = "passed" if self.harness["correct"] else "failed"
                if times := list(zip(self.harness["reference_us"], self.harness["kernel_us"], strict=True)):
                    speedup = times[0][0] / times[0][1]
        elif self.restated is not None:
            said, speedup = "passed" if self.restated.passed else "failed", self.restated.speedup
        return {f"{prefix}kernelbench": said, f"{prefix}kernelbench_speedup": speedup, f"{prefix}kernelbench_by": by}


def judged(
    asked: Sequence[Asked], protocol: JudgeProtocol, store: Path, pool: JudgePoolConfig, what: str = "kernels"
) -> list[Verdict | HarnessError]:
    """In the order of ``asked``, each with its own rules; ``what`` they are, on the progress bar."""
    found: dict[int, Verdict | HarnessError] = {}
    with Progress(len(asked), what, what) as bar:
        for rules in dict.fromkeys(a.rules for a in asked):
            chosen = [i for i, a in enumerate(asked) if a.rules == rules]
            with JudgePool(protocol.model_copy(update={"rules": rules}), store, pool) as judge:
                verdicts = judge.judge([asked[i].pair for i in chosen], lambda i, verdict: bar.update())
            found.update(zip(chosen, verdicts, strict=True))
    for i, verdict in found.items():
        if isinstance(verdict, HarnessError):
            log.warning("%s: not judged: %s", asked[i].task.id, verdict)
    return [found[i] for i in range(len(asked))]


def kernel_answers(
    asked: Sequence[Asked],
    protocol: JudgeProtocol,
    store: Path,
    *,
    pool: JudgePoolConfig | None = None,
    checkout: Path | None = None,
    what: str = "kernels",
) -> list[Answers]:
    """In the order of ``asked``. What ``store`` holds of an earlier run is not judged again.

    Args:
        store: folder of verdicts, and of what KernelBench says.
        checkout: of KernelBench, whose own harness is asked about modules on a GPU.
        what: the kernels are, on the progress bar.

    Raises:
        HarnessError: a kernel without a verdict; start again, what was judged is kept.
    """
    verdicts = []
    for verdict in judged(asked, protocol, store, pool or JudgePoolConfig(), what):
        if isinstance(verdict, HarnessError):
            raise verdict
        verdicts.append(verdict)
    pairs = {a.id: a.pair for a in asked}
    clock = "KernelBench's check and clock"
    measured = measure_unguarded(list(pairs.values()), lambda: open_device(protocol), protocol, store, clock)
    restated = {key: m if isinstance(m, Unguarded) else None for key, m in zip(pairs, measured, strict=True)}
    modules = {key: pair for key, pair in pairs.items() if pair[1].dialect == "load_inline"} if checkout else {}
    harness = _ask_harness(modules, checkout, store / "kernelbench.jsonl") if checkout else {}
    return [
        Answers(
            verdict=verdict,
            restated=restated[a.id],
            asked_harness=a.id in modules,
            harness=harness.get(a.id),
        )
        for a, verdict in zip(asked, verdicts, strict=True)
    ]


def _ask_harness(asked: dict[str, tuple[Task, Kernel]], checkout: Path, path: Path) -> dict[str, Result]:
    """Its answers, also those of an earlier run."""
    origin = checkout.resolve().name
    kept = read_lines(path, parse_object, "delete that line, its kernel is asked about again")
    known: dict[str, Result] = {r["id"]: r["result"] for r in kept if r.get("checkout") == origin}
    todo = [key for key in asked if key not in known]

    def keep(i: int, result: Result) -> None:
        known[todo[i]] = result
        append_line(path, strict_json({"id": todo[i], "checkout": origin, "result": result}))

    if todo:
        with scratch_folder("kevin-kernelbench-") as scratch:
            pairs = [asked[key] for key in todo]
            KernelBenchHarness(pairs, checkout, scratch, {}, keep, timeout_s=_HARNESS_TIMEOUT_S).time(len(pairs))
    return known
