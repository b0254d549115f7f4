"""Running a reference for real only as long as it stays small: most do, and PyTorch's fake tensors take a second to
import, since they bring TorchDynamo with them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MAX_BYTES = 16 << 20


class NotSmall(BaseException):
    """Not an Exception, which references may catch."""


class Small(TorchDispatchMode):
    """Raises `NotSmall` once all that operators have returned, or are asked for, is more than `MAX_BYTES`."""

    def __init__(self) -> None:
        super().__init__()
        self._num_bytes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and keeping the mode from a compiler would import that."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _asked(args) > MAX_BYTES:  # before it is allocated
            raise NotSmall
        result = func(*args, **(kwargs or {}))
        self._num_bytes += sum(_num_bytes(x) for x in tree_leaves(result))
        if self._num_bytes > MAX_BYTES:
            raise NotSmall
        return result


def _num_bytes(x: Any) -> int:
    return x.numel() * x.element_size() if isinstance(x, torch.Tensor) else 0


def _asked(args: Any) -> int:
    """The largest number among an operator's arguments, or product of a list of them: at least a new tensor's size."""
    shapes = [math.prod(x) if isinstance(x, list) and all(isinstance(n, int) for n in x) else x for x in args]
    return max((n for n in shapes if isinstance(n, int)), default=0)
