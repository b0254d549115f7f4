"""KernelBench's own harness, from a checkout of it.

Some kernels go through it as its scripts drive it: a pool of processes precompiles sources into its build cache, then a
fresh process a kernel evaluates on the device. Of the others its verdicts alone are wanted, for which several processes
build and check side by side.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from kevin.core.errors import UsageError
from kevin.core.progress import Progress
from kevin.core.types import Kernel, Outcome, Task

log = logging.getLogger(__name__)

Pair = tuple[Task, Kernel]
Result = dict[str, Any] | None
"""What it says of a kernel; None where it failed to say anything."""

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
_CORES_A_VERDICT = 2
"""One compiles what the other's linker waits for; and a GPU has room for eight references."""


@contextmanager
def busy_samples() -> Iterator[list[float]]:
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


def run_summary(name: str, num: int, seconds: float, busy: Sequence[float] = (), **counted: Any) -> dict[str, Any]:
    """A run's summary."""
    return {
        "run": name,
        "kernels": num,
        "seconds": seconds,
        "kernels_per_minute": 60 * num / seconds,
        **counted,
        "gpu_busy_share": sum(busy) / len(busy) if busy else None,
    }


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
        found: Callable[[int, Result], None],
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

    def _keep(self, i: int, result: Result, bar: Progress) -> None:
        self._results[i] = result
        bar.update()
        self._found(i, result)

    def time(self, num: int) -> dict[str, Any]:
        """The first ``num`` as its scripts do it. Returns a summary of the run.

        Correct ones are timed once more, to know how well it agrees with itself; that is not counted in its seconds.
        """
        chosen = range(min(num, len(self._pairs)))
        with busy_samples() as busy:
            start = time.perf_counter()
            with ThreadPoolExecutor(self._num_cores) as executor:
                list(executor.map(lambda i: self._job(i, "compile"), chosen))
            compiled = time.perf_counter()
            with Progress(len(chosen), "KernelBench's harness", "kernels") as bar:
                for i in chosen:
                    self._keep(i, self._job(i, "evaluate"), bar)
            evaluated = time.perf_counter()
        results = [self._results[i] for i in chosen]
        evaluating = evaluated - compiled - sum(r["repeat_seconds"] for r in results if r)
        correct = sum(bool(r and r.get("correct")) for r in results)
        return run_summary(
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
        with (
            Progress(len(left), "KernelBench's verdicts", "kernels") as bar,
            ThreadPoolExecutor(max(1, self._num_cores // _CORES_A_VERDICT)) as executor,
        ):
            jobs = {executor.submit(self._job, i, "check"): i for i in left}
            for job in as_completed(jobs):
                self._keep(jobs[job], job.result(), bar)
