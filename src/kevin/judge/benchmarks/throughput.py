"""How fast the judge is: kernels a minute cold and warm, where the time goes, how busy the GPU is.

With a checkout of KernelBench the same kernels go through its own harness too. Some as its scripts drive it: a pool of
processes precompiles sources into its build cache, then a fresh process a kernel evaluates on the device. Of the others
its verdicts alone are wanted, for which several processes build and check side by side.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import HarnessError, UsageError
from kevin.core.progress import Progress, progress
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.judge.compile.inline import make_precompiled, precompiled_headers
from kevin.judge.pool.judge_pool import JudgePool
from kevin.judge.sandbox.isolation import detect_isolation

log = logging.getLogger(__name__)

Pair = tuple[Task, Kernel]
Result = dict[str, Any] | None
"""What KernelBench's harness says of a kernel; None where it failed to say anything."""

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
    timed = job["stage"] == "evaluate"
    for repeat in range(2 if timed else 1):
        r = kb.eval_kernel_against_ref(
            original_model_src=job["reference"], custom_model_src=job["kernel"], measure_performance=timed,
            num_correct_trials=1 if repeat else 5, num_perf_trials=100, build_dir=job["build"],
            device=torch.device("cuda:0"))
        start = start or time.perf_counter()
        if r is None:
            break
        if result is None:
            result = {"compiled": r.compiled, "correct": r.correctness, "kernel_us": [], "reference_us": []}
        if not timed or not r.correctness or r.runtime <= 0 or r.ref_runtime <= 0:
            break
        result["kernel_us"].append(1e3 * r.runtime)
        result["reference_us"].append(1e3 * r.ref_runtime)
    if result is not None:
        result["repeat_seconds"] = time.perf_counter() - start
    print("RESULT " + json.dumps(result))
"""
_AGREE = 0.05
"""Of a speedup: how far two measurements of it may differ and be called the same."""
_CORES_A_VERDICT = 2
"""One compiles what the other's linker waits for; and a GPU has room for eight references."""


class _BusyShare:
    """Mean utilisation of the first visible GPU between start and stop, as nvidia-smi samples it; None without one."""

    def __init__(self) -> None:
        self._samples: list[float] = []
        try:
            gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
            query = ["nvidia-smi", f"--id={gpu}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
            self._process = subprocess.Popen(
                [*query, "-lms", "200"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
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
    pairs: Sequence[Pair],
    protocol: JudgeProtocol,
    config: JudgePoolConfig,
    work: Path,
    *,
    copies: int = 4,
    found: Callable[[int, Verdict | HarnessError], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Judge ``pairs`` cold, then as an RL group would send them (``copies`` of each, store warm).

    Worker start-up is part of the cold run, whose results ``found`` is told with their index as they come. Precompiled
    headers, which a toolchain needs once, are made before it.

    Yields:
        One summary a run, as it ends.
    """
    uses_headers = any(kernel.dialect == "load_inline" and kernel.language == "cuda" for _, kernel in pairs)
    if uses_headers and precompiled_headers(detect_isolation()) is None:
        start = time.perf_counter()
        make_precompiled(detect_isolation())
        seconds = time.perf_counter() - start
        if precompiled_headers(detect_isolation()) is not None:
            log.warning("precompiled headers were made first, in %.0f s, once for this toolchain", seconds)
    busy = _BusyShare()
    start = time.perf_counter()
    with JudgePool(protocol, work / "store", config) as pool:
        verdicts = pool.judge(pairs, found)
        yield _summary("cold", time.perf_counter() - start, verdicts, busy.stop())
        start = time.perf_counter()
        again = pool.judge([p for p in pairs for _ in range(copies)])
        yield _summary(f"warm x{copies}", time.perf_counter() - start, again, None)


def _kernelbench_job(checkout: Path, job: dict[str, Any], timeout_s: float) -> Result:
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
    lines = [line for line in run.stdout.split("\n") if line.startswith("RESULT ")]
    return json.loads(lines[-1].removeprefix("RESULT ")) if lines else None


def _require_importable(checkout: Path) -> None:
    """Raises UsageError where its package cannot be imported: each kernel would fail for the same reason."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import kernelbench.eval"
    run = subprocess.run(
        [sys.executable, "-c", code, str(checkout / "src")], capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        reason = run.stderr.strip().split("\n")[-1] or "no reason given"
        raise UsageError(
            f"KernelBench's own code in {checkout} cannot be imported: {reason}; install what its pyproject.toml "
            f"names, give another checkout, or leave out --kernelbench"
        )


class KernelBenchHarness:
    """Its answers on ``pairs``, by index in ``results``; ``found`` is told each as it comes, so that none is lost.

    Raises UsageError for a checkout whose package cannot be imported.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        checkout: Path,
        work: Path,
        *,
        found: Callable[[int, Result], None] = lambda i, result: None,
        timeout_s: float = 300.0,
    ) -> None:
        _require_importable(checkout)
        self.results: dict[int, Result] = {}
        self._pairs, self._checkout, self._work = pairs, checkout, work
        self._found, self._timeout_s = found, timeout_s
        self._num_cores = len(os.sched_getaffinity(0))

    def _job(self, i: int, stage: str) -> Result:
        task, kernel = self._pairs[i]
        build = str(self._work / f"kb-{i}")
        job = {"stage": stage, "reference": task.source, "kernel": kernel.source, "build": build}
        return _kernelbench_job(self._checkout, job, self._timeout_s)

    def _keep(self, i: int, result: Result, bar: Progress[Any]) -> None:
        self.results[i] = result
        bar.update()
        self._found(i, result)

    def time(self, num: int) -> dict[str, Any]:
        """The first ``num`` as its scripts do it. Returns a summary of the run.

        Correct ones are timed once more, to know how well it agrees with itself; that is not counted in its seconds.
        """
        chosen = range(min(num, len(self._pairs)))
        busy = _BusyShare()
        start = time.perf_counter()
        with ThreadPoolExecutor(self._num_cores) as executor:
            list(executor.map(lambda i: self._job(i, "compile"), chosen))
        compiled = time.perf_counter()
        bar: Progress[Any] = progress(len(chosen), "KernelBench's harness", "kernels")
        with bar:
            for i in chosen:
                self._keep(i, self._job(i, "evaluate"), bar)
        results = [self.results[i] for i in chosen]
        seconds = time.perf_counter() - start - sum(r["repeat_seconds"] for r in results if r)
        correct = sum(bool(r and r.get("correct")) for r in results)
        return {
            "run": "KernelBench's own harness",
            "kernels": len(results),
            "seconds": seconds,
            "kernels_per_minute": 60 * len(results) / seconds,
            "harness_failures": sum(r is None for r in results),
            "outcomes": {str(Outcome.CORRECT): correct, "other": len(results) - correct},
            "stage_seconds": {"compile pool": compiled - start, "evaluate": seconds - (compiled - start)},
            "gpu_busy_share": busy.stop(),
        }

    def check_others(self) -> None:
        """Verdicts on all that were not timed."""
        left = [i for i in range(len(self._pairs)) if i not in self.results]
        bar: Progress[Any] = progress(len(left), "KernelBench's verdicts", "kernels")
        with bar, ThreadPoolExecutor(max(1, self._num_cores // _CORES_A_VERDICT)) as executor:
            jobs = {executor.submit(self._job, i, "check"): i for i in left}
            for job in as_completed(jobs):
                self._keep(jobs[job], job.result(), bar)


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
    records = []
    for i, name in enumerate(names):
        if i not in ours:
            continue
        verdict = ours[i]
        record: dict[str, Any] = {"id": name, "outcome": None}
        if isinstance(verdict, Verdict):
            record |= {
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
        else:
            record["harness_failure"] = str(verdict)[:300]
        if i in theirs:
            kb = theirs[i]
            record["kernelbench"] = kb
            if kb is not None and isinstance(verdict, Verdict):
                record["agrees"] = (record["kernelbench_check"] == "passed") == bool(kb["correct"])
                if (verdict.outcome is Outcome.CORRECT) != bool(kb["correct"]):
                    unscaled = record["kernelbench_check"] == "failed"
                    record["differs"] = verdict.reason or ("tolerance_not_scaled" if unscaled else "unexplained")
            theirs_speedups = [r / k for r, k in zip(kb["reference_us"], kb["kernel_us"], strict=True)] if kb else []
            if theirs_speedups and record.get("speedup"):
                record["speedup_ratio"] = record["speedup"] / theirs_speedups[0]
                record["kernelbench_repeat_ratio"] = theirs_speedups[-1] / theirs_speedups[0]
        records.append(record)
    return records


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
