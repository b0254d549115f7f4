"""A model's layers as compiled programs: most of a small model's step is launching one by one what these fuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from kevin.core.errors import DeviceError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def compile_layers(model: PreTrainedModel) -> int:
    """Compile the repeated blocks of ``model``, in place: one program for all of them, rows of any length.

    It is made when the first of them is called; weights, their names and what is saved stay as they are.

    Returns:
        How many blocks there are; 0 for a model without a list of them, which stays as it is.
    """
    blocks = _blocks(model)
    for block in blocks:
        block.compile(dynamic=True)
    return len(blocks)


def has_compiled_layers(model: PreTrainedModel) -> bool:
    """Whether `compile_layers` compiled some. Calling them without gradients would take a second program."""
    return any(block._compiled_call_impl is not None for block in _blocks(model)[:1])


def _blocks(model: PreTrainedModel) -> list[torch.nn.Module]:
    lists = [m for m in model.base_model.children() if isinstance(m, torch.nn.ModuleList)]
    return list(max(lists, key=len, default=()))


@contextmanager
def compiling() -> Iterator[None]:
    """What goes wrong in compiling is told in one sentence.

    Raises:
        DeviceError: a block could not be compiled.
    """
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor.exc import InductorError

    try:
        yield
    except (BackendCompilerFailed, InductorError) as e:
        reason = first_line(getattr(e, "inner_exception", e))
        raise DeviceError(
            f"torch.compile failed on a layer of the model: {reason}; it wants Triton, a C compiler and the "
            f"headers of Python (Debian: python3-dev). Install them, or set TORCH_COMPILE_DISABLE=1 in the environment"
        ) from e
