"""Baselines: eager PyTorch and torch.compile, interleaved on the same leased cores, stored apart.

A verdict already pairs its kernel with eager; tables turn that into a speedup over another baseline with the
``ratio_to_eager`` measured here, so that a baseline can be measured again without touching a verdict.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import torch

from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task
from kevin.judge.device import Device, open_device
from kevin.judge.reference import ReferenceTask
from kevin.judge.timing import settled, summarize

log = logging.getLogger(__name__)

BASELINES = ("eager", "compile")


def _clock(forward: Callable[..., Any], inputs: list[Any], calls: int) -> float:
    """Microseconds of one call, over ``calls`` calls after an untimed one."""
    with torch.no_grad():
        forward(*inputs)
        start = time.perf_counter_ns()
        for _ in range(calls):
            forward(*inputs)
        return (time.perf_counter_ns() - start) / 1e3 / calls


def _measure(reference: ReferenceTask, device: Device, baselines: tuple[str, ...]) -> list[dict[str, Any]]:
    inputs = reference.trials[0].inputs
    forwards: dict[str, Callable[..., Any]] = {"eager": reference.model}
    if "compile" in baselines:
        torch.compiler.reset()
        compiled = torch.compile(reference.model)
        try:
            with torch.no_grad():
                compiled(*inputs)
            forwards["compile"] = compiled
        except Exception as e:
            log.warning("%s: torch.compile failed, no such baseline: %s", reference.task.id, e)
    t = device.protocol.timing
    samples: dict[str, list[float]] = {name: [] for name in forwards}
    calls = int(max(1, min(t.max_calls_per_round, t.round_us // _clock(reference.model, inputs, 1))))
    deadline = time.monotonic() + 2 * t.budget_s
    while len(samples["eager"]) < 2 * t.max_rounds:
        names = list(forwards) if len(samples["eager"]) % 2 else list(reversed(forwards))
        for name in names:
            samples[name].append(_clock(forwards[name], inputs, calls))
        if len(samples["eager"]) < 2 * t.min_rounds:
            continue
        ratios = [a / b for a, b in zip(samples["eager"], samples[list(forwards)[-1]], strict=True)]
        if time.monotonic() > deadline or (len(forwards) > 1 and settled(ratios, t.relative_error)):
            break
    rows = []
    for name, values in samples.items():
        timing = summarize(values)
        ratio = statistics.median(a / b for a, b in zip(samples["eager"], values, strict=True))
        rows.append(
            {
                "task_id": reference.task.id,
                "task_digest": reference.task.digest,
                "baseline": name,
                **timing.model_dump(),
                "ratio_to_eager": ratio,
                "device_name": device.name,
                "num_threads": device.protocol.num_threads,
            }
        )
    return rows


def measure_baselines(
    tasks: Iterable[Task],
    protocol: JudgeProtocol,
    baselines: tuple[str, ...] = BASELINES,
    on_task: Callable[[Task], None] | None = None,
) -> pd.DataFrame:
    """One row a task and baseline: ``ratio_to_eager`` is T_eager / T_baseline, the median of paired rounds.

    Columns: task_id, task_digest, baseline, median_us, iqr_us, min_us, num_samples, ratio_to_eager, device_name,
    num_threads. A task that torch.compile cannot compile has no ``compile`` row.
    """
    device = open_device(protocol)
    rows: list[dict[str, Any]] = []
    for task in tasks:
        rows += _measure(device.references.get(task), device, baselines)
        if on_task is not None:
            on_task(task)
    return pd.DataFrame(rows)
