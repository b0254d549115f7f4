"""Which sequences the specialised writers know; `kevin.writer.general` writes for all others."""

from __future__ import annotations

from collections.abc import Sequence

from kevin.core.types import Language
from kevin.tasks.ops import Step
from kevin.writer.general.stages import cut
from kevin.writer.general.tensor import TILES, ways
from kevin.writer.pointwise import is_pointwise
from kevin.writer.space import PRODUCTS, product_values

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
    if is_product and product_values(step) == ("naive",):
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
