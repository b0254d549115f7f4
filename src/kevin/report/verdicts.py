"""What the verdict store holds of kernels beside their speedup: times, and shares of what the device can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from kevin.core.errors import DataError
from kevin.core.files import verdict_path
from kevin.core.types import Task, Verdict

COLUMNS = {
    "verdict_key": "str",
    "device": "str",
    "kernel_us": "float64",
    "eager_us": "float64",
    "bandwidth_share": "float64",
    "flop_share": "float64",
}


def read_measured(store: Path, keys: Iterable[str]) -> pd.DataFrame:
    """One row for each of these verdicts that the store holds and that was timed; columns `COLUMNS`.

    ``kernel_us``, ``eager_us``: median time of a call. ``bandwidth_share``: of the speed of a copy, with every tensor
    moved once; ``flop_share``: of the speed of a large matrix product, none for a task without products (see
    `kevin.judge.device.roofline`). Shares that an older verdict lacks are NaN. Raises DataError for a damaged file.
    """
    rows = [row for key in dict.fromkeys(keys) if (row := _measured(verdict_path(store, key), key)) is not None]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _measured(path: Path, key: str) -> dict[str, Any] | None:
    try:
        verdict = Verdict.model_validate_json(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValidationError as e:
        raise DataError(f"{path}: not a verdict of this version ({e.error_count()} problems); delete it") from None
    if verdict.timing is None or verdict.reference_timing is None:
        return None
    return {
        "verdict_key": key,
        "device": verdict.device_name,
        "kernel_us": verdict.timing.median_us,
        "eager_us": verdict.reference_timing.median_us,
        "bandwidth_share": verdict.details.get("bandwidth_share"),
        "flop_share": verdict.details.get("flop_share"),
    }


def traffic_bytes(tasks: Iterable[Task]) -> dict[str, int]:
    """Of every input, parameter and output, each moved once, by task id; tasks without a spec are left out."""
    return {task.id: task.spec.num_bytes for task in tasks if task.spec is not None}


def memory_times(measured: pd.DataFrame, traffic: Mapping[str, int]) -> dict[str, float]:
    """Microseconds in which a copy moves every tensor of a task once, by task id.

    Every process of the judge measures its own copy, some on a busy machine, so the fastest one stands for the device:
    of all these verdicts where the task's ``traffic`` is known, else of its own. ``measured``: of one device, rows of
    `read_measured` with a ``task_id``; those without a ``bandwidth_share`` tell nothing.
    """
    own_us = measured["kernel_us"] * measured["bandwidth_share"]
    shortest = own_us.groupby(measured["task_id"]).min().dropna()
    peak = (measured["task_id"].map(traffic).astype("float64") / own_us).max()
    known = shortest.index.to_series().map(traffic).astype("float64") / peak
    return {str(task): float(us) for task, us in known.fillna(shortest).items()}
