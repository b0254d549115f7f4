"""Sets of secret inputs with what is expected of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kevin.core.types import TaskSpec
from kevin.judge.correctness.compare import Slack
from kevin.judge.sandbox.slots import slot_bytes
from kevin.tasks.layout import core, like

_KEPT_BYTES = 4 << 30
"""Of a task's trials that are kept; larger ones are made again for each candidate."""


@dataclass(eq=False)
class Trial:
    """One set of secret inputs with its parameters and expected outputs: device tensors that lie as the
    task gives them, or scalars."""

    inputs: list[Any]
    parameters: list[torch.Tensor]
    outputs: list[torch.Tensor]
    slack: list[Slack]
    """For each output, what PyTorch's default precision, or chance, may add to the tolerance."""
    eager_outputs: list[list[torch.Tensor]] | None = None
    """Of the trial that KernelBench could have made, in each way that it could have run; None for the others."""


class Trials:
    """Made when they are asked for, always the same. The first one stays, the others where there is memory for that.

    Of all of them the slack stays, which costs more to find than the rest: eager runs for it, and in another thread
    than the first cuDNN searches for its fastest algorithm again.
    """

    def __init__(self, make: Callable[[int, list[Slack] | None], Trial], num: int, *, keeps: bool) -> None:
        """``make``: is given a trial's number, and its slack where it was made before."""
        self._make, self._num, self.keeps = make, num, keeps
        self._kept: dict[int, Trial] = {}
        self._slacks: dict[int, list[Slack]] = {}

    def __len__(self) -> int:
        return self._num

    def __getitem__(self, index: int) -> Trial:
        if not 0 <= index < self._num:
            raise IndexError(index)
        trial = self._kept.get(index) or self._make(index, self._slacks.get(index))
        self._slacks[index] = trial.slack
        if self.keeps or index == 0:
            self._kept[index] = trial
        return trial


def keeps_trials(spec: TaskSpec, num_trials: int) -> bool:
    """Whether a task is so small that all its trials are kept."""
    return num_trials * slot_bytes(spec) <= _KEPT_BYTES


def redraw(x: Any, distribution: str, generator: torch.Generator) -> Any:
    """A floating-point tensor of the same shape and strides from another distribution; anything else unchanged.

    Beside ``x`` there is one tensor of its size at a time: it may be as large as the device allows.
    """
    if distribution == "task" or not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point:
        return x
    fresh = torch.randn(core(x).shape, generator=generator, dtype=torch.float32, device=generator.device)
    if distribution == "wide":
        fresh.mul_(4.0)
    elif distribution == "shifted":
        fresh.mul_(0.5).add_(1.5)
    return fresh.to(x.dtype) if x.is_contiguous() else like(x, fresh)
