"""A whole C++ kernel in the ``c_abi`` dialect: sizes, buffers, and one stage after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from kevin.core import abi
from kevin.core.types import TaskSpec
from kevin.tasks.ops import Step
from kevin.writer import cpp_products, cpp_reduce, cpp_rows, cpp_windows, layout
from kevin.writer.code import Code
from kevin.writer.cpp_prelude import add_prelude, uses_math
from kevin.writer.pointwise import add_function, end_of_run, is_pointwise
from kevin.writer.slots import Slots, parallel, simd
from kevin.writer.space import own_slots
from kevin.writer.stage import Stage

_EMITTERS: dict[str, Callable[[Code, Stage, Slots], None]] = {
    **dict.fromkeys(
        ("linear", "matmul", "matmul_transposed_b", "matmul_batched", "conv2d_pointwise"), cpp_products.product
    ),
    "matvec": cpp_products.matvec,
    **dict.fromkeys(("conv1d", "conv2d", "depthwise_conv2d"), cpp_windows.conv),
    **dict.fromkeys(("max_pool1d", "avg_pool1d", "max_pool2d", "avg_pool2d"), cpp_windows.pool),
    **dict.fromkeys(("softmax", "log_softmax"), cpp_rows.softmax),
    **dict.fromkeys(("layer_norm", "instance_norm", "group_norm"), cpp_rows.moment_norm),
    "batch_norm": cpp_rows.batch_norm,
    **dict.fromkeys(("rms_norm", "l2_norm"), cpp_rows.length_norm),
    **dict.fromkeys(("sum_dim", "mean_dim", "max_dim", "global_avg_pool"), cpp_reduce.reduce),
    "argmax": cpp_reduce.argmax,
    **dict.fromkeys(("cumsum", "reverse_cumsum"), cpp_reduce.scan),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "hinge_loss"), cpp_reduce.mean_loss),
    "cross_entropy": cpp_reduce.cross_entropy,
    "cosine_similarity": cpp_reduce.cosine_similarity,
}
"""By operator, what writes its loops; element-wise ones have none."""

_NOT_FUSED = ("group_norm",)
"""Operators whose store has no row and element of its own."""


def program(spec: TaskSpec, steps: Sequence[Step], slots: Slots) -> Code:
    """The kernel of these steps, complete from the first pragma to the last brace."""
    body = Code()
    signature = abi.signature(spec, "cpp")
    with body.block(signature, wrong_type=signature.replace("float*", "double*", 1)):
        if is_pointwise(steps[0]):
            _flat_pass(body, steps, "f1", ("x", "out"))
        else:
            body.add(f"constexpr int64_t {layout.of_result(steps[0])};")
            _add_stages(body, steps, slots)
    code = Code()
    add_prelude(code, slots, uses_math=uses_math(body))
    code.extend(body)
    return code


def _add_stages(code: Code, steps: Sequence[Step], slots: Slots) -> None:
    reduction = next((i for i, s in enumerate(steps) if i and s.kind == "reduce"), None)
    buffer = "out" if len(steps) == 1 else "t"
    if reduction is not None:
        code.add("static float t[R * N];")
    elif buffer == "t":
        code.add("float* t = out;")
    names = (f"f{i}" for i in itertools.count(1))
    at, source = 0, "x"
    while at < len(steps):
        run = end_of_run(steps, at)
        step, chain = steps[at], steps[at + 1 : run]
        target = "out" if at == reduction else buffer
        done = reduction is not None and at > reduction
        fused = bool(chain) and slots["fusion"] == "store" and step.op.name not in _NOT_FUSED
        stage = Stage(step, source, target, next(names) if fused else None, reduced=done)
        rank = None if stage.flat_result else len(step.out_shape)
        if stage.function:
            add_function(code, stage.function, chain, rank)
        _EMITTERS[step.op.name](code, stage, own_slots(steps, at, slots))
        buffer = source = target
        if chain and not fused:
            _add_pass(code, chain, slots, next(names), buffer, rank)
        at = run


def _add_pass(code: Code, steps: Sequence[Step], slots: Slots, name: str, buffer: str, rank: int | None) -> None:
    """Run a whole buffer through some operators."""
    if rank is None:
        _flat_pass(code, steps, name, (buffer, buffer))
        return
    add_function(code, name, steps, rank)
    outer, inner = (("n", "N"), ("r", "R")) if slots["fusion"] == "strided" else (("r", "R"), ("n", "N"))
    with code.loop(*outer, pragma=parallel()), code.loop(*inner, pragma=simd()):
        place = f"{buffer}[r * N + n]"
        right = f"{place} = {name}({place}, r, n)"
        code.add(f"{right};", missing_semicolon=right)


def _flat_pass(
    code: Code,
    steps: Sequence[Step],
    name: str,
    buffers: tuple[str, str],
) -> None:
    """The same over a buffer without rows, from the first buffer to the second."""
    add_function(code, name, steps, None)
    with code.loop("i", "out_size", pragma=simd()):
        right = f"{buffers[1]}[i] = {name}({buffers[0]}[i])"
        code.add(f"{right};", missing_semicolon=right)
