"""Processes of one machine that share a school's gradient steps, each with a device and a copy of the model.

This one is the first, and starts the others: one alone would take longer to launch the work of all than a device to do
its share. Gradients are added up on all of them, and all make the same step, so that only the first one has to save.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast, broadcast_object_list, patch_environment, reduce
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors
from torch.multiprocessing.spawn import ProcessContext, ProcessExitedException, start_processes

from kevin.core.errors import HarnessError, KevinError, first_line

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

_POLL_S, _END_S = 0.5, 10.0
_BUCKET_BYTES = 256_000_000
"""Of gradients that are added up in one piece."""


class Ranks:
    """What a process of a school does together with those of the other devices; nothing where it is alone.

    Every method raises a KevinError where another process failed, or was ended from outside.
    """

    rank = 0
    others: ProcessContext | None = None
    """Of the first process."""

    def __init__(self, devices: Sequence[torch.device], meeting: str) -> None:
        """``meeting``: a URL."""
        self.devices, self._meeting = devices, meeting
        if len(devices) > 1:
            self.told: SimpleQueue[KevinError | None] = multiprocessing.get_context("spawn").SimpleQueue()
            """By the others to the first one: an error, or None when they are ready."""

    def meet(self, model: torch.nn.Module) -> None:
        """Returns once all are there, with the first one's weights."""
        if len(self.devices) == 1:
            return
        with self._together():
            if self.others is None:
                self.told.put(None)
            else:
                self._wait(self.others)
            place = {"rank": self.rank, "world_size": len(self.devices)}
            on_gpu = {"backend": "cpu:gloo,cuda:nccl", **place} if self.devices[0].type == "cuda" else {}
            local = {f"local_{name}": value for name, value in place.items()}
            threads = torch.get_num_threads()  # else it would choose another number
            with patch_environment(**place, **local, omp_num_threads=threads, gloo_socket_ifname="lo"):
                PartialState._reset_state()
                PartialState(cpu=not on_gpu, init_method=self._meeting, **on_gpu)
            broadcast([parameter.detach() for parameter in model.parameters()])

    def firsts(self, batch: Any) -> Any:
        """The first process's ``batch``."""
        if len(self.devices) == 1:
            return batch
        with self._together():
            return broadcast_object_list([batch])[0]

    def add_up(self, model: torch.nn.Module, loss: float) -> float:
        """Set the gradients of ``model`` to their sums over all processes. Returns that of ``loss``."""
        if len(self.devices) == 1:
            return loss
        with self._together():
            # On the CPU, before a device is waited for: whoever is gone will not take part in adding up.
            total = float(reduce(torch.tensor(loss, dtype=torch.float64), "sum"))
            for parameter in model.parameters():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            for bucket in _take_tensors([p.grad for p in model.parameters()], _BUCKET_BYTES):
                summed = reduce(_flatten_dense_tensors(bucket), "sum")
                torch._foreach_copy_(bucket, _unflatten_dense_tensors(summed, bucket))
        return total

    def _wait(self, others: ProcessContext) -> None:
        for _ in others.processes:
            while self.told.empty():
                others.join(_POLL_S)
            if (error := self.told.get()) is not None:
                raise error

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ProcessExitedException) as e:
            while self.others is not None and not self.told.empty():
                if (error := self.told.get()) is not None:
                    raise error from e
            raise HarnessError(
                "a process of the school that trains on another device was ended from outside (memory may have run "
                "out); start again, with a lower base_model.pretraining.num_gpus if need be: training goes on from "
                "its last checkpoint"
            ) from e


@contextmanager
def start_ranks(devices: Sequence[torch.device], follow: Callable[[Ranks], None]) -> Iterator[Ranks]:
    """This process as the first of those of ``devices``. On leaving the others end; with one device there are none.

    Args:
        follow: what each other one does. Its errors are raised here, in a method of `Ranks`.
    """
    with tempfile.TemporaryDirectory(prefix="kevin-school-") as folder:
        ranks = Ranks(devices, f"file://{folder}/meeting")
        if len(devices) == 1:
            yield ranks
            return
        ranks.others = start_processes(_follow, (ranks, follow), len(devices) - 1, join=False)
        wait_s = 0.0
        try:
            yield ranks
            wait_s = _END_S
        finally:
            for process in ranks.others.processes:
                process.join(wait_s)
                process.kill()
                process.join()
            # NCCL would wait for those that are gone; it ends with this process.
            if torch.distributed.is_initialized() and (wait_s or devices[0].type == "cpu"):
                torch.distributed.destroy_process_group()
            PartialState._reset_state()


def _follow(index: int, ranks: Ranks, follow: Callable[[Ranks], None]) -> None:
    logging.disable()  # the first process says it
    ranks.rank = index + 1
    try:
        follow(ranks)
    except KevinError as e:
        ranks.told.put(e)
    except Exception as e:
        where = ranks.devices[ranks.rank]
        ranks.told.put(HarnessError(f"the school failed on {where}: {type(e).__name__}: {first_line(e)}"))
    os._exit(0)  # not waiting for the others, who learn by its end that it is gone
