"""A task's own module, run as eager PyTorch: with a user's default flags or exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from kevin.core.errors import TaskError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task, TaskSpec
from kevin.judge.sandbox.slots import DTYPES
from kevin.tasks.format import inspect_task, load_module
from kevin.tasks.layout import like

Flags = Callable[[], AbstractContextManager[None]]


def flatten(result: Any) -> list[torch.Tensor]:
    """What a model returned, one tensor a leaf of nested tuples and lists."""
    if isinstance(result, tuple | list):
        return [leaf for item in result for leaf in flatten(item)]
    return [result if isinstance(result, torch.Tensor) else torch.as_tensor(result)]


_MATMUL_TF32 = torch.backends.cuda.matmul.allow_tf32
"""As a user's process has it; read before any task's module may change it."""


@contextmanager
def flagged(*, cudnn_tf32: bool, matmul_tf32: bool, searches: bool) -> Iterator[None]:
    """With these flags of PyTorch's, which are the whole process's, whatever they were left at."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark
    cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark = cudnn_tf32, matmul_tf32, searches
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark = before


def exact() -> AbstractContextManager[None]:
    """Convolutions and products in full float32."""
    return flagged(cudnn_tf32=False, matmul_tf32=False, searches=False)


def channels_last(inputs: list[Any]) -> list[Any]:
    """Images in the layout that cuDNN prefers."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return [
        x.contiguous(memory_format=formats[x.dim()]) if isinstance(x, torch.Tensor) and x.dim() in formats else x
        for x in inputs
    ]


def _require_precision(spec: TaskSpec, precision: str, name: str) -> None:
    """Raises TaskError for a tensor that goes into the model in another floating-point type."""
    for x in (*spec.inputs, *spec.parameters):
        if x.kind == "tensor" and DTYPES[x.dtype].is_floating_point and x.dtype != precision:
            raise TaskError(
                f"task {name}: {x.name} is {x.dtype}, and inputs and weights are judged in {precision}: make it "
                f"{precision}, and convert it inside forward if the task is about {x.dtype}"
            )


class ReferenceModel:
    """A task's module with its model, built under a seed, on the judging device."""

    def __init__(self, task: Task, protocol: JudgeProtocol, weight_seed: int) -> None:
        self.task = task
        self.weight_seed = weight_seed
        self.device = torch.device(protocol.device)
        self._dtype = getattr(torch, protocol.precision)
        self._allows_tf32 = protocol.tf32 != "off"
        self.spec: TaskSpec = task.spec or inspect_task(task.source, task.id)
        _require_precision(self.spec, protocol.precision, task.id)
        self._module = load_module(task.source, task.id)
        torch.manual_seed(weight_seed)
        # on the host and then moved, as KernelBench does: the same seed must give a candidate the same weights
        init = self._module.get_init_inputs() if hasattr(self._module, "get_init_inputs") else []
        args, kwargs = (tuple(init), {}) if not isinstance(init, dict) else ((), init)
        self.model: torch.nn.Module = self._module.Model(*args, **kwargs).to(self.device, self._dtype)
        self.init_inputs = init
        buffers = [n for n, b in self.model.named_buffers() if b.dtype.is_floating_point]
        self.parameter_names = [*(n for n, _ in self.model.named_parameters()), *buffers]
        self._own = self._state()
        self.keeps_inputs: bool | None = None
        """Whether the model leaves its inputs as they are; unknown before its first call."""

    def _state(self) -> list[torch.Tensor]:
        """Parameters then floating-point buffers, in the order of the spec."""
        buffers = [b for _, b in self.model.named_buffers() if b.dtype.is_floating_point]
        return [*self.model.parameters(), *buffers]

    def set_parameters(self, values: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for own, value in zip(self._own, values, strict=True):
                own.copy_(value)

    def as_user(self, *, searches: bool = False) -> AbstractContextManager[None]:
        """PyTorch's flags as a user's process has them; ``searches``: convolutions by the fastest algorithm found."""
        return flagged(cudnn_tf32=self._allows_tf32, matmul_tf32=self._allows_tf32 and _MATMUL_TF32, searches=searches)

    def own_inputs(self, inputs: list[Any]) -> list[Any]:
        """What a call may be given of the judge's: a copy, where the model works in place."""
        if self.keeps_inputs is False:
            return [like(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        return inputs

    def run_timed(
        self,
        clock: Callable[[Callable[[], object]], int],
        warm: list[Any],
        slots: list[list[Any]],
        keep: Sequence[int] = (),
    ) -> tuple[list[int], list[list[torch.Tensor]]]:
        """Nanoseconds by ``clock`` of one eager call on each slot after an untimed one on ``warm``; outputs of those
        that are to be kept.
        """
        results: list[Any] = []  # all kept until the end, as a cell keeps the candidate's: no call reuses memory
        warm, slots = self.own_inputs(warm), [self.own_inputs(inputs) for inputs in slots]
        with torch.no_grad(), self.as_user():
            self.model(*warm)
            elapsed = [clock(lambda i=i: results.append(self.model(*i))) for i in slots]  # type: ignore[misc]
        return elapsed, [[o.contiguous() for o in flatten(results[i])] for i in keep]

    def run_burst(self, inputs: list[Any], num_calls: int) -> None:
        """So many eager calls in a row, enqueued and not waited for."""
        inputs = self.own_inputs(inputs)
        with torch.no_grad(), self.as_user():
            for _ in range(num_calls):
                self.model(*inputs)
