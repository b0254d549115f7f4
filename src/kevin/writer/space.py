"""Which slots a sequence of operators offers, and which values each may take."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kevin.core.types import Language
from kevin.tasks.ops import Step
from kevin.writer import layout
from kevin.writer.general.products import MOST_WORK_FOR_THREADS
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
        "channels": bool(step.out_shape) and step.out_shape[-1] >= 8,
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
        "threads": ("one", "openmp"),
        "real": ("float", "double"),
    }
    if orders := _orders(steps[0]):
        space["order"] = orders
    if (owner := _owner_of_passes(steps)) is not None:
        space["passes"] = _PASSES[steps[owner].op.name]
    if any(is_pointwise(s) for s in steps[1:]):
        space["fusion"] = ("strided", "pass", "store")
    return space


_OVER_ROWS = ("row", "norm", "reduce", "scan", "loss")
_WITH_TOTAL = ("layer_norm", "instance_norm", "group_norm")
_LONGEST_FOR_ONE_THREAD = 16384
PRODUCTS = ("linear", "matmul", "matmul_transposed_b", "matmul_batched", "conv2d_pointwise")


def _is_over_rows(step: Step) -> bool:
    channels = step.kind == "reduce" and layout.rows(step) is None
    return (step.kind in _OVER_ROWS and not channels) or step.op.name == "matvec"


def _row_length(step: Step) -> int:
    """Elements that share one result, or one statistic."""
    total = prod(step.in_shape)
    match step.op.name:
        case "layer_norm":
            return prod(step.in_shape[-int(step.op.attrs["num_dims"]) :])
        case "instance_norm" | "global_avg_pool":
            return prod(step.in_shape[2:])
        case "batch_norm":
            return total // step.in_shape[1]
        case "group_norm":
            return total // step.in_shape[0] // int(step.op.attrs["groups"])
    return step.in_shape[-1]


def _row_values(steps: Sequence[Step]) -> tuple[str, ...]:
    """How threads may share rows: what every step over rows can do."""
    over = [s for s in steps if _is_over_rows(s)]
    if not over:
        return ()
    length = max(_row_length(s) for s in over)
    values = ["thread"] if length <= _LONGEST_FOR_ONE_THREAD else []
    if over[0].kind == "scan" or over[0].op.name == "argmax":
        return (*values, "warp")
    values += ["tree", "shuffle", "warp"]
    if len(steps) == 1 and over[0].op.name in _WITH_TOTAL and length > _LONGEST_FOR_ONE_THREAD:
        values.append("split")
    return tuple(values)


def product_values(step: Step) -> tuple[str, ...]:
    """How CUDA may compute a product: in tiles where they divide its sides, and in no other way where it is large."""
    shape = step.out_shape
    num_rows = shape[0] if len(shape) == 2 else shape[0] * shape[1]
    group, last = (num_rows, shape[-1]) if len(shape) == 2 else (shape[1], shape[-1])
    inner = step.in_shape[1] if step.op.name == "conv2d_pointwise" else step.in_shape[-1]
    if step.op.name == "conv2d_pointwise":
        last = prod(shape[2:])
    sides = {"tile": 16, "register": 64}
    in_tiles = tuple(v for v, s in sides.items() if group % s == 0 and last % s == 0 and inner % 16 == 0)
    is_large = prod(step.out_shape) * inner > MOST_WORK_FOR_THREADS
    return in_tiles if in_tiles and is_large else ("naive", *in_tiles)


def cuda_space(steps: Sequence[Step]) -> Space:
    main = steps[0]
    space: Space = {
        "math": ("strict", "fast"),
        "real": ("float", "double"),
        "block_size": ("256", "64", "128", "512"),
    }
    if main.op.name in PRODUCTS:
        space["product"] = product_values(main)
    elif main.op.name in ("conv1d", "conv2d"):
        space["product"] = ("naive", "channels") if main.out_shape[1] % 8 == 0 else ("naive",)
    if values := _row_values(steps):
        space["rows"] = values
    if (owner := _owner_of_passes(steps)) is not None:
        values = tuple(v for v in _PASSES[steps[owner].op.name] if v not in ("online", "welford", "apart", "together"))
        if steps[owner].op.name == "log_softmax":
            values = ()
        if values:
            space["passes"] = values
    if any(is_pointwise(s) for s in steps):
        space["grid"] = ("one", "stride", "vector") if _can_be_vectors(steps) else ("one", "stride")
    if any(is_pointwise(s) for s in steps[1:]):
        space["fusion"] = ("strided", "pass", "store")
    return space


def _can_be_vectors(steps: Sequence[Step]) -> bool:
    return all(prod(s.out_shape) % 4 == 0 for s in steps)


def own_slots(steps: Sequence[Step], at: int, slots: Slots) -> Slots:
    """The plan's slots as step ``at`` sees them: choices that belong to another step take their plainest value."""
    name = steps[at].op.name
    own = dict(slots)
    if name in _PASSES and (at != _owner_of_passes(steps) or "passes" not in own):
        own["passes"] = _PASSES[name][0]
    if at and "order" in own:
        del own["order"]
    return own


def space_of(steps: Sequence[Step], language: Language) -> Space:
    """Every slot of these steps with its values."""
    return cuda_space(steps) if language == "cuda" else cpp_space(steps)
