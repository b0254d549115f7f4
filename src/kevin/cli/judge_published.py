"""`kevin judge --published`: the kernels of a published study once more, and what this judge finds otherwise."""

from __future__ import annotations

import logging
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kevin.cli.judge_batch import judge_many, told_failures
from kevin.cli.options import report_config
from kevin.core.config import Study
from kevin.core.errors import DataError, HarnessError
from kevin.core.files import read_tasks, write_csv
from kevin.core.protocol import PROTOCOL_VERSION
from kevin.core.types import Kernel, Verdict
from kevin.report.published import Published, read_kernels

log = logging.getLogger(__name__)

COLUMNS = ["task_id", "kernel_digest", "outcome", "reason", "speedup", "outcome_now", "reason_now", "speedup_now"]


def judge_published(folder: Path, sample: int | None, *, out: Path | None, store: Path | None) -> int:
    """Judge all kernels, or a sample drawn with the study's seed, and print what differs.

    Returns the exit code: 0, 1 (outcomes differ) or 3 (the harness failed on some).

    Args:
        out: gets a row for each kernel, both verdicts beside each other (CSV).
        store: keeps verdicts, so that a run that is started again goes on.
    """
    files = Published(folder)
    study = report_config([files.config])
    if study.judge.version != PROTOCOL_VERSION:
        log.warning("published by version %s of the protocol, judged by %s", study.judge.version, PROTOCOL_VERSION)
        study = study.model_copy(update={"judge": study.judge.model_copy(update={"version": PROTOCOL_VERSION})})
    kernels = read_kernels(files)
    if sample is not None and sample < len(kernels):
        kernels = random.Random(study.seed).sample(kernels, sample)
    rows, failures = _judge(kernels, files, study, store)
    if out is not None:
        write_csv(out, pd.DataFrame(rows, columns=COLUMNS))
    differ = _tell(rows)
    return told_failures(failures) or int(differ > 0)


def _judge(
    kernels: list[tuple[dict[str, Any], Kernel]], files: Published, study: Study, store: Path | None
) -> tuple[list[dict[str, Any]], list[HarnessError]]:
    tasks = {task.id: task for task in read_tasks(files.tasks)}
    if unknown := {row["task_id"] for row, _ in kernels} - tasks.keys():
        raise DataError(f"{files.tasks}: no task {min(unknown)}, for which there are kernels")
    verdicts: dict[int, Verdict] = {}
    failures: list[HarnessError] = []
    pairs = [(tasks[row["task_id"]], kernel) for row, kernel in kernels]
    for judged in judge_many(pairs, study.judge, store, pool=study.pool):
        if judged.verdict is not None:
            verdicts[judged.index] = judged.verdict
        elif isinstance(judged.error, HarnessError):
            failures.append(judged.error)
        elif judged.error is not None:
            raise judged.error
    rows = []
    for index, (row, _) in enumerate(kernels):
        if (verdict := verdicts.get(index)) is not None:
            now = {"outcome_now": verdict.outcome.value, "reason_now": verdict.reason, "speedup_now": verdict.speedup}
            rows.append({name: row[name] for name in COLUMNS if name in row} | now)
    return rows, failures


def _tell(rows: list[dict[str, Any]]) -> int:
    """Returns how many outcomes differ."""
    changed = Counter((row["outcome"], row["outcome_now"]) for row in rows if row["outcome"] != row["outcome_now"])
    differ = sum(changed.values())
    log.info("%d kernels judged again: %d outcomes as published, %d not", len(rows), len(rows) - differ, differ)
    for (before, now), number in changed.most_common():
        log.info("  %d times %s, published as %s", number, now, before)
    ratios = [row["speedup_now"] / row["speedup"] for row in rows if row["speedup"] and row["speedup_now"]]
    if ratios:
        low, middle, high = np.percentile(ratios, [5, 50, 95])
        log.info(
            "speedup over the published one, of %d kernels correct both times: median %.2f, 5 to 95 %%: %.2f to %.2f",
            len(ratios), middle, low, high,
        )  # fmt: skip
    return differ
