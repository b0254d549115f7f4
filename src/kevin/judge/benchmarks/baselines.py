"""Baselines: eager PyTorch, torch.compile and CUDA graphs, interleaved on the same leased cores, stored apart.

A verdict already pairs its kernel with eager; tables turn that into a speedup over another baseline with the
``ratio_to_eager`` measured here, so that a baseline can be measured again without touching a verdict.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, Literal

import pandas as pd
import torch

from kevin.core.errors import DeviceError, KevinError, TaskError
from kevin.core.protocol import JudgeProtocol
from kevin.core.scratch import scratch_folder
from kevin.core.types import Task
from kevin.judge.correctness.reference import ReferenceTask, make_reference
from kevin.judge.device.hardware import Hardware
from kevin.judge.evaluate import open_hardware
from kevin.judge.timing.rounds import settled, summarize

log = logging.getLogger(__name__)

Baseline = Literal["eager", "compile", "max_autotune", "cuda_graph"]
BASELINES: dict[str, tuple[Baseline, ...]] = {
    "cpu": ("eager", "compile"),
    "cuda": ("eager", "compile", "cuda_graph"),
}
"""What is measured by default. ``max_autotune`` takes minutes a task to compile and is measured when asked for."""

Forward = Callable[..., Any]


def _compiled(model: torch.nn.Module, inputs: list[Any], mode: str | None) -> Forward:
    torch.compiler.reset()
    forward: Forward = torch.compile(model, mode=mode)
    forward(*inputs)
    return forward


def _captured(model: torch.nn.Module, inputs: list[Any]) -> Forward:
    """Eager PyTorch replayed as one CUDA graph on the given inputs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(*inputs)
    return lambda *_: graph.replay()


_MAKERS: dict[Baseline, Callable[[torch.nn.Module, list[Any]], Forward]] = {
    "eager": lambda model, _: model,
    "compile": lambda model, inputs: _compiled(model, inputs, None),
    "max_autotune": lambda model, inputs: _compiled(model, inputs, "max-autotune"),
    "cuda_graph": _captured,
}


def _forwards(reference: ReferenceTask, baselines: Iterable[Baseline]) -> dict[Baseline, Forward]:
    """Those baselines that this task has; a warning names the others."""
    inputs = reference.trials[0].inputs
    forwards: dict[Baseline, Forward] = {}
    for name in baselines:
        try:
            with torch.no_grad(), reference.as_user():
                forwards[name] = _MAKERS[name](reference.model, inputs)
        except Exception as e:
            log.warning("%s has no baseline %s: %s: %s", reference.task.id, name, type(e).__name__, e)
    return forwards


def _rounds(
    forwards: dict[Baseline, Forward], inputs: list[Any], device: Hardware, num_calls: int
) -> dict[Baseline, list[float]]:
    """(Lower) median microseconds of a call, round by round; all baselines take turns within a round."""
    t = device.protocol.timing
    samples: dict[Baseline, list[float]] = {name: [] for name in forwards}
    deadline = time.monotonic() + len(forwards) * t.budget_s
    while len(samples["eager"]) < 2 * t.max_rounds:
        names = list(forwards) if len(samples["eager"]) % 2 else list(reversed(forwards))
        for name in names:
            forward = forwards[name]
            forward(*inputs)
            calls_ns = [device.clock(lambda forward=forward: forward(*inputs)) for _ in range(num_calls)]
            samples[name].append(statistics.median_low(calls_ns) / 1e3)
        if len(samples["eager"]) < 2 * t.min_rounds:
            continue
        ratios = [a / b for a, b in zip(samples["eager"], samples[list(forwards)[-1]], strict=True)]
        if time.monotonic() > deadline or (len(forwards) > 1 and settled(ratios, t.relative_error)):
            break
    return samples


def _measure(task: Task, device: Hardware, baselines: Iterable[Baseline]) -> list[dict[str, Any]]:
    reference = make_reference(task, device.protocol)
    inputs, t = reference.trials[0].inputs, device.protocol.timing
    forwards = _forwards(reference, baselines)
    with torch.no_grad(), reference.as_user(), device.turn(), device.lease(exclusive=True):
        reference.model(*inputs)
        first_us = device.clock(lambda: reference.model(*inputs)) / 1e3
        num_calls = int(max(1, min(t.max_calls_per_round, t.round_us // first_us)))
        samples = _rounds(forwards, inputs, device, num_calls)
    return [
        {
            "task_id": task.id,
            "task_digest": task.digest,
            "baseline": name,
            **summarize(values).model_dump(),
            "ratio_to_eager": statistics.median(a / b for a, b in zip(samples["eager"], values, strict=True)),
            "device_name": device.name,
            "num_threads": device.protocol.num_threads,
        }
        for name, values in samples.items()
    ]


def _compile_once(task: Task, protocol: JudgeProtocol, baselines: tuple[Baseline, ...]) -> None:
    """Leave the compiler's results in its cache on disk."""
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1  # else each of these processes starts one compiler a core
    try:
        hardware = open_hardware(protocol.model_copy(update={"num_trials": 1}))
        _forwards(make_reference(task, hardware.protocol), baselines)
    except KevinError as e:
        log.warning("%s: not compiled ahead: %s", task.id, str(e)[:200])
    gc.collect()  # the task's tensors, which else stand beside those of the next one
    if protocol.device == "cuda":
        torch.cuda.empty_cache()


_TASKS_PER_PROCESS = 8
"""Compiled in one process, whose memory grows with them."""


def _compile_ahead(
    tasks: Sequence[Task],
    protocol: JudgeProtocol,
    baselines: tuple[Baseline, ...],
    num_processes: int,
    compile_once: Callable[[Task, JudgeProtocol, tuple[Baseline, ...]], None] = _compile_once,
) -> None:
    """Compile every task, several at once: a single process would spend most of its time in the compiler."""
    compiled = tuple(b for b in baselines if b in ("compile", "max_autotune"))
    context = multiprocessing.get_context("spawn")
    # An executor's own max_tasks_per_child waits for ever once as many are done (CPython's issue 115634).
    num_at_once = num_processes * _TASKS_PER_PROCESS
    for first in range(0, len(tasks), num_at_once):
        some = tasks[first : first + num_at_once]
        with ProcessPoolExecutor(num_processes, mp_context=context) as executor:
            waiting = [executor.submit(compile_once, task, protocol, compiled) for task in some]
            for task, future in zip(some, waiting, strict=True):
                try:
                    future.result()
                except (BrokenExecutor, RuntimeError) as e:  # a full device, as a rule: it is compiled when it is timed
                    log.warning("%s: not compiled ahead: %s", task.id, str(e)[:200])


Rows = list[dict[str, Any]]


def _rows(task: Task, device: Hardware, wanted: tuple[Baseline, ...]) -> Rows:
    """None of them where the task cannot be measured."""
    try:
        return _measure(task, device, wanted)
    except (DeviceError, TaskError) as e:
        log.warning("no baselines: %s", e)
    except RuntimeError as e:
        if "out of memory" not in str(e):
            raise
        log.warning("no baselines of %s: it does not fit on the device: %s", task.id, str(e).split("\n")[0])
        torch.cuda.empty_cache()
    return []


def _measured_here(
    tasks: Sequence[Task], protocol: JudgeProtocol, wanted: tuple[Baseline, ...]
) -> Iterator[tuple[Task, Rows]]:
    """Each task with its rows."""
    device = open_hardware(protocol)
    for task in tasks:
        yield task, _rows(task, device, wanted)
    if protocol.device == "cuda":  # what follows in this process, or beside it, needs the memory
        del device
        gc.collect()
        torch.cuda.empty_cache()


_opened = lru_cache(1)(open_hardware)
"""Of a process that measures one task after the other."""


def _measured_one(task: Task, protocol: JudgeProtocol, wanted: tuple[Baseline, ...]) -> Rows:
    return _rows(task, _opened(protocol), wanted)


def _measured_apart(
    tasks: Sequence[Task],
    protocol: JudgeProtocol,
    wanted: tuple[Baseline, ...],
    measure: Callable[[Task, JudgeProtocol, tuple[Baseline, ...]], Rows] = _measured_one,
) -> Iterator[tuple[Task, Rows]]:
    """The same in a process of its own, which what the compiler made for a CPU has been seen to end ("double free").

    It is then tried once more, and after that without the compiler.
    """
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        executor: ProcessPoolExecutor | None = None
        for task in tasks:
            rows: Rows = []
            for again in (wanted, wanted, ("eager",)):
                executor = executor or stack.enter_context(ProcessPoolExecutor(1, mp_context=context))
                try:
                    rows = executor.submit(measure, task, protocol, again).result()
                    break
                except BrokenExecutor:
                    executor = None
                    log.warning("%s: the process that measured %s was ended by it", task.id, " and ".join(again))
            yield task, rows


_CACHE = "TORCHINDUCTOR_CACHE_DIR"


@contextmanager
def _own_compiler_cache() -> Iterator[None]:
    """A cache of the compiler for this measurement alone, unless the environment names one.

    The usual one outlives the process. What was compiled into it under another vector instruction set
    (``ATEN_CPU_CAPABILITY``, or another processor behind the same folder) is used again all the same, and has ended a
    process with a corrupted heap.
    """
    if _CACHE in os.environ:
        yield
        return
    with scratch_folder("kevin-inductor-") as folder:
        os.environ[_CACHE] = str(folder)
        try:
            yield
        finally:
            del os.environ[_CACHE]


@_own_compiler_cache()
def measure_baselines(
    tasks: Sequence[Task],
    protocol: JudgeProtocol,
    baselines: tuple[Baseline, ...] | None = None,
    on_task: Callable[[Task], None] | None = None,
    *,
    compile_processes: int = 0,
) -> pd.DataFrame:
    """One row a task and baseline: ``ratio_to_eager`` is T_eager / T_baseline, the median of paired rounds.

    Args:
        compile_processes: so many compile all tasks into the compiler's cache before the first is timed.

    Returns:
        Columns: task_id, task_digest, baseline, median_us, iqr_us, min_us, num_samples, ratio_to_eager, device_name,
        num_threads. Where a baseline cannot be made for a task (torch.compile or graph
        capture fails, the task does not fit on the device) there is no row.
    """
    wanted = baselines or BASELINES[protocol.device]
    if "eager" not in wanted:
        wanted = ("eager", *wanted)
    if compile_processes > 0:
        _compile_ahead(tasks, protocol, wanted, compile_processes)
    rows: list[dict[str, Any]] = []
    measured = _measured_apart if protocol.device == "cpu" else _measured_here
    for task, found in measured(tasks, protocol.model_copy(update={"num_trials": 1}), wanted):  # nothing is judged
        rows += found
        if on_task is not None:
            on_task(task)
    if not rows:
        raise DeviceError("no task could be run on this device; the log names the reasons")
    return pd.DataFrame(rows)
