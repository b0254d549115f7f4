"""Shared memory between the judge and a cell: numbered slots, each with one set of inputs, parameters and outputs.

Tensors lie as a user's do, aligned to no more than PyTorch's allocators align them. A buffer on the host has one slot
more, whose tensors a cell maps between protected pages.

Before and behind every tensor is a band of a secret pattern: what a candidate writes there is seen. Around what is read
the pattern is NaN in float32, so that it spoils a result. Around outputs it is not: a processor hands on a NaN as it
is, and one that was read and written again would look untouched.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

from kevin.core.errors import HarnessError
from kevin.core.types import TaskSpec, TensorSpec
from kevin.tasks.layout import core, flat, span

BAND_BYTES = 4096
"""On either side of a tensor, at least."""
_WORD = 8


def _pattern(*, is_number: bool) -> int:
    """Eight bytes, as a signed number: two secret numbers of float32 between 1 and 2 in size, or two NaN."""
    word = 0
    for _ in range(2):
        word = word << 32 | secrets.randbits(1) << 31 | (0x3F800000 if is_number else 0x7FC00000) | secrets.randbits(22)
    return word - (1 << 64) if word >> 63 else word


class _Band(NamedTuple):
    spec: TensorSpec
    first: int
    """Its first byte in the buffer; the band before a tensor ends where that begins."""
    offset: int
    """Of its tensor."""
    num_bytes: int
    """Of its tensor."""
    pattern: int


class Bands:
    """Of one buffer; places are byte offsets in it."""

    def __init__(self, buffer: torch.Tensor) -> None:
        """``buffer``: (total_bytes,) uint8, a whole number of words."""
        self._words = buffer.view(torch.int64)
        self._patterns = {is_output: _pattern(is_number=is_output) for is_output in (False, True)}
        self._bands: list[_Band] = []
        self._at: torch.Tensor | None = None
        self._mask: torch.Tensor | None = None
        self._expected: torch.Tensor | None = None

    def add(self, spec: TensorSpec, offset: int, num_bytes: int, *, is_output: bool) -> None:
        """A tensor at ``offset``, with room for a band on either side."""
        assert offset % _WORD == 0
        for first in (offset - BAND_BYTES, offset + num_bytes):
            self._bands.append(_Band(spec, first, offset, num_bytes, self._patterns[is_output]))

    def _index(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Numbers of the bands' words, which of their bits belong to them (a tensor may end within a word), and what
        these are to be.
        """
        if self._at is None or self._mask is None or self._expected is None:
            runs, masks, patterns = [], [], []
            for band in self._bands:
                start, stop = band.first // _WORD, -(-(band.first + BAND_BYTES) // _WORD)
                run, mask = torch.arange(start, stop), torch.full((stop - start,), -1, dtype=torch.int64)
                if own := band.first % _WORD:  # little-endian: the tensor's bytes are the low ones
                    mask[0] = -1 << 8 * own
                    run, mask = run[:-1], mask[:-1]
                runs.append(run)
                masks.append(mask)
                patterns.append(mask & band.pattern)
            made = [torch.cat(parts).to(self._words.device) for parts in (runs, masks, patterns)]
            self._at, self._mask, self._expected = made
        return self._at, self._mask, self._expected

    def fill(self) -> None:
        at, mask, expected = self._index()
        self._words[at] = (self._words[at] & ~mask) | expected

    def trespass(self) -> str | None:
        """What was written into the first band that is not as it was filled, as its author is told; None if all are."""
        at, mask, expected = self._index()
        changed = (self._words[at] & mask) != expected
        if not bool(changed.any()):
            return None
        places = at[changed].tolist()
        hit = [b for b in self._bands if any(b.first <= _WORD * p + _WORD - 1 < b.first + BAND_BYTES for p in places)]
        return self._told(hit[0])

    def _told(self, band: _Band) -> str:
        pattern = band.pattern.to_bytes(_WORD, "little", signed=True)
        here = range(band.first, band.first + BAND_BYTES)
        words = self._words[band.first // _WORD : -(-here.stop // _WORD)].cpu()
        held = words.view(torch.uint8)[band.first % _WORD :][:BAND_BYTES].tolist()
        bad = [place for place, byte in zip(here, held, strict=True) if byte != pattern[place % _WORD]]
        item = band.num_bytes // max(band.spec.num_elements, 1) or 1
        first = (bad[0] - band.offset) // item
        size = band.num_bytes // item
        side = f"past the end of {band.spec.name}" if first >= 0 else f"before the start of {band.spec.name}"
        at = (
            f"{band.spec.name}[{first}], {first - size + 1} past the last"
            if first >= 0
            else f"{band.spec.name}[{first}]"
        )
        return f"it writes {side}, which has {size} elements: the first such write is at {at}"


_ALIGN_BYTES = 4096
ALIGNMENT_BYTES = 64
"""Of PyTorch's tensors on a host."""
_LEAD_BYTES = {"cpu": ALIGNMENT_BYTES, "cuda": 512}
"""Of a tensor behind the start of a page: how PyTorch's allocators align."""
_NUM_LATE, _LATE_BYTES = 4, 1024
Place = Literal["start", "aligned_end", "end"]
PLACES: tuple[Place, ...] = ("start", "aligned_end", "end")
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


def _pages(n: int) -> int:
    """Of the machine's own size, which may be larger."""
    return max(mmap.PAGESIZE, -(-n // mmap.PAGESIZE) * mmap.PAGESIZE)


def _words(x: torch.Tensor) -> torch.Tensor:
    """The raw bytes of a tensor, eight at a time where they can be."""
    raw = x.contiguous().reshape(-1).view(torch.uint8)
    return raw.view(torch.int64) if raw.numel() % 8 == 0 else raw


def _span_bytes(spec: TensorSpec, *, as_given: bool = True) -> int:
    """Of the memory that a tensor's elements are spread over."""
    if not as_given or spec.stride is None:
        return spec.num_bytes
    return span(spec.shape, spec.stride) * DTYPES[spec.dtype].itemsize


def _reserved_bytes(spec: TensorSpec) -> int:
    """For a tensor as its task lays it out, and contiguous, which takes more of one that is expanded."""
    return max(_span_bytes(spec), spec.num_bytes)


def _room(spec: TensorSpec) -> int:
    """Of a tensor with what is around it."""
    return _aligned(_reserved_bytes(spec) + 2 * BAND_BYTES + max(_LEAD_BYTES.values()))


def slot_bytes(spec: TaskSpec) -> int:
    """Bytes of one slot, padding included."""
    tensors = (*spec.inputs, *spec.parameters, *spec.outputs)
    late = _ALIGN_BYTES * len(spec.inputs)
    return late + sum(_room(s) for s in tensors if s.kind == "tensor")


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


def _seal_size(fd: int) -> None:
    """Of an anonymous file, for good: shortening it would end those that have it mapped, and what is added to it counts
    for nobody's limit. Where the kernel has no seals it stays as it is.
    """
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def anonymous_buffer(num_bytes: int) -> SharedBuffer:
    """Host memory in an anonymous file, which nobody can resize. Raises HarnessError when there is not enough."""
    fd = os.memfd_create("kevin-slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, num_bytes)
        _seal_size(fd)
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
        self,
        spec: TaskSpec,
        num_slots: int,
        allocate: Callable[[int], SharedBuffer] = anonymous_buffer,
        *,
        as_given: bool = False,
    ) -> None:
        """``as_given``: inputs have the strides that their task gives them; contiguous otherwise."""
        self.spec = spec
        self.num_slots = num_slots
        self.as_given = as_given
        self._tensors = (*spec.inputs, *spec.parameters, *spec.outputs)
        self._guarded_at = slot_bytes(spec) * num_slots
        guarded = sum(_pages(_reserved_bytes(s)) for s in self._tensors if s.kind == "tensor")
        self.total_bytes = max(self._guarded_at + guarded, _ALIGN_BYTES)
        self._buffer = allocate(self.total_bytes)
        self.fd = self._buffer.fd
        self.bands = Bands(self._buffer.data)
        self.inputs: list[list[torch.Tensor | None]] = []
        self.parameters: list[list[torch.Tensor]] = []
        self.outputs: list[list[torch.Tensor]] = []
        self._offsets: list[list[int | None]] = []
        self._late: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
        self.late_pieces: list[list[tuple[int, int, int]]] = []
        """By slot, (source offset, target offset, bytes) of what completes its inputs where they were held back."""
        lead = BAND_BYTES + _LEAD_BYTES[self._buffer.data.device.type]
        at = 0
        for _ in range(num_slots):
            offsets: list[int | None] = []
            for i, s in enumerate(self._tensors):
                offsets.append(at + lead if s.kind == "tensor" else None)
                if s.kind == "tensor":
                    is_output = i >= len(self._tensors) - len(spec.outputs)
                    self.bands.add(s, at + lead, self._bytes_of(s), is_output=is_output)
                    at += _room(s)
            views = [None if o is None else self._view(s, o) for s, o in zip(self._tensors, offsets, strict=True)]
            n_in, n_par = len(spec.inputs), len(spec.parameters)
            self.inputs.append(views[:n_in])
            self.parameters.append([v for v in views[n_in : n_in + n_par] if v is not None])
            self.outputs.append([v for v in views[n_in + n_par :] if v is not None])
            self._offsets.append(offsets)
            at = self._reserve_late(at)

    def _bytes_of(self, s: TensorSpec) -> int:
        return _span_bytes(s, as_given=self.as_given)

    def guarded(self, inputs: list[Any], place: Place) -> tuple[list[dict[str, Any]], list[torch.Tensor | None]]:
        """The slot that a cell maps between protected pages.

        Args:
            place: of tensors in their pages: at the start, at the end, or as near to it as PyTorch's alignment allows.

        Returns:
            What `arguments` gives, with the pages of each tensor, and views of all tensors.
        """
        given = self.arguments(0, inputs)
        views: list[torch.Tensor | None] = []
        at = self._guarded_at
        for argument, s in zip(given, self._tensors, strict=True):
            if "offset" not in argument:
                views.append(None)
                continue
            pages, size = _pages(_reserved_bytes(s)), self._bytes_of(s)
            lead = 0 if place == "start" else pages - size
            offset = at + (lead - lead % ALIGNMENT_BYTES if place == "aligned_end" else lead)
            argument |= {"offset": offset, "pages": [at, pages]}
            views.append(self._view(s, offset))
            at += pages
        return given, views

    def spare(self, num_timed: int) -> int:
        """The slot for calls that are not timed: behind the timed ones, or the last where there are no more."""
        return min(num_timed, self.num_slots - 1)

    def _reserve_late(self, at: int) -> int:
        """Choose a few pieces of the newest slot's floating-point inputs and room for their contents at ``at``."""
        pieces, staged = [], []
        for view, offset in zip(self.inputs[-1], self._offsets[-1], strict=False):
            if view is not None and offset is not None and view.dtype.is_floating_point:
                whole = flat(view)
                size = min(_LATE_BYTES // view.dtype.itemsize, whole.numel())
                for i in range(_NUM_LATE):
                    start = secrets.randbelow(whole.numel() - size + 1)
                    piece = whole[start : start + size]
                    source = at + i * _LATE_BYTES
                    staged.append((source, offset + start * view.dtype.itemsize, piece.nbytes))
                    pieces.append((piece, self._buffer.data[source : source + piece.nbytes].view(view.dtype)))
            at += _ALIGN_BYTES
        self._late.append(pieces)
        self.late_pieces.append(staged)
        return at

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
        whole = self._buffer.data[offset : offset + self._bytes_of(s)].view(DTYPES[s.dtype])
        return whole.view(s.shape) if s.stride is None or not self.as_given else whole.as_strided(s.shape, s.stride)

    def arguments(self, slot: int, inputs: list[Any]) -> list[dict[str, Any]]:
        """What a cell needs to call a kernel on a slot: offsets, and scalars by value."""
        result: list[dict[str, Any]] = []
        for i, (s, offset) in enumerate(zip(self._tensors, self._offsets[slot], strict=True)):
            if offset is None:
                value = inputs[i].item() if isinstance(inputs[i], torch.Tensor) else inputs[i]
                result.append({"dtype": s.dtype, "value": value})
            else:
                result.append(
                    {"offset": offset, "num_bytes": self._bytes_of(s), "dtype": s.dtype, "shape": list(s.shape)}
                )
                if s.stride is not None and self.as_given:
                    result[-1]["stride"] = list(s.stride)
        return result

    def reshaped(
        self, inputs: list[Any], outputs: list[torch.Tensor]
    ) -> tuple[list[dict[str, Any]], list[torch.Tensor | None], list[torch.Tensor]]:
        """The memory of slot 0 as tensors of other, smaller shapes: what `arguments` gives, and views of both."""
        given = self.arguments(0, inputs)
        n_in, n_out = len(inputs), len(outputs)
        tensors = [*inputs, *[None] * len(self.spec.parameters), *outputs]
        views: list[torch.Tensor | None] = []
        for argument, s, x in zip(given, self._tensors, tensors, strict=True):
            if not isinstance(x, torch.Tensor) or "offset" not in argument:
                views.append(None)
                continue
            argument |= {"num_bytes": x.nbytes, "shape": list(x.shape)}
            argument.pop("stride", None)
            smaller = s.model_copy(update={"shape": tuple(x.shape), "stride": None})
            views.append(self._view(smaller, argument["offset"]))
        return given, views[:n_in], [v for v in views[len(views) - n_out :] if v is not None]

    def fill(self, slot: int, inputs: list[Any], parameters: list[torch.Tensor]) -> None:
        for view, x in zip(self.inputs[slot], inputs, strict=True):
            if view is not None:
                core(view).copy_(core(x))
        for own, p in zip(self.parameters[slot], parameters, strict=True):
            own.copy_(p)

    def poison_outputs(self, slot: int) -> None:
        """NaN for floats, -1 for integers, to the bit (see `compare`)."""
        for out in self.outputs[slot]:
            out.view(-1).view(torch.uint8).fill_(0xFF)

    def changed_argument(self, slot: int, inputs: list[Any] | None, parameters: list[torch.Tensor]) -> str | None:
        """Name of the first input or parameter whose bytes are no longer what was given; ``inputs``: None where they
        may be changed.
        """
        given = [*zip(self.spec.inputs, self.inputs[slot], inputs, strict=True)] if inputs is not None else []
        for s, own, p in zip(self.spec.parameters, self.parameters[slot], parameters, strict=True):
            given.append((s, own, p))
        for s, view, x in given:
            if view is not None and not torch.equal(_words(view), _words(x)):
                return s.name
        return None

    def close(self) -> None:
        self._buffer.close()
