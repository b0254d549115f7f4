"""How a model is run on the CPU: with how many threads, and in which type of numbers."""

from __future__ import annotations

import functools
import logging
import time

import torch

log = logging.getLogger(__name__)

_SMALL_PARAMETERS = 10_000_000
_ROWS, _WIDTH = 64, 512
_FAST = 1.2
"""Narrow products that take longer than this times those in float32 are not native: they gain no more than memory."""


def fit_threads(num_parameters: int) -> None:
    """One thread for a model of a few million parameters: its operators are too small to share.

    Two threads gain little on an idle machine, and where another process wants a core they wait for each other: a step
    that takes 0.25 s alone was seen to take 8 s.
    """
    if num_parameters < _SMALL_PARAMETERS:
        torch.set_num_threads(1)


def _product_ns(dtype: torch.dtype) -> int:
    """The least time of some matrix products of this type on the CPU."""
    a, b = torch.ones(_ROWS, _WIDTH, dtype=dtype), torch.ones(_WIDTH, _WIDTH, dtype=dtype)
    times = []
    for _ in range(7):
        start = time.perf_counter_ns()
        torch.mm(a, b)
        times.append(time.perf_counter_ns() - start)
    return min(times)


@functools.cache
def slowdown(dtype: torch.dtype) -> float:
    """Time of matrix products of this type over that of the same in float32, measured on this processor once."""
    return _product_ns(dtype) / _product_ns(torch.float32)


def cpu_dtype(wanted: torch.dtype) -> torch.dtype:
    """``wanted`` where this processor computes with it about as fast as with float32; float32 where it does not.

    A processor without native products of a narrow type emulates them, five times slower and worse.
    """
    if wanted == torch.float32 or slowdown(wanted) <= _FAST:
        return wanted
    log.info("%s is %.1f times slower than float32 on this processor: float32 it is", wanted, slowdown(wanted))
    return torch.float32
