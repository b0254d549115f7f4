"""Shared slots: what is held back until a cell's clock starts."""

from __future__ import annotations

import torch

from kevin.core.types import TaskSpec, TensorSpec
from kevin.judge.sandbox.slots import SharedSlots, _pages, slot_bytes

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
