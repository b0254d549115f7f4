"""How near a kernel comes to what its device can do, for its author and for people; nothing here changes an outcome.

The roofline of a task (Williams et al., 2009): every tensor moved once at the speed of a copy, and the products of its
operators at the speed of a large matrix product. A kernel may beat the second by algebra, so it is no bound.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from kevin.core.types import Frozen, TaskSpec
from kevin.judge.correctness.model import flagged
from kevin.judge.correctness.reference import ReferenceTask

log = logging.getLogger(__name__)

_COPY_BYTES = {"cpu": 32 << 20, "cuda": 1 << 30}
_PRODUCT_SIDE = {"cpu": 768, "cuda": 8192}
_REPEATS = {"cpu": 12, "cuda": 3}
"""The best of these counts. A host's first copies are several times too slow, above all while much else starts."""


class Peaks(Frozen):
    """What a device reaches at its best."""

    bytes_per_us: float
    """Read and written together, by a copy."""
    flops_per_us: float
    """By a matrix product in the protocol's precision, with TF32 for float32 where there is any."""


def measure_peaks(device: str, precision: str, clock: Callable[[Callable[[], Any]], int]) -> Peaks:
    """Args: clock: nanoseconds of a call on that device."""
    side = _PRODUCT_SIDE[device]
    source = torch.ones(_COPY_BYTES[device], dtype=torch.uint8, device=device)
    target = torch.ones_like(source)  # written, so that its pages are there
    a = torch.randn(side, side, device=device).to(getattr(torch, precision))
    with flagged(cudnn_tf32=True, matmul_tf32=True, searches=False):
        copy_us = min(clock(lambda: target.copy_(source)) for _ in range(_REPEATS[device])) / 1e3
        product_us = min(clock(lambda: a @ a) for _ in range(_REPEATS[device])) / 1e3
    peaks = Peaks(bytes_per_us=2 * source.nbytes / copy_us, flops_per_us=2 * side**3 / product_us)
    if device == "cuda":  # other workers share the GPU
        del source, target, a
        torch.cuda.empty_cache()
    return peaks


class _Products(TorchDispatchMode):
    """Counts the floating-point operations of products, convolutions and attention, by PyTorch's formulas.

    As its ``FlopCounterMode`` does, which imports TorchDynamo for it: a second that each process's first verdict waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, so nothing has to be kept from it."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        if formula is not None:
            self.num_flops += int(formula(*args, **kwargs, out_val=out))
        return out


def count_flops(reference: ReferenceTask) -> int:
    """Of matrix products, convolutions and attention in one call of the reference; 0 where they cannot be counted."""
    trial, products = reference.trials[0], _Products()
    try:
        with products:
            reference.forward(trial.inputs, trial.parameters)
    except Exception as e:  # the mode meets any operator of PyTorch; a verdict must not depend on it
        log.info("%s: its products cannot be counted: %s: %s", reference.task.id, type(e).__name__, e)
        return 0
    return products.num_flops


def roofline(spec: TaskSpec, num_flops: int, kernel_us: float, peaks: Peaks) -> dict[str, float]:
    """Shares of the device's peaks, as a verdict's details; without products no ``flop_share``."""
    shares = {"bandwidth_share": spec.num_bytes / kernel_us / peaks.bytes_per_us}
    if num_flops:
        shares["flop_share"] = num_flops / kernel_us / peaks.flops_per_us
    return shares
