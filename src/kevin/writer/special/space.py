"""Which sequences of operators the specialised writers know, which slots each offers, and the values of each slot.

`kevin.writer.general` writes for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kevin.core.types import Language
from kevin.tasks.ops import Step
from kevin.writer.general.products import MOST_WORK_FOR_THREADS
from kevin.writer.general.stages import cut
from kevin.writer.general.tensor import TILES, ways
from kevin.writer.slots import Slots
from kevin.writer.special.stage import is_over_channels, is_pointwise

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
    if "dim" in step.op.attrs and is_over_channels(step):
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


def _cpp_space(steps: Sequence[Step]) -> Space:
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


_ROW_KINDS = ("row", "norm", "reduce", "scan", "loss")
_WITH_TOTAL = ("layer_norm", "instance_norm", "group_norm")
_LONGEST_FOR_ONE_THREAD = 16384
PRODUCTS = ("linear", "matmul", "matmul_transposed_b", "matmul_batched", "conv2d_pointwise")


def is_over_rows(step: Step) -> bool:
    return (step.kind in _ROW_KINDS and not is_over_channels(step)) or step.op.name == "matvec"


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
    over = [s for s in steps if is_over_rows(s)]
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


def _product_values(step: Step) -> tuple[str, ...]:
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


def _cuda_space(steps: Sequence[Step]) -> Space:
    main = steps[0]
    space: Space = {
        "math": ("strict", "fast"),
        "real": ("float", "double"),
        "block_size": ("256", "64", "128", "512"),
    }
    if main.op.name in PRODUCTS:
        space["product"] = _product_values(main)
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
    return _cuda_space(steps) if language == "cuda" else _cpp_space(steps)


# --- which sequences --------------------------------------------------------------------------------------------

_MAINS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("matmul", "matmul_transposed_b", "matvec", "linear"), (2,)),
    "matmul_batched": (3,),
    "conv1d": (3,),
    **dict.fromkeys(("conv2d", "depthwise_conv2d", "conv2d_pointwise", "batch_norm", "global_avg_pool"), (4,)),
    **dict.fromkeys(("max_pool1d", "avg_pool1d"), (3,)),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), (4,)),
    **dict.fromkeys(("group_norm", "instance_norm"), (3, 4)),
    **dict.fromkeys(("softmax", "log_softmax", "rms_norm", "l2_norm", "cumsum", "reverse_cumsum", "layer_norm"), (2,)),
    **dict.fromkeys(("sum_dim", "mean_dim", "max_dim", "argmax"), (2, 3, 4)),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "hinge_loss", "cross_entropy", "cosine_similarity"), (2,)),
}
"""First operators with the ranks of what they read."""

_OPTIONS = {"kernel", "stride", "padding", "dim", "num_dims", "eps", "groups"}
"""Attributes of first operators that a specialised writer reads; with any other it is not its task."""

_OVER_ROWS = ("softmax", "layer_norm", "rms_norm")
_REDUCTIONS = ("sum_dim", "mean_dim", "max_dim", "global_avg_pool")


_LARGE = 64


def is_special(steps: Sequence[Step], language: Language) -> bool:
    """Whether a specialised writer knows the whole sequence, and better than the general one."""
    main, *further = steps
    names = [s.op.name for s in steps]
    if language == "cuda" and _is_untiled(main):
        return False
    return len(set(names)) == len(names) and _is_main(main) and _are_further(main, further)


def _is_untiled(step: Step) -> bool:
    """Whether only the general writer cuts a product or convolution into tiles, or into those for tensor cores."""
    is_product = step.op.name in PRODUCTS and min(step.out_shape[-2:]) >= _LARGE
    if is_product and _product_values(step) == ("naive",):
        return True
    if step.kind != "contract" or step.op.name not in _MAINS:
        return False
    return any(way in TILES for way in ways(cut((step,), fused=True).stages[0]))


def _is_main(step: Step) -> bool:
    name, attrs, rank = step.op.name, step.op.attrs, len(step.in_shape)
    if is_pointwise(step):
        return not step.parameters and not step.second and rank >= 1
    if rank not in _MAINS.get(name, ()):
        # layer_norm over all but the first dimension is known too
        return name == "layer_norm" and rank > 2 and attrs["num_dims"] == rank - 1
    if name == "argmax" and step.in_shape[-1] < 32:  # a warp's lanes each start at an element of the row
        return False
    if name == "matvec":
        return step.in_shape[1] % 64 == 0
    if step.kind == "contract":
        if name == "matmul" and step.out_shape[-1] == 1:
            return False
        plain = attrs.get("stride", 1) == 1 and attrs.get("padding", 0) == 0
        return plain and set(attrs) <= {"kernel", "stride", "padding"} and attrs.get("kernel", 1) > 0
    if step.kind == "pool":
        return set(attrs) == {"kernel", "stride"}
    if step.kind == "reduce" and "dim" in attrs:
        dim = attrs["dim"] % rank
        over_channels = dim == 1 and name != "argmax"
        return set(attrs) == {"dim"} and (dim == rank - 1 or over_channels)
    if step.kind in ("row", "scan") and "dim" in attrs:
        return attrs["dim"] % rank == rank - 1
    return set(attrs) <= _OPTIONS


def _are_further(main: Step, further: Sequence[Step]) -> bool:
    """Element-wise operators and one reduction at most, or operators over the rows of a matrix."""
    if not further:
        return True
    if is_pointwise(main) or main.kind in ("reduce", "scan", "loss") or main.op.name == "matvec":
        return False
    reduced = False
    for step in further:
        name, rank = step.op.name, len(step.in_shape)
        if is_pointwise(step):
            if "again" in step.op.attrs or (reduced and (step.parameters or step.second)):
                return False
        elif name in _OVER_ROWS:
            if rank != 2 or step.op.attrs.get("dim", -1) % rank != rank - 1:
                return False
        elif name in _REDUCTIONS:
            dim = int(step.op.attrs.get("dim", -1)) % rank
            if reduced or set(step.op.attrs) - {"dim"} or (dim != rank - 1 and name != "global_avg_pool"):
                return False
            reduced = True
        else:
            return False
    return True
