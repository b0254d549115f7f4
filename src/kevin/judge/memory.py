"""Shared memory between the judge and a cell: numbered slots, each with one set of inputs, parameters and outputs."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any

import torch

from kevin.core.errors import HarnessError
from kevin.core.types import TaskSpec, TensorSpec

_ALIGN_BYTES = 4096
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}


def num_bytes(spec: TensorSpec) -> int:
    return spec.num_elements * DTYPES[spec.dtype].itemsize


def _aligned(n: int) -> int:
    return max(_ALIGN_BYTES, -(-n // _ALIGN_BYTES) * _ALIGN_BYTES)


def _words(x: torch.Tensor) -> torch.Tensor:
    """The raw bytes of a contiguous tensor, eight at a time where they can be."""
    flat = x.reshape(-1).view(torch.uint8)
    return flat.view(torch.int64) if flat.numel() % 8 == 0 else flat


def slot_bytes(spec: TaskSpec) -> int:
    """Bytes of one slot, padding included."""
    tensors = (*spec.inputs, *spec.parameters, *spec.outputs)
    return sum(_aligned(num_bytes(s)) for s in tensors if s.kind == "tensor")


class SharedBuffer:
    """Bytes that a cell can map by a file descriptor; ``data``: (total_bytes,) uint8 on the device."""

    def __init__(self, data: torch.Tensor, fd: int, release: Callable[[], None] | None = None) -> None:
        self.data, self.fd, self._release = data, fd, release

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            if self._release is not None:
                self._release()


def anonymous_buffer(num_bytes: int) -> SharedBuffer:
    """Host memory in an anonymous file. Raises HarnessError when there is not enough."""
    fd = os.memfd_create("kevin-slots")
    try:
        os.ftruncate(fd, num_bytes)
        return SharedBuffer(torch.frombuffer(mmap.mmap(fd, num_bytes), dtype=torch.uint8), fd)
    except OSError as e:
        os.close(fd)
        raise HarnessError(f"no memory for {num_bytes >> 20} MiB of shared tensors: {e}") from e


class SharedSlots:
    """``num_slots`` slots for one task in one shared buffer, seen as torch tensors on this side.

    ``inputs[i]``, ``parameters[i]`` and ``outputs[i]`` are lists of tensors over slot i (None for scalar inputs).
    """

    def __init__(
        self, spec: TaskSpec, num_slots: int, allocate: Callable[[int], SharedBuffer] = anonymous_buffer
    ) -> None:
        self.spec = spec
        self.num_slots = num_slots
        self.total_bytes = max(slot_bytes(spec) * num_slots, _ALIGN_BYTES)
        self._buffer = allocate(self.total_bytes)
        self.fd = self._buffer.fd
        self.inputs: list[list[torch.Tensor | None]] = []
        self.parameters: list[list[torch.Tensor]] = []
        self.outputs: list[list[torch.Tensor]] = []
        self._offsets: list[list[int | None]] = []
        at = 0
        for _ in range(num_slots):
            views: list[torch.Tensor | None] = []
            offsets: list[int | None] = []
            for s in (*spec.inputs, *spec.parameters, *spec.outputs):
                if s.kind == "scalar":
                    views.append(None)
                    offsets.append(None)
                    continue
                views.append(self._view(s, at))
                offsets.append(at)
                at += _aligned(num_bytes(s))
            n_in, n_par = len(spec.inputs), len(spec.parameters)
            self.inputs.append(views[:n_in])
            self.parameters.append([v for v in views[n_in : n_in + n_par] if v is not None])
            self.outputs.append([v for v in views[n_in + n_par :] if v is not None])
            self._offsets.append(offsets)

    def _view(self, s: TensorSpec, offset: int) -> torch.Tensor:
        return self._buffer.data[offset : offset + num_bytes(s)].view(DTYPES[s.dtype]).view(s.shape)

    def arguments(self, slot: int, inputs: list[Any]) -> list[dict[str, Any]]:
        """What a cell needs to call a kernel on a slot: offsets, and scalars by value."""
        tensors = (*self.spec.inputs, *self.spec.parameters, *self.spec.outputs)
        result: list[dict[str, Any]] = []
        for i, (s, offset) in enumerate(zip(tensors, self._offsets[slot], strict=True)):
            if offset is None:
                value = inputs[i].item() if isinstance(inputs[i], torch.Tensor) else inputs[i]
                result.append({"dtype": s.dtype, "value": value})
            else:
                result.append({"offset": offset, "num_bytes": num_bytes(s), "dtype": s.dtype, "shape": list(s.shape)})
        return result

    def fill(self, slot: int, inputs: list[Any], parameters: list[torch.Tensor]) -> None:
        for view, x in zip(self.inputs[slot], inputs, strict=True):
            if view is not None:
                view.copy_(x)
        for own, p in zip(self.parameters[slot], parameters, strict=True):
            own.copy_(p)

    def poison_outputs(self, slot: int) -> None:
        """NaN for floats, -1 for integers, to the bit (see `compare`)."""
        for out in self.outputs[slot]:
            out.view(-1).view(torch.uint8).fill_(0xFF)

    def changed_argument(self, slot: int, inputs: list[Any], parameters: list[torch.Tensor]) -> str | None:
        """Name of the first input or parameter whose bytes are no longer what was given."""
        given = [*zip(self.spec.inputs, self.inputs[slot], inputs, strict=True)]
        for s, own, p in zip(self.spec.parameters, self.parameters[slot], parameters, strict=True):
            given.append((s, own, p))
        for s, view, x in given:
            if view is not None and not torch.equal(_words(view), _words(x)):
                return s.name
        return None

    def close(self) -> None:
        self._buffer.close()
