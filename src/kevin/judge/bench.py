"""How fast the judge is: kernels a minute cold and warm, where the time goes, how busy the GPU is.

With a checkout of KernelBench the same kernels go through its own harness too, as its scripts drive it: sources are
precompiled by a pool of processes into its build cache, then a fresh process a kernel evaluates on the device,
in rounds of as many kernels as there are cores: what a time limit leaves out was not compiled either.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kevin.core.config import JudgePoolConfig
from kevin.core.progress import Progress, progress
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.judge.pool import JudgePool

log = logging.getLogger(__name__)

Pair = tuple[Task, Kernel]

_KERNELBENCH = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
import torch
from kernelbench import eval as kb
job = json.load(open(sys.argv[2]))
os.makedirs(job["build"], exist_ok=True)
if job["stage"] == "compile":
    ok, out, err = kb.build_compile_cache(job["kernel"], verbose=False, build_dir=job["build"])
    print("RESULT " + json.dumps({"ok": bool(ok)}))
else:
    result, start = None, None
    for repeat in range(2):
        r = kb.eval_kernel_against_ref(
            original_model_src=job["reference"], custom_model_src=job["kernel"], measure_performance=True,
            num_correct_trials=1 if repeat else 5, num_perf_trials=100, build_dir=job["build"],
            device=torch.device("cuda:0"))
        start = start or time.perf_counter()
        if r is None:
            break
        if result is None:
            result = {"compiled": r.compiled, "correct": r.correctness, "kernel_us": [], "reference_us": []}
        if not r.correctness or r.runtime <= 0 or r.ref_runtime <= 0:
            break
        result["kernel_us"].append(1e3 * r.runtime)
        result["reference_us"].append(1e3 * r.ref_runtime)
    if result is not None:
        result["repeat_seconds"] = time.perf_counter() - start
    print("RESULT " + json.dumps(result))
"""
_AGREE = 0.05
"""Of a speedup: how far two measurements of it may differ and be called the same."""


class _BusyShare:
    """Mean GPU utilisation between start and stop, by nvidia-smi's own sampling; None without a GPU."""

    def __init__(self) -> None:
        self._samples: list[float] = []
        try:
            query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
            self._process = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            self._process = None  # type: ignore[assignment]
            return
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().isdigit():
                self._samples.append(float(line))

    def stop(self) -> float | None:
        if self._process is None:
            return None
        self._process.kill()
        self._process.wait()
        return sum(self._samples) / len(self._samples) / 100 if self._samples else None


def _summary(name: str, seconds: float, verdicts: Sequence[Any], busy: float | None) -> dict[str, Any]:
    found = [v for v in verdicts if isinstance(v, Verdict)]
    stages: Counter[str] = Counter()
    for v in found:
        stages.update(v.seconds)
    return {
        "run": name,
        "kernels": len(verdicts),
        "seconds": seconds,
        "kernels_per_minute": 60 * len(verdicts) / seconds,
        "harness_failures": len(verdicts) - len(found),
        "outcomes": dict(Counter(str(v.outcome) for v in found)),
        "stage_seconds": dict(stages),
        "gpu_busy_share": busy,
    }


def bench_judge(
    pairs: Sequence[Pair], protocol: JudgeProtocol, config: JudgePoolConfig, work: Path, *, copies: int = 4
) -> tuple[list[dict[str, Any]], list[Verdict | Exception]]:
    """Judge ``pairs`` cold, then as an RL group would send them (``copies`` of each, store warm).

    Returns:
        One summary a run, and the verdicts of the cold run in order. Worker start-up is part of the cold run.
    """
    busy = _BusyShare()
    start = time.perf_counter()
    with JudgePool(protocol, work / "store", config) as pool:
        verdicts = pool.judge(pairs)
        rows = [_summary("cold", time.perf_counter() - start, verdicts, busy.stop())]
        start = time.perf_counter()
        again = pool.judge([p for p in pairs for _ in range(copies)])
        rows.append(_summary(f"warm x{copies}", time.perf_counter() - start, again, None))
    return rows, list(verdicts)


def _kernelbench_job(checkout: Path, job: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(job, f)
        f.flush()
        argv = [sys.executable, "-c", _KERNELBENCH, str(checkout / "src"), f.name]
        try:
            run = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            return None
    if run.returncode != 0:
        log.warning("KernelBench's harness failed: %s", run.stderr.strip()[-600:])
    lines = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(lines[-1].removeprefix("RESULT ")) if lines else None


def bench_kernelbench(
    pairs: Sequence[Pair], checkout: Path, work: Path, *, timeout_s: float = 300.0, budget_s: float = math.inf
) -> tuple[dict[str, Any], list[dict[str, Any] | None]]:
    """The same kernels through KernelBench's harness: compile pool of one process a core, then one process a kernel.

    Correct ones are timed once more, to know how well it agrees with itself; that is not counted in its seconds.

    Args:
        budget_s: no further round of kernels begins once so much time has passed.

    Returns:
        A summary of the run, and its answers in order: fewer than ``pairs`` where the time did not do for all.
    """
    num_cores = len(os.sched_getaffinity(0))
    results: list[dict[str, Any] | None] = []
    compile_s = evaluate_s = 0.0

    def job(i: int, stage: str) -> dict[str, Any]:
        task, kernel = pairs[i]
        return {"stage": stage, "reference": task.source, "kernel": kernel.source, "build": str(work / f"kb-{i}")}

    busy = _BusyShare()
    begin = time.perf_counter()
    bar: Progress[Any] = progress(len(pairs), "KernelBench's harness", "kernels")
    with bar:
        for first in range(0, len(pairs), num_cores):
            start = time.perf_counter()
            if results and start - begin > budget_s:
                break
            chosen = range(first, min(first + num_cores, len(pairs)))
            with ThreadPoolExecutor(num_cores) as executor:
                list(executor.map(lambda i: _kernelbench_job(checkout, job(i, "compile"), timeout_s), chosen))
            compiled = time.perf_counter()
            compile_s += compiled - start
            for i in chosen:
                results.append(_kernelbench_job(checkout, job(i, "evaluate"), timeout_s))
                bar.update()
            evaluate_s += time.perf_counter() - compiled
    evaluate_s -= sum(r["repeat_seconds"] for r in results if r)
    seconds = compile_s + evaluate_s
    correct = sum(bool(r and r.get("correct")) for r in results)
    row = {
        "run": "KernelBench's own harness",
        "kernels": len(results),
        "seconds": seconds,
        "kernels_per_minute": 60 * len(results) / seconds,
        "harness_failures": sum(r is None for r in results),
        "outcomes": {str(Outcome.CORRECT): correct, "other": len(results) - correct},
        "stage_seconds": {"compile pool": compile_s, "evaluate": evaluate_s},
        "gpu_busy_share": busy.stop(),
    }
    return row, results


def compare_verdicts(
    names: Sequence[str], ours: Sequence[Verdict | Exception], theirs: Sequence[dict[str, Any] | None]
) -> list[dict[str, Any]]:
    """One record a kernel: our outcome, reason and times, KernelBench's beside them, and whether the two agree.

    ``theirs`` may be shorter than ``ours``. A kernel that either side could not judge has no agreement.
    """
    records = []
    for i, (name, verdict) in enumerate(zip(names, ours, strict=True)):
        record: dict[str, Any] = {"id": name, "outcome": None}
        if isinstance(verdict, Verdict):
            record |= {
                "outcome": str(verdict.outcome),
                "reason": verdict.reason,
                "message": verdict.message[:300],
                "speedup": verdict.speedup,
                "kernel_us": verdict.timing.median_us if verdict.timing else None,
                "kernel_iqr_us": verdict.timing.iqr_us if verdict.timing else None,
                "reference_us": verdict.reference_timing.median_us if verdict.reference_timing else None,
                "own_kernel_share": verdict.details.get("own_kernel_share"),
                "seconds": verdict.seconds,
            }
        else:
            record["harness_failure"] = str(verdict)[:300]
        if i < len(theirs):
            kb = theirs[i]
            record["kernelbench"] = kb
            if kb is not None and record["outcome"] is not None:
                record["agrees"] = (record["outcome"] == Outcome.CORRECT) == bool(kb["correct"])
            theirs_speedups = [r / k for r, k in zip(kb["reference_us"], kb["kernel_us"], strict=True)] if kb else []
            if theirs_speedups and record.get("speedup"):
                record["speedup_ratio"] = record["speedup"] / theirs_speedups[0]
                record["kernelbench_repeat_ratio"] = theirs_speedups[-1] / theirs_speedups[0]
        records.append(record)
    return records


def parity(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of what `compare_verdicts` found: how many verdicts agree, and how many speedups.

    Returns:
        ``compared``, ``agree`` and the ids in ``disagree``; ``steady``: kernels that both call correct and whose
        speedup KernelBench's harness finds again within 5 %; ``within``: of those, where ours is as near to its first.
    """
    compared = [r for r in records if "agrees" in r]
    ratios = [r for r in records if "speedup_ratio" in r]
    steady = [r for r in ratios if abs(r["kernelbench_repeat_ratio"] - 1) <= _AGREE]
    return {
        "compared": len(compared),
        "agree": sum(r["agrees"] for r in compared),
        "disagree": [r["id"] for r in compared if not r["agrees"]],
        "steady": len(steady),
        "within": sum(abs(r["speedup_ratio"] - 1) <= _AGREE for r in steady),
    }
