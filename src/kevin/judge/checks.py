"""Correctness: a candidate's outputs on the trials of its task, compared outside its process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from kevin.core.protocol import JudgeProtocol, Rule
from kevin.core.types import Outcome
from kevin.judge.cell import CandidateFailed, Cell
from kevin.judge.compare import Comparison, compare, kernelbench_allclose
from kevin.judge.memory import SharedSlots
from kevin.judge.reference import Trial
from kevin.judge.timing import Measured


class Findings:
    """What is known so far of one candidate; mutable only while it is being judged. ``rules``: those enforced."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.outcome = Outcome.RUNTIME_ERROR
        self.reason: str | None = None
        self.message = ""
        self.trials_passed = 0
        self.max_abs_error: float | None = None
        self.max_rel_error: float | None = None
        self.measured: Measured | None = None
        self.seconds: dict[str, float] = {}
        self.details: dict[str, float | int | str | None] = {}
        self.flags: set[Rule] = set()
        """Rules that what ran has broken, beside those that its source breaks."""

    def add(self, result: Comparison) -> None:
        for name in ("max_abs_error", "max_rel_error"):
            new, old = getattr(result, name), getattr(self, name)
            if new is not None and (old is None or new > old):
                setattr(self, name, new)


def _settle(protocol: JudgeProtocol) -> None:
    """Wait until what this process asked of the device is done, so that a cell sees it."""
    if protocol.device == "cuda":
        torch.cuda.synchronize()


def _compare(
    slots: SharedSlots, outputs: list[torch.Tensor], trial: Trial, protocol: JudgeProtocol, found: Findings | None
) -> None:
    for spec, out, ref, slack in zip(slots.spec.outputs, outputs, trial.outputs, trial.slack, strict=True):
        result = compare(spec.name, out, ref, atol=protocol.atol, rtol=protocol.rtol, slack=slack)
        if found is not None:
            found.add(result)
        if not result.passed:
            raise CandidateFailed(Outcome.INCORRECT, result.reason or "wrong_values", result.message)


def check_trials(
    cell: Cell,
    trials: list[Trial],
    slots: SharedSlots,
    protocol: JudgeProtocol,
    found: Findings,
    pause: Callable[[], None],
) -> float:
    """All correctness trials, in slots of their own. Returns the kernel's median time of a call, us.

    Args:
        pause: called where nothing is being timed.

    Raises:
        CandidateFailed: it fails, changes its arguments or is wrong.
    """
    deadline = time.monotonic() + protocol.run_timeout_s
    elapsed: list[int] = []
    for i, trial in enumerate(trials):
        pause()
        slots.fill(i, trial.inputs, trial.parameters)
        slots.poison_outputs(i)
        _settle(protocol)
        remaining_s = max(0.01, deadline - time.monotonic())
        elapsed += cell.call([], [i], remaining_s, load_parameters=True)
        if trial.eager_outputs is not None:
            pairs = zip(slots.outputs[i], trial.eager_outputs, strict=True)
            passed = all(kernelbench_allclose(out, ref) for out, ref in pairs)
            found.details["kernelbench_check"] = "passed" if passed else "failed"
        if name := slots.changed_argument(i, trial.inputs, trial.parameters):
            raise CandidateFailed(Outcome.INCORRECT, "input_mutated", f"it changes its argument {name}")
        _compare(slots, slots.outputs[i], trial, protocol, found)
        found.trials_passed += 1
    return statistics.median(elapsed) / 1e3


def check_fewer_rows(cell: Cell, fewer: Trial, first: Trial, slots: SharedSlots, protocol: JudgeProtocol) -> None:
    """The slot behind the last, which lies in the memory of the first: ``fewer`` is a part of the trial ``first``.

    Raises:
        CandidateFailed: it fails or is wrong.
    """
    slots.fill(0, first.inputs, fewer.parameters)
    _, inputs, outputs = slots.reshaped(0, fewer.inputs, fewer.outputs)
    for view, x in zip(inputs, fewer.inputs, strict=True):
        if view is not None:
            view.copy_(x)
    slots.poison_outputs(0)
    _settle(protocol)
    cell.call([], [slots.num_slots], protocol.run_timeout_s, load_parameters=True)
    _compare(slots, outputs, fewer, protocol, None)
