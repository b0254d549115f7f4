"""How fast the judge is: kernels a minute cold and warm, where the time goes, how busy the GPU is.

With a checkout of KernelBench the same kernels go through its own harness too.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import HarnessError
from kevin.core.files import write_text
from kevin.core.protocol import JudgeProtocol
from kevin.core.scratch import scratch_folder
from kevin.core.texts import strict_json
from kevin.core.types import Outcome, Verdict
from kevin.judge.benchmarks.harness import KernelBenchHarness, Pair, Result, busy_samples, run_summary
from kevin.judge.compile.inline import make_precompiled, precompiled_headers
from kevin.judge.pool.judge_pool import JudgePool
from kevin.judge.sandbox.isolation import detect_isolation

log = logging.getLogger(__name__)

_AGREE = 0.05
"""Of a speedup: how far two measurements of it may differ and be called the same."""


def _counted(results: Sequence[Verdict | HarnessError]) -> dict[str, Any]:
    verdicts = [v for v in results if isinstance(v, Verdict)]
    stages: Counter[str] = Counter()
    for v in verdicts:
        stages.update(v.seconds)
    return {
        "harness_failures": len(results) - len(verdicts),
        "outcomes": dict(Counter(str(v.outcome) for v in verdicts)),
        "stage_seconds": dict(stages),
    }


def bench_judge(
    names: Sequence[str],
    pairs: Sequence[Pair],
    protocol: JudgeProtocol,
    pool: JudgePoolConfig,
    out: Path,
    record: Mapping[str, Any],
    *,
    copies: int = 4,
    checkout: Path | None = None,
    num_timed: int = 16,
    check_others: bool = True,
) -> dict[str, Any]:
    """Judge ``pairs`` cold, then as an RL group would send them (``copies`` of each, store warm).

    Worker start-up is part of the cold run. Precompiled headers, which a toolchain needs once, are made before it.
    ``judge_bench.json``, which is returned, and ``judge_bench.jsonl``, a line a kernel, are written with every result.

    Args:
        record: where it comes from.
        checkout: of KernelBench, whose harness times ``num_timed`` of them; ``check_others``: and checks the others.
    """
    summary: dict[str, Any] = {"provenance": record, "runs": []}
    ours: dict[int, Verdict | HarnessError] = {}
    theirs: dict[int, Result] = {}

    def write() -> None:
        kernels = compare_verdicts(names, ours, theirs)
        if theirs:
            summary["parity"] = parity(kernels)
        write_text(out / "judge_bench.json", strict_json(summary, indent=1) + "\n")
        write_text(out / "judge_bench.jsonl", "".join(strict_json(kernel) + "\n" for kernel in kernels))

    def found(i: int, result: Verdict | HarnessError) -> None:
        ours[i] = result
        write()

    def ended(run: dict[str, Any]) -> None:
        summary["runs"].append(run)
        write()

    with scratch_folder("kevin-bench-") as scratch:
        harness = None
        if checkout is not None:
            harness = KernelBenchHarness(pairs, checkout, scratch / "kernelbench", theirs, lambda i, result: write())
        _make_headers(pairs)
        start = time.perf_counter()
        with JudgePool(protocol, scratch / "ours" / "store", pool) as judge:
            with busy_samples() as busy:
                verdicts = judge.judge(pairs, found)
                seconds = time.perf_counter() - start
            ended(run_summary("cold", len(verdicts), seconds, busy, **_counted(verdicts)))
            start = time.perf_counter()
            again = judge.judge([pair for pair in pairs for _ in range(copies)])
            ended(run_summary(f"warm x{copies}", len(again), time.perf_counter() - start, **_counted(again)))
        if harness is not None:
            ended(harness.time(num_timed))
            if check_others:
                harness.check_others()
    return summary


def _make_headers(pairs: Sequence[Pair]) -> None:
    """What a toolchain needs once is no part of any run."""
    uses_headers = any(kernel.dialect == "load_inline" and kernel.language == "cuda" for _, kernel in pairs)
    if uses_headers and precompiled_headers(detect_isolation()) is None:
        start = time.perf_counter()
        make_precompiled(detect_isolation())
        seconds = time.perf_counter() - start
        if precompiled_headers(detect_isolation()) is not None:
            log.warning("precompiled headers were made first, in %.0f s, once for this toolchain", seconds)


def compare_verdicts(
    names: Sequence[str],
    ours: Mapping[int, Verdict | HarnessError],
    theirs: Mapping[int, Result],
) -> list[dict[str, Any]]:
    """One record a kernel of ``ours``: its outcome, reason and times, and KernelBench's answer where there is one.

    ``agrees``: whether our own run of KernelBench's check (`Verdict.details`) came out as theirs. ``differs``: why our
    verdict is another than theirs; absent where it is the same. A kernel that either side could not judge has neither.
    ``speedup_ratio``: our speedup over KernelBench's first; absent where there is none of one of them.
    """
    return [
        {"id": names[i], **_our_record(ours[i])} | (_beside(ours[i], theirs[i]) if i in theirs else {})
        for i in sorted(ours)
    ]


def _our_record(verdict: Verdict | HarnessError) -> dict[str, Any]:
    if not isinstance(verdict, Verdict):
        return {"outcome": None, "harness_failure": str(verdict)[:300]}
    return {
        "outcome": str(verdict.outcome),
        "reason": verdict.reason,
        "message": verdict.message[:300],
        "kernelbench_check": verdict.details.get("kernelbench_check"),
        "speedup": verdict.speedup,
        "kernel_us": verdict.timing.median_us if verdict.timing else None,
        "kernel_iqr_us": verdict.timing.iqr_us if verdict.timing else None,
        "reference_us": verdict.reference_timing.median_us if verdict.reference_timing else None,
        "own_kernel_share": verdict.details.get("own_kernel_share"),
        "seconds": verdict.seconds,
        "judged_alone": verdict.details.get("judged_alone"),
    }


def _beside(verdict: Verdict | HarnessError, theirs: Result) -> dict[str, Any]:
    record: dict[str, Any] = {"kernelbench": theirs}
    if theirs is None or not isinstance(verdict, Verdict):
        return record
    check, is_correct = verdict.details.get("kernelbench_check"), bool(theirs["correct"])
    record["agrees"] = (check == "passed") == is_correct
    if (verdict.outcome is Outcome.CORRECT) != is_correct:
        record["differs"] = verdict.reason or ("tolerance_not_scaled" if check == "failed" else "unexplained")
    speedups = [r / k for r, k in zip(theirs["reference_us"], theirs["kernel_us"], strict=True)]
    if speedups and verdict.speedup:
        record["speedup_ratio"] = verdict.speedup / speedups[0]
        record["kernelbench_repeat_ratio"] = speedups[-1] / speedups[0]
    return record


def parity(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of what `compare_verdicts` found: how many verdicts agree, and how many speedups.

    Returns:
        ``compared``, ``agree`` and the ids in ``disagree`` with our reason; ``differs``: how often our own verdict is
        another, by reason; ``steady``: kernels that both call correct and timed, whose speedup KernelBench's harness
        finds again within 5 %; ``within``: of those, where ours is as near to its first.
    """
    compared = [r for r in records if "agrees" in r]
    ratios = [r for r in records if "speedup_ratio" in r and len(r["kernelbench"]["kernel_us"]) == 2]
    steady = [r for r in ratios if abs(r["kernelbench_repeat_ratio"] - 1) <= _AGREE]
    return {
        "compared": len(compared),
        "agree": sum(r["agrees"] for r in compared),
        "disagree": {r["id"]: r["reason"] for r in compared if not r["agrees"]},
        "differs": dict(Counter(r["differs"] for r in compared if "differs" in r)),
        "steady": len(steady),
        "within": sum(abs(r["speedup_ratio"] - 1) <= _AGREE for r in steady),
    }


def told(summary: Mapping[str, Any]) -> Iterator[str]:
    """What `bench_judge` found, in lines."""
    for row in summary["runs"]:
        busy = f", GPU busy {row['gpu_busy_share']:.0%}" if row["gpu_busy_share"] is not None else ""
        pace = f"{row['seconds']:.1f} s, {row['kernels_per_minute']:.1f} a minute"
        yield f"{row['run']}: {row['kernels']} kernels in {pace}{busy}"
        yield "  " + ", ".join(f"{n} {name}" for name, n in row["outcomes"].items())
        yield "  " + ", ".join(f"{name} {s:.1f} s" for name, s in row["stage_seconds"].items())
    if found := summary.get("parity"):
        yield f"Its check comes out the same here for {found['agree']} of {found['compared']} kernels;"
        yield f"of {found['steady']} speedups that it finds again within 5 %, ours are for {found['within']}"
        yield from (f"  not the same: {name}, here {reason or 'correct'}" for name, reason in found["disagree"].items())
        differs = ", ".join(f"{n} {reason}" for reason, n in found["differs"].items())
        yield f"Our own verdict is another than its for {sum(found['differs'].values())}: {differs or 'none'}"
