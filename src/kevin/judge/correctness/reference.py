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
import time
from collections import OrderedDict
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch

from kevin.core.errors import DeviceFullError, DeviceLostError, KevinError, TaskError, first_line
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task
from kevin.judge.correctness.compare import NO_SLACK, Slack, compare, norm_of
from kevin.judge.correctness.model import Flags, ReferenceModel, channels_last, exact, flatten
from kevin.judge.correctness.trials import Trial, Trials, keeps_trials, redraw
from kevin.tasks.layout import flat, laid_out, like

log = logging.getLogger(__name__)

_CHANGED_ELEMENTS = 64
_LEAST_ROWS = 4
_PARAMETER_NOISE = 0.1
_CHUNK_ELEMENTS = 1 << 27


class ReferenceTask(ReferenceModel):
    """One task ready to be judged against: ``trials[i]`` holds trial i."""

    def __init__(self, task: Task, protocol: JudgeProtocol) -> None:
        self.generator = torch.Generator(torch.device(protocol.device)).manual_seed(secrets.randbits(63))
        super().__init__(task, protocol, secrets.randbits(31))
        self._protocol = protocol
        self._trial_seeds = [secrets.randbits(63) for _ in range(protocol.num_trials)]
        self._initial = [p.detach().clone() for p in self._own]
        self._scalars: dict[int, Any] | None = None
        """Passed by value and fixed when a cell starts, so they are the same in every trial."""
        self._widen = protocol.device == "cuda" and self._allows_tf32
        self.fastest_us = math.inf
        """Of a round of eager calls, over all candidates so far."""
        self.call_s = math.inf
        """Wall time of the shortest call of the model so far."""
        self.working_bytes = 0
        """What a call of the model takes beside its inputs and parameters, its outputs included."""
        keeps = keeps_trials(self.spec, protocol.num_trials)
        self.trials = Trials(self._make_trial, protocol.num_trials, keeps=keeps)
        for i in range(protocol.num_trials):  # a model that fails on one of them fails here
            self.trials[i]
        self._changed: dict[int, tuple[Any, ...]] = {}
        """Indices of what `change_some` last changed, by the address of the input."""
        self._require_no_memory()
        self.set_parameters(self._initial)

    def _require_no_memory(self) -> None:
        """Raises TaskError where the same inputs and random numbers give other outputs at a later call."""
        trial = self.trials[0]
        seed = secrets.randbits(31)
        outputs: list[list[torch.Tensor]] = []
        for _ in range(2):
            torch.manual_seed(seed)
            outputs.append(self.forward(trial.inputs, trial.parameters))
        for spec, before, after in zip(self.spec.outputs, *outputs, strict=True):
            if not compare(
                spec.name, after, before, atol=self._protocol.atol, rtol=self._protocol.rtol, room=2.0
            ).passed:
                raise TaskError(
                    f"task {self.task.id}: the reference gives other outputs ({spec.name}) for the same inputs when it "
                    f"is called again, so no kernel can be compared with it: let forward keep nothing between calls"
                )

    @property
    def scalars(self) -> dict[int, Any]:
        """Inputs that are no tensors, by position."""
        return self._scalars or {}

    def _draw(self, distribution: str, generator: torch.Generator) -> list[Any]:
        torch.manual_seed(int(torch.randint(2**31 - 1, (1,), generator=generator, device=self.device)))
        with torch.device(self.device):
            drawn = [self._place(x) for x in self._module.get_inputs()]
        for i, x in enumerate(drawn):
            drawn[i] = redraw(x, distribution, generator)
            del x  # it may be of many gigabytes
        if self._scalars is None:
            self._scalars = {i: x for i, x in enumerate(drawn) if not isinstance(x, torch.Tensor)}
        drawn = [self._scalars.get(i, x) for i, x in enumerate(drawn)]
        pairs = zip(drawn, self.spec.inputs, strict=True)
        return [laid_out(x, s.stride) if isinstance(x, torch.Tensor) else x for x, s in pairs]

    def _place(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return x.to(self.device, self._dtype if x.dtype.is_floating_point else x.dtype)

    def _make_trial(self, index: int, known: list[Slack] | None) -> Trial:
        generator = torch.Generator(self.device).manual_seed(self._trial_seeds[index])
        distributions = self._protocol.distributions
        distribution = distributions[index % len(distributions)]
        parameters = self._initial if index == 0 else self._perturbed(generator)
        inputs = self._draw(distribution, generator)
        is_kernelbenchs = index == 0 and distribution == "task"
        trial = self._trial(inputs, parameters, known, is_kernelbenchs=is_kernelbenchs)
        if distribution != "task" and not all(bool(torch.isfinite(o).all()) for o in trial.outputs):
            del inputs, trial
            trial = self._trial(self._draw("task", generator), parameters, known)  # e.g. normals given to a logarithm
        return trial

    def _perturbed(self, generator: torch.Generator) -> list[torch.Tensor]:
        return [
            p + _PARAMETER_NOISE * torch.randn(p.shape, generator=generator, device=self.device).to(p.dtype)
            for p in self._initial
        ]

    def _trial(
        self,
        inputs: list[Any],
        parameters: list[torch.Tensor],
        slack: list[Slack] | None = None,
        *,
        is_kernelbenchs: bool = False,
    ) -> Trial:
        """``slack``: of the same trial when it was made before; without it eager runs by its default flags too."""
        outputs = self.forward(inputs, parameters)
        if slack is not None:
            return Trial(inputs, parameters, outputs, slack)
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
        yield self.forward(inputs, parameters, self.as_user)
        if "conv" in self.task.source.lower():
            # the layout keeps it apart from the algorithm that cuDNN remembers for eager as it is timed
            yield self.forward(channels_last(inputs), parameters, partial(self.as_user, searches=True))

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

    @cached_property
    def seeded_trials(self) -> Trials:
        """The trials with the freshly seeded weights throughout, for a module with parameters of other names."""
        return Trials(self._seeded_trial, len(self.trials), keeps=self.trials.keeps)

    def _seeded_trial(self, index: int, known: list[Slack] | None) -> Trial:
        if index == 0:
            return self.trials[0]
        return self._trial(self.trials[index].inputs, self._initial, known)

    def kernelbench_trial(self) -> Trial:
        """One more trial as KernelBench makes them: inputs of the task's own, the weights as seeded."""
        return self._trial(self._draw("task", self.generator), self._initial, is_kernelbenchs=True)

    def forward(self, inputs: list[Any], parameters: list[torch.Tensor], flags: Flags = exact) -> list[torch.Tensor]:
        """Outputs, contiguous; without TF32 by default. Inputs stay as they are: in-place modules get a copy."""
        self.set_parameters(parameters)
        with torch.no_grad():
            given = inputs
            if self.keeps_inputs is not True:
                given = [like(x) if isinstance(x, torch.Tensor) else x for x in inputs]
            with flags(), self._measured(), self._clocked():
                outputs = [o.detach().contiguous() for o in flatten(self.model(*given))]
            if self.keeps_inputs is None:
                self.keeps_inputs = all(_same(a, b) for a, b in zip(given, inputs, strict=True))
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

    @contextmanager
    def _clocked(self) -> Iterator[None]:
        self._wait()
        start = time.perf_counter()
        yield
        self._wait()
        self.call_s = min(self.call_s, time.perf_counter() - start)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def change_some(self, inputs: list[Any], views: list[torch.Tensor | None], firsts: list[Any]) -> None:
        """Change every floating-point input in place so that no earlier answer fits; ``views`` get the same change.

        An eighth of the tensor, at a secret place, is scaled by a secret factor, which moves even the mean of all of
        it, and a few scattered elements besides; what was changed before is as at first again, so that changes do not
        add up. Zeros and signs stay, and a symmetric matrix is scaled as a whole, so that what a task promises about
        its inputs still holds.

        Where no input has floating-point numbers, the rows of each are put in another order, all of one number in the
        same. What is in order or symmetric stays, since that may be what the task promises.

        Args:
            inputs: of a slot; they began as copies of ``firsts``, and all three lie alike.
        """
        if not any(view is not None and view.dtype.is_floating_point for view in views):
            self._reorder(inputs, views)
        for x, view, first in zip(inputs, views, firsts, strict=True):
            if view is None or not x.dtype.is_floating_point or x.numel() == 0:
                continue
            own, shared = flat(x), flat(view)
            for part in self._changed.pop(x.data_ptr(), ()):
                shared[part] = own[part] = flat(first)[part]
            factor, place = torch.rand(2, generator=self.generator, device=self.device).tolist()
            factor = math.exp(0.8 * factor - 0.4)
            if _is_symmetric(x):
                shared.copy_(own.mul_(factor))
                self._changed[x.data_ptr()] = (slice(None),)
                continue
            size = -(-own.numel() // 8)
            start = int(place * (own.numel() - size + 1))
            eighth = slice(start, start + size)
            shared[eighth] = own[eighth].mul_(factor)
            n = min(_CHANGED_ELEMENTS, own.numel())
            at = torch.randint(own.numel(), (n,), generator=self.generator, device=self.device)
            own[at] = own[at] * (0.5 + torch.rand(n, generator=self.generator, device=self.device)).to(x.dtype)
            shared[at] = own[at]
            self._changed[x.data_ptr()] = (eighth, at)

    def _reorder(self, inputs: list[Any], views: list[torch.Tensor | None]) -> None:
        orders: dict[int, torch.Tensor] = {}
        for x, view in zip(inputs, views, strict=True):
            if view is None or x.numel() < 2 or not x.is_contiguous() or _is_ordered(x) or _is_symmetric(x):
                continue
            dim = next(d for d, size in enumerate(x.shape) if size > 1)
            if (size := x.shape[dim]) not in orders:
                orders[size] = torch.randperm(size, generator=self.generator, device=self.device)
            view.copy_(x.copy_(x.index_select(dim, orders[size])))


def _apart(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Largest absolute difference of two tensors of one shape, and their distance over the norm of the first.

    What is not a number is left out; there are no large copies.
    """
    furthest = distance = norm = 0.0
    for x, y in zip(a.reshape(-1).split(_CHUNK_ELEMENTS), b.reshape(-1).split(_CHUNK_ELEMENTS), strict=True):
        if len(x):
            difference = (x.float() - y.float()).abs_().nan_to_num_(0.0, 0.0)
            furthest = max(furthest, float(difference.max()))
            distance += norm_of(difference) ** 2
            norm += norm_of(x.float().nan_to_num(0.0, 0.0, 0.0)) ** 2  # a copy: it is the expected output
    return furthest, math.sqrt(distance / norm) if norm else 0.0


def _same(a: Any, b: Any) -> bool:
    return not isinstance(a, torch.Tensor) or torch.equal(a, b)


def _is_ordered(x: torch.Tensor) -> bool:
    """Whether it is a row of numbers that never fall or never rise, such as offsets or lengths."""
    row = x.squeeze()
    return row.dim() == 1 and bool((row[1:] >= row[:-1]).all() or (row[1:] <= row[:-1]).all())


def _is_symmetric(x: torch.Tensor) -> bool:
    """Whether the last two dimensions form symmetric matrices; a look at one row tells most others apart."""
    if x.dim() < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < 2:
        return False
    return torch.equal(x[..., 0, :], x[..., :, 0]) and torch.equal(x, x.mT)


def does_not_fit(task: Task, error: Exception) -> DeviceFullError:
    """What to raise for an allocation that failed on the device."""
    reason = str(error).split("\n")[0].partition(" If reserved but unallocated")[0]
    return DeviceFullError(
        f"task {task.id} does not fit on the device beside what else is there: {reason} A model on this GPU takes "
        f"policies.<name>.memory_share of it, in training train.vllm_memory_share: lower that, or judge on another GPU "
        f"(pool.gpus)"
    )


def make_reference(task: Task, protocol: JudgeProtocol) -> ReferenceTask:
    """Raises TaskError when the reference itself does not run, DeviceFullError when it does not fit."""
    if protocol.device == "cuda":
        torch.cuda.empty_cache()  # other workers share the GPU
    try:
        return ReferenceTask(task, protocol)
    except KevinError:
        raise
    except torch.OutOfMemoryError as e:
        raise does_not_fit(task, e) from None
    except torch.AcceleratorError as e:
        raise DeviceLostError(
            f"the GPU failed while the reference of {task.id} ran: {first_line(e)}. If it does so for "
            f"this task alone, the task is at fault; else look at nvidia-smi and at dmesg for Xid errors"
        ) from e
    except Exception as e:
        raise TaskError(f"task {task.id}: the reference itself failed: {type(e).__name__}: {e}") from e


class ReferenceCache:
    """The last few tasks' references, built on demand; least recently used ones go first."""

    def __init__(self, protocol: JudgeProtocol, max_tasks: int) -> None:
        self._protocol = protocol
        self._max_tasks = max_tasks
        self._tasks: OrderedDict[str, ReferenceTask] = OrderedDict()

    def __contains__(self, task: Task) -> bool:
        return task.digest in self._tasks

    def discard(self, task_digest: str) -> None:
        self._tasks.pop(task_digest, None)

    def keep(self, task_digests: Set[str]) -> None:
        """Of these tasks alone."""
        for digest in self._tasks.keys() - task_digests:
            self.discard(digest)

    def get(self, task: Task) -> ReferenceTask:
        """Errors as `make_reference`."""
        found = self._tasks.pop(task.digest, None)
        if found is None:
            while len(self._tasks) >= self._max_tasks:
                self._tasks.popitem(last=False)
            found = make_reference(task, self._protocol)
        self._tasks[task.digest] = found
        return found
