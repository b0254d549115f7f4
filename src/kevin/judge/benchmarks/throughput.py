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
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import HarnessError, UsageError
from kevin.core.files import write_text
from kevin.core.progress import Progress, progress
from kevin.core.protocol import JudgeProtocol
from kevin.core.scratch import scratch_folder
from kevin.core.texts import strict_json
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


@contextmanager
def _busy_samples() -> Iterator[list[float]]:
    """How busy the first visible GPU is meanwhile, as nvidia-smi samples it; filled at the end, empty without one."""
    samples: list[float] = []
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    query = ["nvidia-smi", f"--id={gpu}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
    with tempfile.TemporaryFile("w+") as said, ExitStack() as stack:
        with suppress(OSError):
            process = stack.enter_context(subprocess.Popen(query, stdout=said, stderr=subprocess.DEVNULL))
            stack.callback(process.kill)
        yield samples
        stack.close()
        said.seek(0)
        samples += [float(line) / 100 for line in said if line.strip().isdigit()]


def _run(name: str, num: int, seconds: float, busy: Sequence[float] = (), **counted: Any) -> dict[str, Any]:
    """A run's summary."""
    return {
        "run": name,
        "kernels": num,
        "seconds": seconds,
        "kernels_per_minute": 60 * num / seconds,
        **counted,
        "gpu_busy_share": sum(busy) / len(busy) if busy else None,
    }


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
            with _busy_samples() as busy:
                verdicts = judge.judge(pairs, found)
                seconds = time.perf_counter() - start
            ended(_run("cold", len(verdicts), seconds, busy, **_counted(verdicts)))
            start = time.perf_counter()
            again = judge.judge([pair for pair in pairs for _ in range(copies)])
            ended(_run(f"warm x{copies}", len(again), time.perf_counter() - start, **_counted(again)))
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
        results: dict[int, Result],
        found: Callable[[int, Result], None] = lambda i, result: None,
        *,
        timeout_s: float = 300.0,
    ) -> None:
        _require_importable(checkout)
        self._pairs, self._checkout, self._work = pairs, checkout, work
        self._results, self._found, self._timeout_s = results, found, timeout_s
        self._num_cores = len(os.sched_getaffinity(0))

    def _job(self, i: int, stage: str) -> Result:
        task, kernel = self._pairs[i]
        build = str(self._work / f"kb-{i}")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump({"stage": stage, "reference": task.source, "kernel": kernel.source, "build": build}, f)
            f.flush()
            argv = [sys.executable, "-c", _KERNELBENCH, str(self._checkout / "src"), f.name]
            try:
                run = subprocess.run(argv, capture_output=True, text=True, timeout=self._timeout_s, check=False)
            except subprocess.TimeoutExpired:
                return None
        if run.returncode != 0:
            log.warning("KernelBench's harness failed: %s", run.stderr.strip()[-600:])
        lines = [line for line in run.stdout.split("\n") if line.startswith("RESULT ")]
        return json.loads(lines[-1].removeprefix("RESULT ")) if lines else None

    def _keep(self, i: int, result: Result, bar: Progress[Any]) -> None:
        self._results[i] = result
        bar.update()
        self._found(i, result)

    def time(self, num: int) -> dict[str, Any]:
        """The first ``num`` as its scripts do it. Returns a summary of the run.

        Correct ones are timed once more, to know how well it agrees with itself; that is not counted in its seconds.
        """
        chosen = range(min(num, len(self._pairs)))
        with _busy_samples() as busy:
            start = time.perf_counter()
            with ThreadPoolExecutor(self._num_cores) as executor:
                list(executor.map(lambda i: self._job(i, "compile"), chosen))
            compiled = time.perf_counter()
            bar: Progress[Any] = progress(len(chosen), "KernelBench's harness", "kernels")
            with bar:
                for i in chosen:
                    self._keep(i, self._job(i, "evaluate"), bar)
            evaluated = time.perf_counter()
        results = [self._results[i] for i in chosen]
        evaluating = evaluated - compiled - sum(r["repeat_seconds"] for r in results if r)
        correct = sum(bool(r and r.get("correct")) for r in results)
        return _run(
            "KernelBench's own harness",
            len(results),
            compiled - start + evaluating,
            busy,
            harness_failures=sum(r is None for r in results),
            outcomes={str(Outcome.CORRECT): correct, "other": len(results) - correct},
            stage_seconds={"compile pool": compiled - start, "evaluate": evaluating},
        )

    def check_others(self) -> None:
        """Verdicts on all that were not timed."""
        left = [i for i in range(len(self._pairs)) if i not in self._results]
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
