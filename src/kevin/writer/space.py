"""Which slots a sequence of operators offers, and which values each may take."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kevin.core.types import Language
from kevin.tasks.ops import Step
from kevin.writer import layout
from kevin.writer.pointwise import is_pointwise
from kevin.writer.slots import Slots

Space = dict[str, tuple[str, ...]]
"""Values by slot; the first is the plainest."""

_PASSES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("softmax", "log_softmax"), ("three", "stored", "online")),
    **dict.fromkeys(("layer_norm", "instance_norm", "group_norm"), ("two_pass", "one_pass", "welford")),
    "batch_norm": ("two_pass", "one_pass"),
    **dict.fromkeys(("rms_norm", "l2_norm"), ("divide", "multiply")),
    "cosine_similarity": ("apart", "together"),
}

_ORDERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("linear", "matmul_transposed_b", "matvec"), ("dot", "rows4", "rows8")),
    **dict.fromkeys(("matmul", "matmul_batched", "conv2d_pointwise"), ("dot", "axpy", "tile")),
    **dict.fromkeys(("conv1d", "conv2d"), ("window", "line", "channels")),
    "depthwise_conv2d": ("window", "line", "block"),
    **dict.fromkeys(("max_pool1d", "avg_pool1d", "max_pool2d", "avg_pool2d"), ("window", "line")),
    "argmax": ("first", "search"),
    **dict.fromkeys(("cumsum", "reverse_cumsum"), ("running", "memory", "lanes")),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "hinge_loss"), ("flat", "partial")),
}


def _orders(step: Step) -> tuple[str, ...]:
    """Loop orders of a first operator that its sizes allow."""
    if step.kind == "reduce" and "dim" in step.op.attrs and layout.rows(step) is None:
        return ("columns", "sweep")
    *outer, last = step.out_shape or (1,)
    num_rows = prod(step.out_shape[:2]) if len(step.out_shape) > 2 else prod(step.out_shape[:1])
    if step.op.name == "conv2d_pointwise":
        last = prod(step.out_shape[2:])
    group = step.out_shape[1] if len(step.out_shape) > 2 else num_rows
    allowed = {
        "rows4": num_rows % 4 == 0,
        "rows8": num_rows % 8 == 0,
        "tile": group % 8 == 0 and last % 32 == 0,
        "block": group % 4 == 0,
        "lanes": prod(outer) % 8 == 0,
    }
    return tuple(o for o in _ORDERS.get(step.op.name, ()) if allowed.get(o, True))


def _owner_of_passes(steps: Sequence[Step]) -> int | None:
    """The first step that can be computed in different passes: its choice is the plan's."""
    return next((i for i, s in enumerate(steps) if s.op.name in _PASSES), None)


def cpp_space(steps: Sequence[Step]) -> Space:
    space: Space = {
        "math": ("strict", "fast"),
        "loop": ("plain", "simd", "unroll"),
        "pointers": ("plain", "restrict"),
        "threads": ("one", "openmp"),
        "real": ("float", "double"),
    }
    if orders := _orders(steps[0]):
        space["order"] = orders
    if (owner := _owner_of_passes(steps)) is not None:
        space["passes"] = _PASSES[steps[owner].op.name]
    if any(is_pointwise(s) for s in steps[1:]):
        space["fusion"] = ("each", "pass", "store")
    return space


def own_slots(steps: Sequence[Step], at: int, slots: Slots) -> Slots:
    """The plan's slots as step ``at`` sees them: choices that belong to another step take their plainest value."""
    name = steps[at].op.name
    own = dict(slots)
    if name in _PASSES and at != _owner_of_passes(steps):
        own["passes"] = _PASSES[name][0]
    if at and "order" in own:
        del own["order"]
    return own


def space_of(steps: Sequence[Step], language: Language) -> Space:
    """Every slot of these steps with its values."""
    assert language == "cpp"
    return cpp_space(steps)
