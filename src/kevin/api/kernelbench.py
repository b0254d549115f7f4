"""`kevin judge --runs`: kernels as KernelBench's ``generate_samples.py`` leaves them, results as its analysis reads.

As its scripts have it at commit 423217d: a run is a folder of ``level_<L>_problem_<P>_sample_<S>_kernel.py``, its
results are ``eval_results.json``: problem -> list of samples, times in milliseconds, -1 where there is none.
"""

from __future__ import annotations

import json
import logging
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kevin.api.batch import judge_many, told_errors, verdict_record, write_records
from kevin.core.candidate import make_kernel
from kevin.core.config import KernelBenchSource
from kevin.core.errors import DataError, KevinError, UsageError
from kevin.core.files import write_text
from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.provenance import device_name
from kevin.core.texts import read_text, strict_json
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.judge.evaluate import early_verdict

log = logging.getLogger(__name__)

VERDICTS = "kevin_verdicts.jsonl"
RESULTS = "eval_results.json"
_NAME = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_ROUNDS, _CALLS = 10, 10
"""A hundred timed calls, as KernelBench makes, where memory allows ten sets of tensors."""
_TIMEOUT_S = 180.0
_ISSUES = {
    Outcome.COMPILE_ERROR: "compilation_error",
    Outcome.REFUSED: "compilation_error",
    Outcome.RUNTIME_ERROR: "runtime_error",
    Outcome.TIMEOUT: "runtime_error",
    Outcome.INCORRECT: "correctness_issue",
    Outcome.QUARANTINED: "correctness_issue",
}


@dataclass(frozen=True)
class Sample:
    """One generated kernel."""

    problem: int
    number: int
    path: Path

    @property
    def name(self) -> str:
        return self.path.name.removesuffix("_kernel.py")


def judge_runs(
    run: Path,
    level: int,
    out: Path | None,
    source: KernelBenchSource,
    protocol: JudgeProtocol,
    like_kernelbench: bool,
    store: Path | None,
) -> int:
    """Judge every kernel of a run's level. Returns the exit code: 0, 2 (a reference is unusable) or 3 (harness).

    Verdicts are kept in a store, so that a run that is started again goes on where it was; a kernel without a verdict
    is left out of the results.
    """
    from kevin.tasks.kernelbench import load_kernelbench

    results = out or run / RESULTS
    check_results(results)
    samples = read_samples(run, level)
    found_tasks = load_kernelbench(source.model_copy(update={"levels": (level,)}))
    tasks = {int(task.id.rpartition("/")[2]): task for task in found_tasks}
    for sample in samples:
        if sample.problem not in tasks:
            raise UsageError(f"{sample.path}: no such problem in level {level}; name its tasks with --kernelbench")
    folder = store or run / "kevin_store"
    strict, errors = _judge(samples, tasks, protocol, folder, "judge")
    found = strict
    if like_kernelbench:
        found, more = _judge(samples, tasks, lenient(protocol), folder, "judge as KernelBench does")
        errors += more
    device = "cuda:0" if protocol.device == "cuda" else "cpu"
    judged = [sample for sample in samples if sample in found and sample in strict]
    write_results(results, [(sample, entry(sample, found[sample], strict[sample], device)) for sample in judged])
    records = [{"id": sample.name, **verdict_record(strict[sample])} for sample in judged]
    write_records(results.with_name(VERDICTS), records)
    counts = Counter(str(strict[sample].outcome) for sample in judged)
    log.info("%s: %s", results, ", ".join(f"{n} {name}" for name, n in counts.most_common()) or "no verdicts")
    return told_errors(errors)


def _judge(
    samples: list[Sample], tasks: dict[int, Task], protocol: JudgeProtocol, store: Path, title: str
) -> tuple[dict[Sample, Verdict], list[KevinError]]:
    found: dict[Sample, Verdict] = {}
    pairs: dict[Sample, tuple[Task, Kernel]] = {}
    for sample in samples:
        task = tasks[sample.problem]
        try:
            text = read_text(sample.path)
        except UsageError as e:
            found[sample] = _not_text(task, sample, str(e), protocol)
        else:
            pairs[sample] = task, make_kernel(text, str(sample.path), "load_inline", protocol)
    asked = list(pairs)
    verdicts, errors = judge_many(list(pairs.values()), protocol, store, title=title)
    for i, error in errors.items():
        log.error("kevin: %s: %s", asked[i].name, error)
    return found | {asked[i]: verdict for i, verdict in verdicts.items()}, list(errors.values())


def _not_text(task: Task, sample: Sample, message: str, protocol: JudgeProtocol) -> Verdict:
    """Of a file that Python refuses as soon as it reads it."""
    source = sample.path.read_bytes().decode("latin-1")
    kernel = Kernel(dialect="load_inline", language=protocol.language, source=source)
    told: dict[str, Any] = {"outcome": Outcome.COMPILE_ERROR, "reason": "not_text", "message": message}
    return early_verdict(task, kernel, protocol, device_name(protocol.device), **told)


def read_samples(run: Path, level: int) -> list[Sample]:
    """The kernels of a level, by problem and number. Raises UsageError naming a folder that holds none."""
    if not run.is_dir():
        raise UsageError(f"{run}: no such folder; --runs names one of KernelBench's, runs/<run_name>")
    found = [
        Sample(int(match[2]), int(match[3]), path)
        for path in run.iterdir()
        if (match := _NAME.fullmatch(path.name)) and int(match[1]) == level
    ]
    if not found:
        raise UsageError(f"{run}: no kernels of level {level}; expected level_{level}_problem_1_sample_0_kernel.py")
    return sorted(found, key=lambda sample: (sample.problem, sample.number))


def lenient(protocol: JudgeProtocol) -> JudgeProtocol:
    """As KernelBench judges: five trials of the task's own inputs at 1e-4, no rules, a hundred timed calls.

    Outputs are still compared outside the candidate's process, weights perturbed and inputs watched.
    """
    timeout_s = max(_TIMEOUT_S, protocol.run_timeout_s)
    return protocol.model_copy(
        update={
            "num_trials": 5,
            "distributions": ("task",),
            "atol": 1e-4,
            "rtol": 1e-4,
            "rules": (),
            "run_timeout_s": timeout_s,
            "call_timeout_s": timeout_s,
            "timing": TimingProtocol(
                min_rounds=_ROUNDS, max_rounds=2 * _ROUNDS, max_calls_per_round=_CALLS, round_us=1e6, budget_s=10.0
            ),
        }
    )


def entry(sample: Sample, verdict: Verdict, strict: Verdict, device: str) -> dict[str, Any]:
    """One sample of ``eval_results.json``.

    Args:
        verdict: what ``compiled``, ``correctness`` and the times are made of; ``runtime`` is the mean of its rounds.
        strict: what stands beside it in ``metadata.kevin``.
        device: as KernelBench names it, ``cuda:0``.
    """
    times_ms = [r.kernel_us / 1e3 for r in verdict.rounds] if verdict.outcome is Outcome.CORRECT else []
    metadata: dict[str, Any] = {"hardware": verdict.device_name, "device": device}
    if issue := _ISSUES.get(verdict.outcome):
        metadata |= {issue: verdict.message, f"{issue}_name": verdict.reason or str(verdict.outcome)}
    if verdict.num_trials:
        metadata["correctness_trials"] = f"({verdict.trials_passed} / {verdict.num_trials})"
    metadata["kevin"] = {
        "outcome": str(strict.outcome),
        "reason": strict.reason,
        "speedup": strict.speedup,
        "flags": strict.flags,
        "kernelbench_check": strict.details.get("kernelbench_check"),
        "protocol_digest": verdict.protocol_digest,
        "strict_key": strict.key,
    }
    stats: dict[str, Any] = {}
    if times_ms:
        stats = {
            "mean": statistics.fmean(times_ms),
            "std": statistics.pstdev(times_ms),
            "min": min(times_ms),
            "max": max(times_ms),
            "num_trials": verdict.timing.num_samples if verdict.timing else 0,
            "hardware": verdict.device_name,
            "device": device,
        }
    return {
        "sample_id": sample.number,
        "compiled": _is_compiled(verdict),
        "correctness": verdict.outcome is Outcome.CORRECT,
        "metadata": metadata,
        "runtime": stats.get("mean", -1.0),
        "runtime_stats": stats,
    }


def _is_compiled(verdict: Verdict) -> bool:
    """Whether it was loaded: KernelBench compiles while it imports a module."""
    if verdict.outcome in (Outcome.PARSE_ERROR, Outcome.COMPILE_ERROR) or verdict.reason == "load_error":
        return False
    return "check" in verdict.seconds


def check_results(path: Path) -> None:
    """Raises UsageError where results stand that somebody else wrote, which would be lost; DataError for no results."""
    try:
        found = json.loads(path.read_text("utf-8"))
        entries = [e for samples in found.values() for e in samples]
        is_ours = all("kevin" in e["metadata"] for e in entries)
    except FileNotFoundError:
        return
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise DataError(f"{path}: not results of KernelBench ({type(e).__name__}: {e}); move it away") from None
    if not is_ours:
        raise UsageError(f"{path}: holds results of KernelBench's own evaluation; move it away, or give another --out")


def write_results(path: Path, entries: Iterable[tuple[Sample, dict[str, Any]]]) -> None:
    """In the order of problems and samples, in one piece."""
    results: dict[str, list[dict[str, Any]]] = {}
    for sample, found in sorted(entries, key=lambda pair: (pair[0].problem, pair[0].number)):
        results.setdefault(str(sample.problem), []).append(found)
    write_text(path, strict_json(results, indent=4) + "\n")
