"""References made on demand, and kept while they are used."""

from __future__ import annotations

from collections import OrderedDict

import torch

from kevin.core.errors import DeviceFullError, DeviceLostError, KevinError, TaskError, first_line
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task
from kevin.judge.correctness.reference import ReferenceTask


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

    def __init__(self, protocol: JudgeProtocol, max_tasks: int = 8) -> None:
        self._protocol = protocol
        self._max_tasks = max_tasks
        self._tasks: OrderedDict[str, ReferenceTask] = OrderedDict()

    def __contains__(self, task: Task) -> bool:
        return task.digest in self._tasks

    def discard(self, task_digest: str) -> None:
        self._tasks.pop(task_digest, None)

    def get(self, task: Task) -> ReferenceTask:
        """Errors as `make_reference`."""
        found = self._tasks.pop(task.digest, None)
        if found is None:
            while len(self._tasks) >= self._max_tasks:
                self._tasks.popitem(last=False)
            found = make_reference(task, self._protocol)
        self._tasks[task.digest] = found
        return found
