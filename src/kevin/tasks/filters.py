"""Quality filters: is a task worth a kernel, and can a wrong kernel be told from a right one?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from kevin.core.types import Frozen, Task
from kevin.tasks.format import init_model, load_module, make_inputs, run_model
from kevin.tasks.rules import first_objection

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

Reason = Literal[
    "idle_operator",
    "constant_output",
    "reduction_skippable",
    "not_finite",
    "not_deterministic",
    "near_zero",
    "ignores_input",
    "ignores_parameter",
]

_MAX_ZERO_SHARE = 0.9
_TOLERANCE = 1e-4
"""The judge's, of both kinds: a difference below it is one that the judge cannot see."""


class Rejection(Frozen):
    """Why a task was turned down."""

    task_id: str
    reason: Reason
    message: str


def check_task(task: Task, *, num_threads: int = 1) -> Rejection | None:
    """The first thing wrong with a task, or None. Runs the reference on the CPU some twenty times.

    Raises TaskError for a reference that is not in the format, or fails.
    """
    import torch

    if bad := first_objection(task.ops):
        return Rejection(task_id=task.id, reason=bad.reason, message=bad.message)
    threads = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        probe = _Probe(load_module(task.source, task.id))
        found = probe.values() or probe.inputs() or probe.parameters()
    finally:
        torch.set_num_threads(threads)
    return Rejection(task_id=task.id, reason=found[0], message=found[1]) if found else None


_Finding = tuple[Reason, str] | None


class _Probe:
    """One reference with its outputs, to be disturbed here and there."""

    def __init__(self, module: ModuleType) -> None:
        self.model = init_model(module, seed=0)
        self.base_inputs = make_inputs(module, seed=1)
        self.other_inputs = make_inputs(module, seed=2)
        self.run: Callable[[Sequence[Any]], list[torch.Tensor]] = lambda x: run_model(module, self.model, x)
        self.base = [o.clone() for o in self.run(self._copies(self.base_inputs))]

    @staticmethod
    def _copies(inputs: Sequence[Any]) -> list[Any]:
        return [v.clone() if hasattr(v, "clone") else v for v in inputs]

    def _same(self, outputs: Sequence[torch.Tensor]) -> bool:
        """Whether the judge would take ``outputs`` for the base's."""
        return len(outputs) == len(self.base) and all(
            a.shape == b.shape and a.allclose(b.to(a.dtype), rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
            for a, b in zip(self.base, outputs, strict=True)
        )

    def values(self) -> _Finding:
        for out in self.base:
            if out.is_floating_point() and not out.isfinite().all():
                return "not_finite", f"{int((~out.isfinite()).sum())} of {out.numel()} outputs are not finite"
        if not self._same(self.run(self._copies(self.base_inputs))):
            return "not_deterministic", "two runs on the same inputs differ by more than the tolerance"
        zeros = [float((o.abs() <= _TOLERANCE).float().mean()) for o in self.base if o.is_floating_point()]
        if zeros and min(zeros) > _MAX_ZERO_SHARE:
            return "near_zero", f"{min(zeros):.0%} of the outputs are zero within the tolerance"
        if self.base_inputs and self._same(self.run(self._copies(self.other_inputs))):
            return "constant_output", "other inputs give the same outputs within the tolerance"
        return None

    def inputs(self) -> _Finding:
        for i, other in enumerate(self.other_inputs):
            changed = self._copies(self.base_inputs)
            changed[i] = other.clone() if hasattr(other, "clone") else other * 2 + 1
            if self._same(self.run(changed)):
                return "ignores_input", f"input {i} does not change the outputs beyond the tolerance"
        return None

    def parameters(self) -> _Finding:
        import torch

        generator = torch.Generator().manual_seed(0)
        for name, p in self.model.named_parameters():
            if not p.is_floating_point():
                continue
            kept = p.detach().clone()
            spread = float(kept.std()) if kept.numel() > 1 else 0.0
            with torch.no_grad():
                p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype) * (spread or 1.0))
            same = self._same(self.run(self._copies(self.base_inputs)))
            with torch.no_grad():
                p.copy_(kept)
            if same:
                return "ignores_parameter", f"parameter {name} does not change the outputs beyond the tolerance"
        return None
