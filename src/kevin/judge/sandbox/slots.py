"""Shared memory between the judge and a cell: numbered slots, each with one set of inputs, parameters and outputs."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable
from typing import Any

import torch

from kevin.core.errors import HarnessError
from kevin.core.types import TaskSpec, TensorSpec

_ALIGN_BYTES = 4096
_NUM_LATE, _LATE_BYTES = 4, 1024
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}


def _aligned(n: int) -> int:
    return max(_ALIGN_BYTES, -(-n // _ALIGN_BYTES) * _ALIGN_BYTES)


def _words(x: torch.Tensor) -> torch.Tensor:
    """The raw bytes of a contiguous tensor, eight at a time where they can be."""
    flat = x.reshape(-1).view(torch.uint8)
    return flat.view(torch.int64) if flat.numel() % 8 == 0 else flat


def slot_bytes(spec: TaskSpec) -> int:
    """Bytes of one slot, padding included."""
    tensors = (*spec.inputs, *spec.parameters, *spec.outputs)
    late = _ALIGN_BYTES * len(spec.inputs)
    return late + sum(_aligned(s.num_bytes) for s in tensors if s.kind == "tensor")


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


def mapped_buffer(fd: int, num_bytes: int) -> SharedBuffer:
    """The memory behind another process's descriptor; takes the descriptor over."""
    return SharedBuffer(torch.frombuffer(mmap.mmap(fd, num_bytes), dtype=torch.uint8), fd)


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
        self._late: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
        self._late_offsets: list[list[tuple[int, int, int]]] = []
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
                at += _aligned(s.num_bytes)
            n_in, n_par = len(spec.inputs), len(spec.parameters)
            self.inputs.append(views[:n_in])
            self.parameters.append([v for v in views[n_in : n_in + n_par] if v is not None])
            self.outputs.append([v for v in views[n_in + n_par :] if v is not None])
            self._offsets.append(offsets)
            at = self._reserve_late(at)

    def spare(self, num_timed: int) -> int:
        """The slot for calls that are not timed: behind the timed ones, or the last where there are no more."""
        return min(num_timed, self.num_slots - 1)

    def _reserve_late(self, at: int) -> int:
        """Choose a few pieces of the newest slot's floating-point inputs and room for their contents at ``at``."""
        pieces, staged = [], []
        for view, offset in zip(self.inputs[-1], self._offsets[-1], strict=False):
            if view is not None and offset is not None and view.dtype.is_floating_point:
                size = min(_LATE_BYTES // view.dtype.itemsize, view.numel())
                for i in range(_NUM_LATE):
                    start = secrets.randbelow(view.numel() - size + 1)
                    piece = view.view(-1)[start : start + size]
                    source = at + i * _LATE_BYTES
                    staged.append((source, offset + start * view.dtype.itemsize, piece.nbytes))
                    pieces.append((piece, self._buffer.data[source : source + piece.nbytes].view(view.dtype)))
            at += _ALIGN_BYTES
        self._late.append(pieces)
        self._late_offsets.append(staged)
        return at

    def late_pieces(self, slot: int) -> list[tuple[int, int, int]]:
        """(source offset, target offset, bytes) of what completes the inputs of a slot that was held back."""
        return self._late_offsets[slot]

    def hold_back(self, slot: int) -> None:
        """Put other values in place of a few pieces of the inputs until a cell copies the true ones back.

        A cell does so in its stream at the moment its clock starts, so that work which began earlier, on a stream that
        did not wait, computes from the wrong inputs.
        """
        for piece, staged in self._late[slot]:
            staged.copy_(piece)
        for piece, staged in self._late[slot]:
            piece.copy_(staged * -1.37 + 0.71)

    def _view(self, s: TensorSpec, offset: int) -> torch.Tensor:
        return self._buffer.data[offset : offset + s.num_bytes].view(DTYPES[s.dtype]).view(s.shape)

    def arguments(self, slot: int, inputs: list[Any]) -> list[dict[str, Any]]:
        """What a cell needs to call a kernel on a slot: offsets, and scalars by value."""
        tensors = (*self.spec.inputs, *self.spec.parameters, *self.spec.outputs)
        result: list[dict[str, Any]] = []
        for i, (s, offset) in enumerate(zip(tensors, self._offsets[slot], strict=True)):
            if offset is None:
                value = inputs[i].item() if isinstance(inputs[i], torch.Tensor) else inputs[i]
                result.append({"dtype": s.dtype, "value": value})
            else:
                result.append({"offset": offset, "num_bytes": s.num_bytes, "dtype": s.dtype, "shape": list(s.shape)})
        return result

    def reshaped(
        self, slot: int, inputs: list[Any], outputs: list[torch.Tensor]
    ) -> tuple[list[dict[str, Any]], list[torch.Tensor | None], list[torch.Tensor]]:
        """The memory of a slot as tensors of other, smaller shapes: what `arguments` gives, and views of both."""
        given = self.arguments(slot, inputs)
        n_in, n_out = len(inputs), len(outputs)
        specs = (*self.spec.inputs, *self.spec.parameters, *self.spec.outputs)
        tensors = [*inputs, *[None] * len(self.spec.parameters), *outputs]
        views: list[torch.Tensor | None] = []
        for argument, s, x in zip(given, specs, tensors, strict=True):
            if not isinstance(x, torch.Tensor) or "offset" not in argument:
                views.append(None)
                continue
            argument |= {"num_bytes": x.nbytes, "shape": list(x.shape)}
            views.append(self._view(s.model_copy(update={"shape": tuple(x.shape)}), argument["offset"]))
        return given, views[:n_in], [v for v in views[len(views) - n_out :] if v is not None]

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
