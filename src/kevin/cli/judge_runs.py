"""`kevin judge --runs`: the kernels of a KernelBench run, and results that KernelBench's own analysis reads."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

from kevin.api.judge import Judge
from kevin.api.kernelbench_runs import (
    RESULTS,
    Sample,
    check_results,
    entry,
    lenient,
    read_samples,
    references,
    write_results,
)
from kevin.api.pairs import make_task
from kevin.cli.verdict_view import verdict_record
from kevin.core.config import KernelBenchSource
from kevin.core.errors import HarnessError, KevinError, UsageError
from kevin.core.files import write_text
from kevin.core.progress import Progress, progress
from kevin.core.protocol import JudgeProtocol
from kevin.core.texts import read_text, strict_json
from kevin.core.types import Kernel, Outcome, Verdict
from kevin.judge.evaluate import early_verdict

log = logging.getLogger(__name__)

VERDICTS = "kevin_verdicts.jsonl"


def judge_runs(
    run: Path,
    level: int,
    *,
    out: Path | None,
    tasks: KernelBenchSource,
    protocol: JudgeProtocol,
    like_kernelbench: bool,
    store: Path | None,
) -> int:
    """Judge every kernel of a run's level. Returns the exit code: 0, 2 (a reference is unusable) or 3 (harness).

    Verdicts are kept in a store, so that a run that is started again goes on where it was; a kernel without a verdict
    is left out of the results.
    """
    from kevin.tasks.kernelbench import fetch, task_paths

    results = out or run / RESULTS
    check_results(results)
    samples = read_samples(run, level)
    source = tasks if tasks.path else tasks.model_copy(update={"path": str(fetch(tasks.repository, tasks.commit))})
    files = references(samples, task_paths(source.model_copy(update={"levels": (level,)})), level)
    folder = store or run / "kevin_store"
    strict, errors = _judge(samples, files, protocol, folder, "judge")
    found = strict
    if like_kernelbench:
        found, more = _judge(samples, files, lenient(protocol), folder, "judge as KernelBench does")
        errors += more
    device = "cuda:0" if protocol.device == "cuda" else "cpu"
    judged = [sample for sample in samples if sample in found and sample in strict]
    write_results(results, [(sample, entry(sample, found[sample], strict[sample], device)) for sample in judged])
    _write_verdicts(results.with_name(VERDICTS), {sample: strict[sample] for sample in judged})
    counts = Counter(str(strict[sample].outcome) for sample in judged)
    log.info("%s: %s", results, ", ".join(f"{n} {name}" for name, n in counts.most_common()) or "no verdicts")
    return _exit_code(errors)


def _exit_code(errors: list[KevinError]) -> int:
    if not errors:
        return 0
    failed = [e for e in errors if isinstance(e, HarnessError)]
    if failed:
        log.error("kevin: the harness failed %d times, start again to retry; first: %s", len(failed), failed[0])
        return 3
    return 2


def _judge(
    samples: list[Sample], files: dict[int, Path], protocol: JudgeProtocol, store: Path, title: str
) -> tuple[dict[Sample, Verdict], list[KevinError]]:
    found: dict[Sample, Verdict] = {}
    errors: list[KevinError] = []
    bar: Progress[Any] = progress(len(samples), title, "kernels")
    with Judge(protocol=protocol, store=store) as judge, bar:
        texts = []
        for sample in samples:
            try:
                read_text(sample.path)
            except UsageError as e:
                found[sample] = _not_text(files[sample.problem], sample, str(e), protocol, judge.device_name)
                bar.update()
            else:
                texts.append(sample)
        pairs = ((files[sample.problem], sample.path) for sample in texts)
        for judged in judge.many(pairs, dialect="load_inline"):
            sample = texts[judged.index]
            if judged.verdict is not None:
                found[sample] = judged.verdict
            elif judged.error is not None:
                errors.append(judged.error)
                log.error("kevin: %s: %s", sample.name, judged.error)
            bar.update()
    return found, errors


def _not_text(reference: Path, sample: Sample, message: str, protocol: JudgeProtocol, device_name: str) -> Verdict:
    """Of a file that Python refuses as soon as it reads it."""
    source = sample.path.read_bytes().decode("latin-1")
    return early_verdict(
        make_task(read_text(reference), str(reference)),
        Kernel(dialect="load_inline", language=protocol.language, source=source),
        protocol,
        device_name,
        outcome=Outcome.COMPILE_ERROR,
        reason="not_text",
        message=message,
    )


def _write_verdicts(path: Path, verdicts: dict[Sample, Verdict]) -> None:
    lines = [strict_json({"id": sample.name, **verdict_record(verdict)}) for sample, verdict in verdicts.items()]
    write_text(path, "".join(line + "\n" for line in lines))
