"""`kevin judge --published`: the kernels of a published study once more, and what this judge finds otherwise."""

from __future__ import annotations

import logging
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kevin.api.batch import judge_many, told_errors
from kevin.cli.options import report_config
from kevin.core.config import Study
from kevin.core.errors import DataError, KevinError, UsageError
from kevin.core.files import read_tasks, write_csv
from kevin.core.protocol import PROTOCOL_VERSION
from kevin.core.types import Kernel
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
    rows, errors = _judge(kernels, files, study, store)
    if out is not None:
        write_csv(out, pd.DataFrame(rows, columns=COLUMNS))
    differ = _tell(rows)
    return told_errors(errors) or int(differ > 0)


def _judge(
    kernels: list[tuple[dict[str, Any], Kernel]], files: Published, study: Study, store: Path | None
) -> tuple[list[dict[str, Any]], list[KevinError]]:
    tasks = {task.id: task for task in read_tasks(files.tasks)}
    if unknown := {row["task_id"] for row, _ in kernels} - tasks.keys():
        raise DataError(f"{files.tasks}: no task {min(unknown)}, for which there are kernels")
    pairs = [(tasks[row["task_id"]], kernel) for row, kernel in kernels]
    verdicts, errors = judge_many(pairs, study.judge, store, pool=study.pool)
    for error in errors.values():
        if isinstance(error, UsageError):
            raise error
    rows = []
    for index, verdict in sorted(verdicts.items()):
        now = {"outcome_now": verdict.outcome.value, "reason_now": verdict.reason, "speedup_now": verdict.speedup}
        rows.append({name: kernels[index][0][name] for name in COLUMNS if name in kernels[index][0]} | now)
    return rows, list(errors.values())


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
