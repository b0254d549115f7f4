"""The trusted side of a task: its model, secret inputs, expected outputs. Lives in the device worker, never in a cell.

Every `ReferenceTask` draws its own seed from the operating system, so no candidate can know an input beforehand. The
module's own `get_inputs` gives the first distribution; the others redraw the floating-point inputs, and every
trial but the first also perturbs the parameters, so that a kernel that ignores a freshly initialised weight of ones
or bias of zeros is found out.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, overload

import torch

from kevin.core.errors import DeviceFullError, DeviceLostError, KevinError, TaskError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task, TaskSpec
from kevin.judge.compare import NO_SLACK, Slack
from kevin.judge.memory import DTYPES, slot_bytes
from kevin.tasks.format import inspect_task, load_module

log = logging.getLogger(__name__)

_CHANGED_ELEMENTS = 64
_LEAST_ROWS = 4
_PARAMETER_NOISE = 0.1
_KEPT_BYTES = 4 << 30
"""Of a task's trials that are kept; larger ones are made again for each candidate."""
_CHUNK_ELEMENTS = 1 << 27

Flags = Callable[[], AbstractContextManager[None]]


class Trial:
    """One set of secret inputs with its parameters and expected outputs: contiguous device tensors, or scalars."""

    def __init__(
        self,
        inputs: list[Any],
        parameters: list[torch.Tensor],
        outputs: list[torch.Tensor],
        slack: list[Slack],
        eager_outputs: list[list[torch.Tensor]] | None = None,
    ) -> None:
        self.inputs = inputs
        self.parameters = parameters
        self.outputs = outputs
        self.slack = slack
        """For each output, what PyTorch's default precision, or chance, may add to the tolerance."""
        self.eager_outputs = eager_outputs
        """Of the trial that KernelBench could have made, in each way that it could have run; None for the others."""


class Trials(Sequence[Trial]):
    """Made when they are asked for, always the same. The first one stays, the others where there is memory for that."""

    def __init__(self, make: Callable[[int], Trial], num: int, *, keeps: bool) -> None:
        self._make, self._num, self.keeps = make, num, keeps
        self._kept: dict[int, Trial] = {}

    def __len__(self) -> int:
        return self._num

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Trial]: ...
    def __getitem__(self, index: int | slice) -> Trial | Sequence[Trial]:
        if isinstance(index, slice):
            return [self[i] for i in range(self._num)[index]]
        if not 0 <= index < self._num:
            raise IndexError(index)
        trial = self._kept.get(index) or self._make(index)
        if self.keeps or index == 0:
            self._kept[index] = trial
        return trial


def does_not_fit(task: Task, error: Exception) -> DeviceFullError:
    """What to raise for an allocation that failed on the device."""
    return DeviceFullError(f"task {task.id} does not fit on the device: {str(error).splitlines()[0]}")


def keeps_trials(spec: TaskSpec, num_trials: int) -> bool:
    """Whether a task is so small that all its trials are kept."""
    return num_trials * slot_bytes(spec) <= _KEPT_BYTES


def _flatten(result: Any) -> list[torch.Tensor]:
    items = list(result) if isinstance(result, tuple | list) else [result]
    return [r if isinstance(r, torch.Tensor) else torch.as_tensor(r) for r in items]


def redraw(x: Any, distribution: str, generator: torch.Generator) -> Any:
    """A floating-point tensor of the same shape from another distribution; anything else unchanged."""
    if distribution == "task" or not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point:
        return x
    fresh = torch.randn(x.shape, generator=generator, dtype=torch.float32, device=generator.device)
    if distribution == "wide":
        fresh = fresh * 4.0
    elif distribution == "shifted":
        fresh = fresh * 0.5 + 1.5
    return fresh.to(x.dtype)


@contextmanager
def _exact() -> Iterator[None]:
    """Convolutions and products in full float32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def _searching() -> Iterator[None]:
    """PyTorch's default flags, but convolutions by the fastest algorithm that cuDNN finds."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _channels_last(inputs: list[Any]) -> list[Any]:
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

    def _state(self) -> list[torch.Tensor]:
        """Parameters then floating-point buffers, in the order of the spec."""
        buffers = [b for _, b in self.model.named_buffers() if b.dtype.is_floating_point]
        return [*self.model.parameters(), *buffers]

    def set_parameters(self, values: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for own, value in zip(self._own, values, strict=True):
                own.copy_(value)

    def run_timed(
        self, clock: Callable[[Callable[[], object]], int], warm: list[Any], slots: list[list[Any]], keep: int
    ) -> tuple[list[int], list[torch.Tensor]]:
        """Nanoseconds by ``clock`` of one eager call on each slot after an untimed one on ``warm``; result ``keep``."""
        results: list[Any] = []  # all kept until the end, as a cell keeps the candidate's: no call reuses memory
        with torch.no_grad():
            self.model(*warm)
            elapsed = [clock(lambda i=i: results.append(self.model(*i))) for i in slots]  # type: ignore[misc]
        return elapsed, [o.contiguous() for o in _flatten(results[keep])]

    def run_burst(self, inputs: list[Any], num_calls: int) -> None:
        """So many eager calls in a row, enqueued and not waited for."""
        with torch.no_grad():
            for _ in range(num_calls):
                self.model(*inputs)


class ReferenceTask(ReferenceModel):
    """One task ready to be judged against: ``trials[i]`` holds trial i."""

    def __init__(self, task: Task, protocol: JudgeProtocol) -> None:
        self.generator = torch.Generator(torch.device(protocol.device)).manual_seed(secrets.randbits(63))
        super().__init__(task, protocol, secrets.randbits(31))
        self._protocol = protocol
        self._trial_seeds = [secrets.randbits(63) for _ in range(protocol.num_trials)]
        self._initial = [p.detach().clone() for p in self._own]
        self._keeps_inputs: bool | None = None
        """Whether the model leaves its inputs as they are; unknown before its first call."""
        self._scalars: dict[int, Any] | None = None
        """Passed by value and fixed when a cell starts, so they are the same in every trial."""
        self._widen = protocol.device == "cuda" and protocol.tf32 == "torch_default"
        self.fastest_us = math.inf
        """Of a round of eager calls, over all candidates so far."""
        self.working_bytes = 0
        """What a call of the model takes beside its inputs and parameters, its outputs included."""
        keeps = keeps_trials(self.spec, protocol.num_trials)
        self.trials = Trials(self._make_trial, protocol.num_trials, keeps=keeps)
        for i in range(protocol.num_trials):  # a model that fails on one of them fails here
            self.trials[i]
        self._seeded_trials: Trials | None = None
        self._changed: dict[int, tuple[Any, ...]] = {}
        """Indices of what `change_some` last changed, by the address of the input."""
        self.set_parameters(self._initial)

    @property
    def scalars(self) -> dict[int, Any]:
        """Inputs that are no tensors, by position."""
        return self._scalars or {}

    def _draw(self, distribution: str, generator: torch.Generator) -> list[Any]:
        torch.manual_seed(int(torch.randint(2**31 - 1, (1,), generator=generator, device=self.device)))
        with torch.device(self.device):
            inputs = [self._place(x) for x in self._module.get_inputs()]
        drawn = [redraw(x, distribution, generator) for x in inputs]
        if self._scalars is None:
            self._scalars = {i: x for i, x in enumerate(drawn) if not isinstance(x, torch.Tensor)}
        drawn = [self._scalars.get(i, x) for i, x in enumerate(drawn)]
        return [x.contiguous() if isinstance(x, torch.Tensor) else x for x in drawn]

    def _place(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return x.to(self.device, self._dtype if x.dtype.is_floating_point else x.dtype)

    def _make_trial(self, index: int) -> Trial:
        generator = torch.Generator(self.device).manual_seed(self._trial_seeds[index])
        distributions = self._protocol.distributions
        distribution = distributions[index % len(distributions)]
        parameters = self._initial if index == 0 else self._perturbed(generator)
        inputs = self._draw(distribution, generator)
        trial = self._trial(inputs, parameters, is_kernelbenchs=index == 0 and distribution == "task")
        if distribution != "task" and not all(bool(torch.isfinite(o).all()) for o in trial.outputs):
            del inputs, trial
            trial = self._trial(self._draw("task", generator), parameters)  # e.g. normals given to a logarithm
        return trial

    def _perturbed(self, generator: torch.Generator) -> list[torch.Tensor]:
        return [
            p + _PARAMETER_NOISE * torch.randn(p.shape, generator=generator, device=self.device).to(p.dtype)
            for p in self._initial
        ]

    def _trial(self, inputs: list[Any], parameters: list[torch.Tensor], *, is_kernelbenchs: bool = False) -> Trial:
        outputs = self.forward(inputs, parameters)
        if not self._widen:
            return Trial(inputs, parameters, outputs, [NO_SLACK] * len(outputs), [outputs] if is_kernelbenchs else None)
        slack, kept = [NO_SLACK] * len(outputs), []
        for eager in self._eager_outputs(inputs, parameters):
            apart = [_apart(o, e) for o, e in zip(outputs, eager, strict=True)]
            slack = [
                Slack(max(s.absolute, 2 * a), max(s.relative, 2 * r)) for s, (a, r) in zip(slack, apart, strict=True)
            ]
            kept.append(eager if any(a for a, _ in apart) else outputs)  # the same is not kept twice
            del eager
        return Trial(inputs, parameters, outputs, slack, kept if is_kernelbenchs else None)

    def _eager_outputs(self, inputs: list[Any], parameters: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
        """By PyTorch's default flags, in each way that a user's process may run them."""
        yield self.forward(inputs, parameters, nullcontext)
        if "conv" in self.task.source.lower():
            # the layout keeps it apart from the algorithm that cuDNN remembers for eager as it is timed
            yield self.forward(_channels_last(inputs), parameters, _searching)

    @cached_property
    def fewer_rows(self) -> Trial | None:
        """The first trial with the leading dimension cut to an odd size; None where the model does not go with that.

        Made when it is first asked for, since a ``c_abi`` kernel has no use for it; the model's parameters are the
        initial ones afterwards.
        """
        try:
            return self._cut_rows()
        finally:
            self.set_parameters(self._initial)

    def _cut_rows(self) -> Trial | None:
        """Not tried where the model takes integers: they may be indices into what is cut."""
        inputs, parameters = self.trials[0].inputs, self._initial
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        integers = [x for x in (*tensors, *self.model.buffers()) if not x.dtype.is_floating_point and x.dim() > 0]
        if not tensors or integers or tensors[0].dim() == 0 or len(tensors[0]) < _LEAST_ROWS:
            return None
        rows = len(tensors[0])
        fewer = (2 * rows // 3) | 1
        same = [isinstance(x, torch.Tensor) and x.dim() > 0 and len(x) == rows for x in inputs]
        only_first = [i == same.index(True) for i in range(len(inputs))]
        for chosen in (same, only_first):
            cut = [x[:fewer] if is_cut else x for x, is_cut in zip(inputs, chosen, strict=True)]
            try:
                trial = self._trial(cut, parameters)
            except torch.AcceleratorError:
                raise
            except torch.OutOfMemoryError:
                return None
            except Exception as e:  # whatever a module raises when it is given a size that it was not made for
                log.debug("%s does not take %d rows: %s", self.task.id, fewer, e)
                continue
            fits = (len(trial.outputs) == len(self.spec.outputs)) and all(
                o.numel() <= s.num_elements for o, s in zip(trial.outputs, self.spec.outputs, strict=True)
            )
            return trial if fits else None
        return None

    def trials_for(self, *, parameters_loadable: bool) -> Trials:
        """The trials; with the freshly seeded weights throughout for a module with parameters of other names."""
        if parameters_loadable or not self._initial:
            return self.trials
        if self._seeded_trials is None:
            self._seeded_trials = Trials(self._seeded_trial, len(self.trials), keeps=self.trials.keeps)
        return self._seeded_trials

    def _seeded_trial(self, index: int) -> Trial:
        if index == 0:
            return self.trials[0]
        return self._trial(self.trials[index].inputs, self._initial)

    def forward(self, inputs: list[Any], parameters: list[torch.Tensor], flags: Flags = _exact) -> list[torch.Tensor]:
        """Outputs, contiguous; without TF32 by default. Inputs stay as they are: in-place modules get a copy."""
        self.set_parameters(parameters)
        with torch.no_grad():
            given = inputs
            if self._keeps_inputs is not True:
                given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
            with flags(), self._measured():
                outputs = [o.detach().contiguous() for o in _flatten(self.model(*given))]
            if self._keeps_inputs is None:
                self._keeps_inputs = all(_same(a, b) for a, b in zip(given, inputs, strict=True))
            return outputs

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Of the first call, how much memory it takes."""
        if self.working_bytes or self.device.type != "cuda":
            yield
            return
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield
        self.working_bytes = torch.cuda.max_memory_allocated() - before

    def change_some(self, inputs: list[Any], views: list[torch.Tensor | None]) -> None:
        """Change every floating-point input in place so that no earlier answer fits; ``views`` get the same change.

        An eighth of the tensor, at a secret place, is scaled by a secret factor, which moves even the mean of all of
        it, and a few scattered elements besides; what was changed before is as at first again, so that changes do not
        add up. Zeros and signs stay, and a symmetric matrix is scaled as a whole, so that what a task promises about
        its inputs still holds.

        Args:
            inputs: of a slot; they began as copies of the first trial's.
        """
        for x, view, first in zip(inputs, views, self.trials[0].inputs, strict=True):
            if view is None or not x.dtype.is_floating_point or x.numel() == 0:
                continue
            flat, shared = x.view(-1), view.view(-1)
            for part in self._changed.pop(x.data_ptr(), ()):
                shared[part] = flat[part] = first.view(-1)[part]
            factor, place = torch.rand(2, generator=self.generator, device=self.device).tolist()
            factor = math.exp(0.8 * factor - 0.4)
            if _is_symmetric(x):
                view.copy_(x.mul_(factor))
                self._changed[x.data_ptr()] = (slice(None),)
                continue
            size = -(-x.numel() // 8)
            start = int(place * (x.numel() - size + 1))
            eighth = slice(start, start + size)
            shared[eighth] = flat[eighth].mul_(factor)
            n = min(_CHANGED_ELEMENTS, x.numel())
            at = torch.randint(x.numel(), (n,), generator=self.generator, device=self.device)
            flat[at] = flat[at] * (0.5 + torch.rand(n, generator=self.generator, device=self.device)).to(x.dtype)
            shared[at] = flat[at]
            self._changed[x.data_ptr()] = (eighth, at)


def _apart(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Largest absolute difference of two tensors of one shape, and their distance over the norm of the first.

    What is not a number is left out; there are no large copies.
    """
    furthest = distance = norm = 0.0
    for x, y in zip(a.reshape(-1).split(_CHUNK_ELEMENTS), b.reshape(-1).split(_CHUNK_ELEMENTS), strict=True):
        if len(x):
            difference = (x.float() - y.float()).abs_().nan_to_num_(0.0, 0.0)
            furthest = max(furthest, float(difference.max()))
            distance += float(difference.square_().sum())
            norm += float(x.float().nan_to_num(0.0, 0.0, 0.0).square_().sum())  # a copy: it is the expected output
    return furthest, math.sqrt(distance / norm) if norm else 0.0


def _same(a: Any, b: Any) -> bool:
    return not isinstance(a, torch.Tensor) or torch.equal(a, b)


def _is_symmetric(x: torch.Tensor) -> bool:
    """Whether the last two dimensions form symmetric matrices; a look at one row tells most others apart."""
    if x.dim() < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < 2:
        return False
    return torch.equal(x[..., 0, :], x[..., :, 0]) and torch.equal(x, x.mT)


class ReferenceCache:
    """The last few tasks' references, built on demand; least recently used ones go first."""

    def __init__(self, protocol: JudgeProtocol, max_tasks: int = 8) -> None:
        self._protocol = protocol
        self._max_tasks = max_tasks
        self._tasks: OrderedDict[str, ReferenceTask] = OrderedDict()

    def __contains__(self, task: Task) -> bool:
        return task.digest in self._tasks

    def discard(self, task_digest: str) -> None:
        self._tasks.pop(task_digest, None)

    def clear(self) -> None:
        self._tasks.clear()

    def get(self, task: Task) -> ReferenceTask:
        """Raises TaskError when the reference itself does not run, DeviceFullError when it does not fit."""
        found = self._tasks.pop(task.digest, None)
        if found is None:
            while len(self._tasks) >= self._max_tasks:
                self._tasks.popitem(last=False)
            if self._protocol.device == "cuda":
                torch.cuda.empty_cache()  # other workers share the GPU
            try:
                found = ReferenceTask(task, self._protocol)
            except KevinError:
                raise
            except torch.OutOfMemoryError as e:
                raise does_not_fit(task, e) from None
            except torch.AcceleratorError as e:
                raise DeviceLostError(
                    f"the GPU failed while the reference of {task.id} ran: {str(e).splitlines()[0]}. If it does so for "
                    f"this task alone, the task is at fault; else look at nvidia-smi and at dmesg for Xid errors"
                ) from e
            except Exception as e:
                raise TaskError(f"task {task.id}: the reference itself failed: {type(e).__name__}: {e}") from e
        self._tasks[task.digest] = found
        return found
