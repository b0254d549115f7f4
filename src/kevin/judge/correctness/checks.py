"""Correctness: a candidate's outputs on the trials of its task, compared outside its process. What becomes known of it
while it is judged is put down here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from kevin.core.protocol import Flag, JudgeProtocol, Rule
from kevin.core.types import Frozen, Outcome, Round, Timing
from kevin.judge.correctness.compare import Comparison, compare, kernelbench_allclose
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.correctness.trials import Trial, Trials
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.sandbox.slots import ALIGNMENT_BYTES, DTYPES, PLACES, SharedSlots
from kevin.tasks.layout import core

_IDLE_CPU_S, _IDLE_CPU_SHARE = 0.002, 0.25
_MOST_FREE_BYTES = 4 << 30
"""Of the memory that PyTorch's allocator keeps in this process while nothing is in it."""


class Measured(Frozen):
    kernel: Timing
    reference: Timing
    rounds: tuple[Round, ...]
    clock_us: float | None = None
    """Of a call by the cell's clock, where that is less than calls in a row were found to take, which counts."""
    num_left_out: int = 0
    """Rounds that do not count, since other work disturbed them."""
    num_looked_at: int = 0
    """Timed calls whose outputs were compared with what was expected of them."""
    leaked_bytes: int = 0
    """That it keeps more with every call; 0 where none were seen."""
    is_disturbed: bool = False
    """Too few rounds had the core to themselves: times are those of all, without the waiting for it."""


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
        self.flags: set[Flag] = set()
        """What is told beside the outcome: rules that what ran has broken, beside those that its source breaks."""

    def add(self, result: Comparison) -> None:
        for name in ("max_abs_error", "max_rel_error"):
            new, old = getattr(result, name), getattr(self, name)
            if new is not None and (old is None or new > old):
                setattr(self, name, new)


def settle(protocol: JudgeProtocol) -> None:
    """Wait until what this process asked of the device is done, so that a cell sees it; leave it the free memory."""
    if protocol.device == "cuda":
        torch.cuda.synchronize()
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _MOST_FREE_BYTES:
            torch.cuda.empty_cache()


def _compare(
    slots: SharedSlots, outputs: list[torch.Tensor], trial: Trial, protocol: JudgeProtocol, found: Findings | None
) -> None:
    for spec, out, ref, slack in zip(slots.spec.outputs, outputs, trial.outputs, trial.slack, strict=True):
        result = compare(spec.name, out, ref, atol=protocol.atol, rtol=protocol.rtol, slack=slack)
        if found is not None:
            found.add(result)
        if not result.passed:
            raise CandidateFailed(Outcome.INCORRECT, result.reason or "wrong_values", result.message)


def require_intact(
    slots: SharedSlots, slot: int, inputs: list[Any], parameters: list[torch.Tensor], reference: ReferenceTask
) -> None:
    """After calls on a slot. Raises CandidateFailed where something was written that is not the candidate's to write.

    See `require_unchanged` for its arguments.
    """
    if said := slots.bands.trespass():
        raise CandidateFailed(Outcome.RUNTIME_ERROR, "out_of_bounds", said)
    require_unchanged(slots, slot, inputs, parameters, reference)


def require_unchanged(
    slots: SharedSlots, slot: int, inputs: list[Any], parameters: list[torch.Tensor], reference: ReferenceTask
) -> None:
    """Raises CandidateFailed for a slot whose arguments are others than were given. Where the reference works in place,
    so may the candidate.
    """
    given = inputs if reference.keeps_inputs is not False else None
    if name := slots.changed_argument(slot, given, parameters):
        raise CandidateFailed(Outcome.INCORRECT, "input_mutated", f"it changes its argument {name}")


def require_idle(cell: Cell, call_us: float) -> None:
    """Raises CandidateFailed where one that has answered is still computing (a thread that fills the output later).

    Args:
        call_us: which its last calls took.
    """
    before, start = cell.cpu_seconds(), time.perf_counter()
    time.sleep(min(0.01, call_us / 1e6))
    after, waited = cell.cpu_seconds(), time.perf_counter() - start
    if before is not None and after is not None and after - before > _IDLE_CPU_S + _IDLE_CPU_SHARE * waited:
        raise CandidateFailed(
            Outcome.QUARANTINED, "work_after_return", "it still computes after its launcher has returned"
        )


def call_timeout_s(reference: ReferenceTask, protocol: JudgeProtocol) -> float:
    """Seconds that a call in a trial may take: one that never ends keeps the device from all other kernels."""
    slowest_s = max(protocol.call_timeout_s, protocol.call_slowdown * reference.call_s)
    return min(protocol.run_timeout_s, slowest_s)


def module_trials(
    cell: Cell, reference: ReferenceTask, slots: SharedSlots, protocol: JudgeProtocol, found: Findings
) -> Trials:
    """The trials that go with how a module keeps its parameters.

    Of the reference's names and values: they are given others in all trials but the first. Under other names, or of
    other values and right with them (a bias with a constant folded in), as KernelBench leaves them: as they were made
    from the seed, throughout. Of other values and wrong with them (drawn in another order): as if of the same.

    Raises:
        CandidateFailed: it fails.
    """
    first = reference.trials[0]
    if not first.parameters:
        return reference.trials
    timeout_s = call_timeout_s(reference, protocol)
    slots.fill(0, first.inputs, first.parameters)
    settle(protocol)
    reply = cell.request({"parameters": 0}, protocol.run_timeout_s)
    cell.raise_for(reply)
    try:
        if reply.get("parameters") == "same":
            return reference.trials
        if reply.get("parameters") == "changed":
            _run_trial(cell, 0, first, slots, protocol, found, timeout_s, load_parameters=False)
            _compare(slots, slots.outputs[0], first, protocol, None)
    except CandidateFailed as e:
        if e.outcome is Outcome.INCORRECT:
            return reference.trials
        raise
    cell.request({"parameters": None}, protocol.run_timeout_s)
    found.details["parameters"] = "as made from the seed"
    return reference.seeded_trials


def _run_trial(
    cell: Cell,
    slot: int,
    trial: Trial,
    slots: SharedSlots,
    protocol: JudgeProtocol,
    found: Findings,
    timeout_s: float,
    *,
    load_parameters: bool,
) -> list[float]:
    """Microseconds of a call on a trial; what KernelBench's check says of it is recorded, if it is the one for that."""
    slots.fill(slot, trial.inputs, trial.parameters)
    slots.poison_outputs(slot)
    settle(protocol)
    elapsed_us = cell.call([], [slot], timeout_s, load_parameters=load_parameters).us
    if trial.eager_outputs is not None:
        outputs = slots.outputs[slot]
        passed = any(all(map(kernelbench_allclose, outputs, eager)) for eager in trial.eager_outputs)
        found.details.setdefault("kernelbench_check", "passed" if passed else "failed")
        if not passed:
            furthest = max(
                float((o.double() - r.double()).abs().max()) for o, r in zip(outputs, trial.outputs, strict=True)
            )
            found.details.setdefault(
                "kernelbench_says",
                f"an output is off by {furthest:.3g}, its tolerance is 1e-4 plus 1e-4 of what is expected",
            )
    return elapsed_us


def check_trials(
    cell: Cell,
    reference: ReferenceTask,
    trials: Trials,
    slots: SharedSlots,
    protocol: JudgeProtocol,
    found: Findings,
    pause: Callable[[], None],
) -> float:
    """All correctness trials, in slots of their own where there are so many. Returns the kernel's median call, us.

    Args:
        pause: called where nothing is being timed.

    Raises:
        CandidateFailed: it fails, writes outside of its outputs or is wrong.
    """
    timeout_s, deadline = call_timeout_s(reference, protocol), time.monotonic() + protocol.run_timeout_s
    elapsed_us: list[float] = []
    for i in range(len(trials)):
        pause()
        start, slot = time.monotonic(), i % slots.num_slots
        trial = trials[i]
        deadline += time.monotonic() - start  # a large one is made anew
        remaining_s = min(timeout_s, max(0.01, deadline - time.monotonic()))
        elapsed_us += _run_trial(cell, slot, trial, slots, protocol, found, remaining_s, load_parameters=True)
        require_intact(slots, slot, trial.inputs, trial.parameters, reference)
        _compare(slots, slots.outputs[slot], trial, protocol, found)
        found.trials_passed += 1
        del trial  # before the next one is made
    return statistics.median(elapsed_us)


def check_guarded(
    cell: Cell, reference: ReferenceTask, slots: SharedSlots, protocol: JudgeProtocol, *, has_own_outputs: bool
) -> bool:
    """On a host: the first trial once more, each tensor beside protected pages, and inputs that can only be read.

    A vector load that needs more alignment than there is at the very end of a page, and fails only there, is none of
    its faults.

    Args:
        has_own_outputs: makes them itself, so that they are not in this memory.

    Returns:
        Whether its cell is still there.

    Raises:
        CandidateFailed: it touches what is not its own.
    """
    first, timeout_s = reference.trials[0], call_timeout_s(reference, protocol)
    num_given = len(slots.spec.inputs) + len(slots.spec.parameters)
    for number, place in enumerate(PLACES):
        arguments, views = slots.guarded(first.inputs, place)
        sizes = [a["num_bytes"] for a in arguments if "offset" in a]
        if place == "end" and not any(size % ALIGNMENT_BYTES for size in sizes):
            continue  # as before
        for view, x in zip(views, [*first.inputs, *first.parameters], strict=False):
            if view is not None:
                core(view).copy_(core(x))
        if not has_own_outputs:
            for view in views[num_given:]:
                assert view is not None
                view.view(-1).view(torch.uint8).fill_(0xFF)
        try:
            reply = cell.request({"guarded": number, "at_end": place != "start"}, timeout_s)
            cell.raise_for(reply)
        except CandidateFailed:
            if place == "end":
                return False
            raise
        if "fault" not in reply:
            continue
        text = _told_fault(reply["fault"], slots)
        if text is None and place == "end":
            return False
        if text and " writes to " in text:
            raise CandidateFailed(Outcome.INCORRECT, "input_mutated", text)
        text = text or "it touches memory that is not its own"
        raise CandidateFailed(Outcome.RUNTIME_ERROR, "out_of_bounds", text)
    return True


def _told_fault(fault: object, slots: SharedSlots) -> str | None:
    """Where an access was, as its author is told; None where it was beside no tensor."""
    specs = (*slots.spec.inputs, *slots.spec.parameters, *slots.spec.outputs)
    known = fault if isinstance(fault, dict) else {}
    number, place = known.get("argument"), known.get("bytes")
    does = "writes" if known.get("write") is True else "reads" if known.get("write") is False else "reads or writes"
    if type(own := known.get("own")) is int and type(place) is int:
        side = "before the start" if place < 0 else "past the end"
        return f"it {does} {side} of a tensor that it made: at byte {place}, and that tensor has {own} bytes"
    if type(number) is not int or type(place) is not int or not 0 <= number < len(specs):
        return None
    spec = specs[number]
    element = place // DTYPES[spec.dtype].itemsize
    at = f"{spec.name}[{element}], and {spec.name} has {spec.num_elements} elements"
    if element < 0:
        return f"it {does} before the start of {spec.name}: at {at}"
    if element >= spec.num_elements:
        return f"it {does} past the end of {spec.name}: at {at}"
    return f"it writes to its argument {spec.name}: at {spec.name}[{element}]"


def check_fewer_rows(
    cell: Cell, reference: ReferenceTask, fewer: Trial, slots: SharedSlots, protocol: JudgeProtocol
) -> None:
    """The slot behind the last, which lies in the memory of the first: ``fewer`` is a part of the first trial.

    Raises:
        CandidateFailed: it fails or is wrong.
    """
    slots.fill(0, reference.trials[0].inputs, fewer.parameters)
    _, inputs, outputs = slots.reshaped(fewer.inputs, fewer.outputs)
    for view, x in zip(inputs, fewer.inputs, strict=True):
        if view is not None:
            view.copy_(x)
    slots.poison_outputs(0)
    settle(protocol)
    cell.call([], [slots.num_slots], call_timeout_s(reference, protocol), load_parameters=True)
    _compare(slots, outputs, fewer, protocol, None)
