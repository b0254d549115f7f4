"""One model on several devices of a machine, which share a gradient step: each has some of its micro-batches."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch

from kevin.core.errors import DeviceError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from kevin.train.school_batches import Sample

Samples = TypeVar("Samples", bound="Sequence[Sample]")


def school_devices(num_gpus: int) -> list[torch.device]:
    """Of this machine, as many GPUs as are asked for; without any the CPU, once.

    Raises:
        DeviceError: fewer are visible.
    """
    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    if (found := torch.cuda.device_count()) < num_gpus:
        raise DeviceError(
            f"base_model.school_training.num_gpus is {num_gpus}, and {found} can be seen here: lower it, or look at "
            f"CUDA_VISIBLE_DEVICES"
        )
    return [torch.device("cuda", i) for i in range(num_gpus)]


class Copies:
    """The first one is trained; the others have its weights, and what they find out is added to its gradients.

    Work is handed to all devices before any of it is waited for, by one thread: with tens of thousands of tokens a
    micro-batch, a device computes for much longer than it takes to tell it what.
    """

    def __init__(self, model: PreTrainedModel, devices: Sequence[torch.device]) -> None:
        """Moves ``model`` to the first device."""
        model.to(devices[0])  # type: ignore[arg-type]
        self.first = model
        self._others = [copy.deepcopy(model).to(d) for d in devices[1:]]  # type: ignore[arg-type]

    def __len__(self) -> int:
        return 1 + len(self._others)

    def __iter__(self) -> Iterator[PreTrainedModel]:
        yield from (self.first, *self._others)

    def train(self) -> None:
        """Modules that behave differently in training do so."""
        for model in self:
            model.train()

    def shares(self, micro_batches: Sequence[Samples]) -> list[tuple[PreTrainedModel, Samples]]:
        """Who computes which of them, the longest first, so that all have about as many tokens with padding."""
        models = list(self)
        loads = [0] * len(models)
        shared = []
        for part in sorted(micro_batches, key=_padded_tokens, reverse=True):
            i = loads.index(min(loads))
            loads[i] += _padded_tokens(part)
            shared.append((models[i], part))
        return shared

    def forget_gradients(self) -> None:
        for model in self:
            model.zero_grad(set_to_none=True)

    def add_gradients(self) -> None:
        """All gradients to the first one's."""
        for model in self._others:
            for own, other in zip(self.first.parameters(), model.parameters(), strict=True):
                if other.grad is None:
                    continue
                found = other.grad.to(own.device, non_blocking=True)
                own.grad = found if own.grad is None else own.grad.add_(found)

    @torch.no_grad()
    def spread(self) -> None:
        """The first one's weights to the others."""
        for model in self._others:
            for own, other in zip(self.first.parameters(), model.parameters(), strict=True):
                other.copy_(own, non_blocking=True)


def _padded_tokens(samples: Sequence[Sample]) -> int:
    return len(samples) * max(len(s.tokens) for s in samples)
