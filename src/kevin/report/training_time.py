"""Where a training step's time goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.report.publish import write_table
from kevin.report.training_records import read_records

PARTS = ("generate", "judge", "model")
COLUMNS = ["run", "num_steps", "step_s", *(f"{p}_s" for p in PARTS), "own_s", "own_share", "kernels_per_minute"]
"""Means over the steps. ``model``: forward and backward passes and the optimiser; ``own``: everything that is none of
the three, checkpoints and logs included. Judging beside generation counts as generation. Kernels a minute of judging,
those that the verdict store knew among them."""


def step_time_table(runs: Sequence[Path]) -> pd.DataFrame:
    """One row for each folder of a training run. Raises DataError where its metrics say nothing of it."""
    return pd.DataFrame([_row(run) for run in runs], columns=COLUMNS)


def _row(run: Path) -> list[object]:
    path = run / "metrics.jsonl"
    records = read_records(path)
    if not records or any(p not in r.get("seconds", ()) for r in records for p in PARTS):
        raise DataError(f"{path}: holds no times, or is of an older version; train again: rm -r {run}")
    times = pd.DataFrame([r["seconds"] for r in records])
    means = times.mean()
    own = means["step"] - sum(means[p] for p in PARTS)
    kernels = sum(r["num_kernels"] for r in records)
    judge_s = sum(float(times[name].sum()) for name in ("judge", "beside") if name in times)
    rate = 60 * kernels / judge_s if judge_s > 0 else float("nan")
    return [run.name, len(records), means["step"], *(means[p] for p in PARTS), own, own / means["step"], rate]


def make_step_time(runs: Sequence[Path], out: Path, *, study: Study) -> Path:
    """Write step_time.csv, .md and .tex. Errors as `step_time_table`."""
    return write_table(out, "step_time", step_time_table(runs), study, None)
