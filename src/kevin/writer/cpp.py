"""A whole C++ kernel in the ``c_abi`` dialect: sizes, buffers, and one stage after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kevin.core import abi
from kevin.core.types import TaskSpec
from kevin.tasks.ops import Step
from kevin.writer import cpp_products, cpp_reduce, cpp_rows, cpp_windows, layout
from kevin.writer.code import Code
from kevin.writer.pointwise import add_pointwise, is_pointwise
from kevin.writer.slots import Slots, parallel, simd
from kevin.writer.space import own_slots
from kevin.writer.stage import Stage

_MATH_CALL = re.compile(r"\b(expf?|tanhf?|erff?|log1pf?|logf?|expm1f?|fabsf?|sqrtf?)\(")

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
    if slots["pointers"] == "restrict":
        signature = signature.replace("* ", "* __restrict__ ")
    with body.block(signature, wrong_type=signature.replace("float*", "double*", 1)):
        if not is_pointwise(steps[0]) or len(steps) > 1:
            body.add(f"constexpr int64_t {layout.of_result(steps[0])};")
        _add_stages(body, steps, slots)
    code = Code()
    if slots["math"] == "fast":
        code.add("#define __FAST_MATH__ 1")
        code.add('#pragma GCC optimize("fast-math")')
    if _MATH_CALL.search(body.text()):
        code.add("#include <cmath>", missing_include=None)
    code.extend(body)
    return code


def _add_stages(code: Code, steps: Sequence[Step], slots: Slots) -> None:
    if len(steps) == 1 and is_pointwise(steps[0]):
        _flat_pass(code, steps, slots, "x", "out")
        return
    reduction = next((i for i, s in enumerate(steps) if i and s.kind == "reduce"), None)
    buffer = "out"
    if len(steps) > 1 and reduction is None:
        code.add("float* t = out;")
        buffer = "t"
    elif reduction is not None:
        code.add("static float t[R * N];")
        buffer = "t"
    at, source = 0, "x"
    while at < len(steps):
        step = steps[at]
        run = at + 1
        while run < len(steps) and is_pointwise(steps[run]):
            run += 1
        target = "out" if at == reduction else buffer
        done = reduction is not None and at > reduction
        fused = slots.get("fusion") == "store" and step.op.name not in _NOT_FUSED
        stage = Stage(step, source, target, tuple(steps[at + 1 : run]) if fused else (), reduced=done)
        _EMITTERS[step.op.name](code, stage, own_slots(steps, at, slots))
        buffer = source = target
        if not fused:
            _add_passes(code, steps, slots, (at + 1, run), buffer)
        at = run


def _add_passes(code: Code, steps: Sequence[Step], slots: Slots, run: tuple[int, int], buffer: str) -> None:
    """The element-wise steps of a run in one pass over memory, or each in its own."""
    chain = steps[run[0] : run[1]]
    if not chain:
        return
    parts = [chain] if slots["fusion"] != "each" else [[s] for s in chain]
    before = steps[run[0] - 1]
    reduced = next((s for s in steps[: run[0]] if s.kind == "reduce"), None)
    for part in parts:
        if reduced is not None:
            _flat_pass(code, part, slots, buffer, buffer, layout.channel_after_reduction(reduced, "i"))
            continue
        rank = len(before.out_shape)
        with code.loop("r", "R", pragma=parallel(slots)), code.loop("n", "N", pragma=simd(slots)):
            _pointwise(code, part, slots, (buffer, buffer), ("r * N + n", layout.channel(rank)))


def _flat_pass(code: Code, steps: Sequence[Step], slots: Slots, source: str, target: str, channel: str = "0") -> None:
    pragma = simd(slots)
    if slots["threads"] == "openmp":
        pragma = "#pragma omp parallel for" + (" simd" if slots["loop"] == "simd" else "")
    with code.loop("i", "out_size", pragma=pragma):
        _pointwise(code, steps, slots, (source, target), ("i", channel))


def _pointwise(
    code: Code, steps: Sequence[Step], slots: Slots, buffers: tuple[str, str], place: tuple[str, str]
) -> None:
    """Read ``v`` from the first buffer, run it through the steps, store it in the second."""
    index, channel = place
    code.add(f"{slots['real']} v = {buffers[0]}[{index}];")
    for step in steps:
        add_pointwise(code, step, index=index, channel=channel, real=slots["real"])
    code.add(f"{buffers[1]}[{index}] = v;", missing_semicolon=f"{buffers[1]}[{index}] = v")
