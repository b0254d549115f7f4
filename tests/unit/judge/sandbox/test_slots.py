"""Shared slots: what is held back until a cell's clock starts."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from kevin.core.types import TaskSpec, TensorSpec
from kevin.judge.sandbox.slots import SharedSlots, _pages, anonymous_buffer, slot_bytes

SPEC = TaskSpec(
    inputs=(
        TensorSpec(name="x", dtype="float32", shape=(64, 300)),
        TensorSpec(name="rows", dtype="int64", shape=(64,)),
        TensorSpec(name="y", dtype="float16", shape=(7,)),
    ),
    parameters=(),
    outputs=(TensorSpec(name="out", dtype="float32", shape=(64, 300)),),
)


def deliver(slots: SharedSlots, slot: int) -> None:
    """What a cell does in its stream."""
    data = slots._buffer.data
    for source, target, size in slots.late_pieces[slot]:
        data[target : target + size] = data[source : source + size].clone()


def test_inputs_are_wrong_until_the_late_pieces_are_delivered() -> None:
    slots = SharedSlots(SPEC, 3)
    given = [torch.randn(64, 300), torch.arange(64), torch.randn(7).half()]
    slots.fill(1, given, [])
    slots.hold_back(1)
    held = [v.clone() for v in slots.inputs[1] if v is not None]
    assert not torch.equal(held[0], given[0])
    assert torch.isfinite(held[0]).all()
    assert torch.equal(held[1], given[1]), "indices stay: a wrong one would crash a kernel that has to wait for it"
    assert not torch.equal(held[2], given[2])
    deliver(slots, 1)
    assert slots.changed_argument(1, given, []) is None
    slots.close()


def test_pieces_stand_at_other_places_in_every_slot_and_within_its_bytes() -> None:
    slots = SharedSlots(SPEC, 4)
    guarded = sum(_pages(s.num_bytes) for s in (*SPEC.inputs, *SPEC.outputs))
    assert slots.total_bytes == 4 * slot_bytes(SPEC) + guarded
    places = [tuple(target for _, target, _ in slots.late_pieces[i]) for i in range(4)]
    assert len({tuple(p - i * slot_bytes(SPEC) for p in place) for i, place in enumerate(places)}) > 1
    for i in range(4):
        for source, target, size in slots.late_pieces[i]:
            assert i * slot_bytes(SPEC) <= min(source, target)
            assert max(source, target) + size <= (i + 1) * slot_bytes(SPEC)
    slots.close()


RESIZES: dict[str, Callable[[int], object]] = {
    "cut": lambda fd: os.ftruncate(fd, 0),
    "lengthened": lambda fd: os.ftruncate(fd, 1 << 20),
    "allocated": lambda fd: os.posix_fallocate(fd, 0, 1 << 20),
    "written past its end": lambda fd: os.pwrite(fd, b"x", 8192),
}


@pytest.mark.parametrize("name", RESIZES)
def test_memory_that_a_cell_has_cannot_be_resized(name: str) -> None:
    """A judge whose mapping is cut off under it is killed by the next access."""
    buffer = anonymous_buffer(8192)
    with pytest.raises(PermissionError):
        RESIZES[name](buffer.fd)
    assert os.fstat(buffer.fd).st_size == 8192
    os.pwrite(buffer.fd, b"x", 8191)
    assert buffer.data[8191] == ord("x"), "what lies in it may still be written"
    buffer.close()
