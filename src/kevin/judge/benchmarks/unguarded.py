"""What a judge without guards would find and pay: KernelBench's check and clock, restated.

As its `eval_kernel_against_ref` does it: five trials of the task's own inputs with the weights as seeded, each output
`torch.allclose` to eager's; then a hundred calls on one and the same input, of which nothing is compared, and the mean
by the clock of the candidate's own process. Rules, other inputs and weights, changed inputs, memory that calls share,
and the bounds on a clock have no part in it.

What differs from its own harness: the candidate is still shut in, its outputs are poisoned before a trial (there, new
memory may hold the reference's answer) and must be plain tensors of the right shape and dtype.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from kevin.core.errors import DeviceLostError, HarnessError
from kevin.core.files import append_line, parse_object, read_lines
from kevin.core.progress import Progress
from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import device_name
from kevin.core.scratch import scratch_folder
from kevin.core.texts import strict_json
from kevin.core.types import Frozen, Kernel, Task, digest
from kevin.judge.compile.native import Build
from kevin.judge.correctness.checks import settle
from kevin.judge.correctness.compare import kernelbench_allclose
from kevin.judge.device.judging import Judging
from kevin.judge.device.workspace import Workspace
from kevin.judge.evaluate import build_stage
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.store import verdict_key

log = logging.getLogger(__name__)

VERSION = 1
"""Raised when it would find something else; what other versions found is not reused."""
_NUM_TRIALS, _NUM_WARM, _NUM_CALLS = 5, 3, 100
_BUDGET_S = 3.0
"""After which calls of a slow side end, though not before `_LEAST_CALLS`."""
_LEAST_CALLS = 5
_BUILT_TOGETHER = 32
"""Kernels that are compiled side by side; nothing is compiled while one is timed."""


class Unguarded(Frozen):
    """Of one kernel."""

    passed: bool
    reason: str | None = None
    """Why it failed: ``wrong_values``, or how it did not get that far."""
    kernel_us: float | None = Field(default=None, gt=0)
    """Mean of its calls; None where it failed."""
    reference_us: float | None = Field(default=None, gt=0)
    """Mean of eager PyTorch's calls."""
    num_calls: int = Field(default=0, ge=0)
    """Of the kernel, that were timed."""

    @model_validator(mode="after")
    def _times_only_when_passed(self) -> Self:
        if self.passed != (self.kernel_us is not None) or self.passed != (self.reference_us is not None):
            raise ValueError("a kernel that passed has both times, another has none")
        if self.passed == (self.reason is not None):
            raise ValueError("a kernel that failed has a reason, another has none")
        return self

    @property
    def speedup(self) -> float | None:
        """T_reference / T_kernel; None unless it passed."""
        if self.kernel_us is None or self.reference_us is None:
            return None
        return self.reference_us / self.kernel_us


def unguarded(judging: Judging, task: Task, kernel: Kernel, build: Build) -> Unguarded:
    """Check and time one kernel as KernelBench would.

    Raises:
        HarnessError, TaskError: as `Judging.judge`.
    """
    if build.outcome is not None:
        return Unguarded(passed=False, reason=build.reason or str(build.outcome))
    try:
        with judging.candidate(task, kernel, build) as (cell, workspace):
            return _measured(judging, cell, workspace)
    except CandidateFailed as e:
        return Unguarded(passed=False, reason=e.reason)


def _measured(judging: Judging, cell: Cell, workspace: Workspace) -> Unguarded:
    protocol, num_slots = judging.protocol, workspace.slots.num_slots
    for i in range(_NUM_TRIALS):
        if not _passes(cell, workspace, i % num_slots, protocol):
            return Unguarded(passed=False, reason="wrong_values")
    slot = _NUM_TRIALS % num_slots
    _fill(workspace, slot)
    settle(protocol)
    for _ in range(_NUM_WARM):
        cell.call([], [slot], protocol.run_timeout_s)
    # one at a time: results that are alive together could be told to share memory
    kernel_us = _timed(lambda: cell.call([], [slot], protocol.run_timeout_s).us)
    return Unguarded(
        passed=True,
        kernel_us=statistics.fmean(kernel_us),
        reference_us=statistics.fmean(_reference_us(judging, workspace)),
        num_calls=len(kernel_us),
    )


def _passes(cell: Cell, workspace: Workspace, slot: int, protocol: JudgeProtocol) -> bool:
    trial = workspace.reference.kernelbench_trial()
    slots = workspace.slots
    slots.fill(slot, trial.inputs, trial.parameters)
    slots.poison_outputs(slot)
    settle(protocol)
    cell.call([], [slot], protocol.run_timeout_s)
    return any(all(map(kernelbench_allclose, slots.outputs[slot], eager)) for eager in trial.eager_outputs or [])


def _fill(workspace: Workspace, slot: int) -> None:
    first = workspace.reference.trials[0]
    workspace.slots.fill(slot, first.inputs, first.parameters)


def _reference_us(judging: Judging, workspace: Workspace) -> list[float]:
    """The judge's own eager calls, on slots that all hold the same."""
    slots, reference = workspace.slots, workspace.reference
    for slot in range(slots.num_slots):
        _fill(workspace, slot)
    reference.set_parameters(reference.trials[0].parameters)
    pairs = zip(slots.inputs, workspace.inputs, strict=True)
    views = [[x if v is None else v for v, x in zip(shared, own, strict=True)] for shared, own in pairs]
    order = list(range(slots.num_slots - 1))
    settle(judging.protocol)
    return _timed(lambda: judging.hardware.time_reference(reference, slots, views, order, [])[0].us)


def _timed(call: Callable[[], list[float]]) -> list[float]:
    """Microseconds of a hundred calls, or of as many as fit the budget."""
    end, us = time.monotonic() + _BUDGET_S, call()
    while len(us) < _NUM_CALLS and (len(us) < _LEAST_CALLS or time.monotonic() < end):
        us += call()
    return us


def _kept(path: Path) -> dict[str, Unguarded]:
    """What was found before. Raises DataError."""
    known: dict[str, Unguarded] = {}
    for record in read_lines(path, parse_object, "delete that line, its kernel is measured again"):
        with suppress(KeyError, ValidationError):  # another version's
            key = record.pop("key")
            known[key] = Unguarded.model_validate(record)
    return known


def unguarded_key(task: Task, kernel: Kernel, protocol: JudgeProtocol, device_name: str) -> str:
    """Its rules apart, a protocol counts: it says how a kernel is built and what limits there are."""
    own = protocol.model_copy(update={"rules": ()})
    return digest("unguarded", str(VERSION), verdict_key(task, kernel, own, device_name))


def measure_unguarded(
    pairs: Sequence[tuple[Task, Kernel]],
    open_judging: Callable[[], Judging],
    protocol: JudgeProtocol,
    store: Path,
    what: str,
) -> list[Unguarded | HarnessError]:
    """Every pair; equal ones once, those that the store knows not at all. Same order as ``pairs``.

    Args:
        open_judging: called when there is something to measure. Changes the cores that this process may use.
        store: folder of verdicts, beside which stands what is found.
        what: is measured, on the progress bar.

    Raises:
        TaskError: a reference that does not run. DeviceLostError: as `Judging.judge`. What was found is in the store.
    """
    path, name = store / "unguarded.jsonl", device_name(protocol.device)
    known: dict[str, Unguarded | HarnessError] = {**_kept(path)}
    keys = [unguarded_key(task, kernel, protocol, name) for task, kernel in pairs]
    todo = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}
    # those of one task together: its reference is made once
    order = sorted(todo, key=lambda key: todo[key][0].id)
    if order:
        cores = os.sched_getaffinity(0)
        judging = open_judging()
        try:
            with Progress(len(order), what, "kernels") as bar:
                for start in range(0, len(order), _BUILT_TOGETHER):
                    chosen = {key: todo[key] for key in order[start : start + _BUILT_TOGETHER]}
                    for key, result in _measure(chosen, judging, cores):
                        known[key] = result
                        if isinstance(result, Unguarded):
                            append_line(path, strict_json({"key": key, **result.model_dump(mode="json")}))
                        bar.update()
        finally:
            os.sched_setaffinity(0, cores)
    return [known[key] for key in keys]


def _measure(
    chosen: dict[str, tuple[Task, Kernel]], judging: Judging, cores: set[int]
) -> Iterator[tuple[str, Unguarded | HarnessError]]:
    with scratch_folder("kevin-unguarded-") as scratch:

        def build(pair: tuple[Task, Kernel]) -> Build | HarnessError:
            try:
                return build_stage(*pair, judging.protocol, scratch)
            except HarnessError as e:
                return e

        with ThreadPoolExecutor(len(cores), initializer=lambda: os.sched_setaffinity(0, cores)) as executor:
            builds = list(executor.map(build, chosen.values()))
        for (key, (task, kernel)), built in zip(chosen.items(), builds, strict=True):
            try:
                yield key, built if isinstance(built, HarnessError) else unguarded(judging, task, kernel, built)
            except DeviceLostError:
                raise
            except HarnessError as e:
                log.warning("%s: not measured: %s", task.id, e)
                yield key, e
