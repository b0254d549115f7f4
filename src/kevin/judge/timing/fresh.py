"""The slots of a candidate that is timed: every call has inputs that were never seen before, and outputs that are known
to be its own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Outcome
from kevin.judge.correctness.checks import require_intact, require_unchanged
from kevin.judge.correctness.compare import compare
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.sandbox.cell import CandidateFailed
from kevin.judge.sandbox.slots import SharedSlots

_SAMPLED_ELEMENTS = 1 << 16
_ROOM = 2.0
"""More tolerance than in the checks: inputs of which a part was rescaled are less even, and sums of them less exact."""

Outputs = list[torch.Tensor]
Places = list[torch.Tensor | None]
"""Of each output the secret elements that are compared; None for all."""


def at(outputs: Outputs, places: Places) -> Outputs:
    return [x if some is None else x.view(-1)[some] for x, some in zip(outputs, places, strict=True)]


class FreshSlots:
    """``inputs[i]`` is the judge's private copy of slot i, which was filled with ``first``; ``views[i]`` is what eager
    reads."""

    def __init__(
        self,
        slots: SharedSlots,
        reference: ReferenceTask,
        first: list[Any],
        inputs: list[list[Any]],
        protocol: JudgeProtocol,
    ) -> None:
        self.slots, self.reference, self.protocol = slots, reference, protocol
        self.first, self.inputs, self.views = first, inputs, inputs
        if protocol.device == "cuda":
            # eager reads the very memory that the candidate reads, so that page sizes and placement favour neither; on
            # a host its own process does
            pairs = zip(slots.inputs, inputs, strict=True)
            self.views = [[x if v is None else v for v, x in zip(shared, own, strict=True)] for shared, own in pairs]
        self.random = random.SystemRandom()
        self.parameters = reference.trials[0].parameters
        self._num_filled = 0

    def fill(self, num: int) -> None:
        """The first ``num``, but for those that are filled already."""
        for slot in range(self._num_filled, num):
            self.slots.fill(slot, self.inputs[slot], self.parameters)
        self._num_filled = max(self._num_filled, num)

    def restore(self, order: Sequence[int]) -> None:
        """The inputs as they were, where the candidate may change them as the reference does."""
        if self.reference.keeps_inputs is False:
            for slot in order:
                self.slots.fill(slot, self.inputs[slot], self.parameters)

    def renew(self, slots: Sequence[int]) -> None:
        """Change some elements in the judge's copies and write them through to the slots; poison the outputs."""
        for slot in slots:
            self.restore([slot])
            self.reference.change_some(self.inputs[slot], self.slots.inputs[slot], self.first)
            self.slots.poison_outputs(slot)

    def expected(self, slot: int) -> Outputs:
        return self.reference.forward(self.inputs[slot], self.parameters)

    def verify(self, outputs: Outputs, expected: Outputs) -> None:
        """Compare one timed call: in full in a random third of all times, else at secret places if it is large.

        Raises:
            CandidateFailed: it is wrong.
        """
        in_full = self.random.random() < 1 / 3
        places: Places = [None] * len(expected) if in_full else self.places(expected)
        self.compare(at(outputs, places), at(expected, places))

    def places(self, outputs: Outputs) -> Places:
        """Secret ones of each that is large."""
        generator = self.reference.generator
        return [
            torch.randint(x.numel(), (_SAMPLED_ELEMENTS,), generator=generator, device=x.device)
            if x.numel() > 4 * _SAMPLED_ELEMENTS
            else None
            for x in outputs
        ]

    def compare(self, found: Outputs, expected: Outputs) -> None:
        """Raises CandidateFailed where they are not equal, as far as that is asked."""
        p, slacks = self.protocol, self.reference.trials[0].slack
        for spec, o, r, slack in zip(self.slots.spec.outputs, found, expected, slacks, strict=True):
            result = compare(spec.name, o, r, atol=p.atol, rtol=p.rtol, slack=slack, room=_ROOM)
            if not result.passed:
                text = f"correct when checked, wrong when timed: {result.message}"
                raise CandidateFailed(Outcome.INCORRECT, "wrong_after_timing", text)

    def require_unchanged(self, slots: Sequence[int]) -> None:
        """Raises CandidateFailed where the candidate has changed what it was given."""
        for slot in slots:
            require_unchanged(self.slots, slot, self.inputs[slot], self.parameters, self.reference)

    def require_intact(self) -> None:
        """The same of all slots, and of what lies around their tensors."""
        for slot in range(self._num_filled):
            require_intact(self.slots, slot, self.inputs[slot], self.parameters, self.reference)
