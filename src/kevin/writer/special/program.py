"""A whole kernel in the ``c_abi`` dialect: sizes, buffers and one stage after the other.

In C++ all of it is the launcher; in CUDA each stage is a kernel or two, after the device functions that they share.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kevin.core import abi
from kevin.core.types import Language, TaskSpec
from kevin.tasks.ops import Step
from kevin.writer import cuda_threads
from kevin.writer.code import Code
from kevin.writer.slots import Slots, add_prelude, parallel, simd, uses_math
from kevin.writer.special import products, reduces, rows, windows
from kevin.writer.special.space import PRODUCTS, is_over_rows, own_slots
from kevin.writer.special.stage import (
    Stage,
    add_function,
    end_of_run,
    is_over_channels,
    is_pointwise,
    result_sizes,
)
from kevin.writer.special.walk import THREAD, Walk

_EMITTERS: dict[str, Callable[[Code, Stage, Walk], None]] = {
    **dict.fromkeys(PRODUCTS, products.product),
    "matvec": products.matvec,
    **dict.fromkeys(("conv1d", "conv2d", "depthwise_conv2d"), windows.conv),
    **dict.fromkeys(("max_pool1d", "avg_pool1d", "max_pool2d", "avg_pool2d"), windows.pool),
    **dict.fromkeys(("softmax", "log_softmax"), rows.softmax),
    **dict.fromkeys(("layer_norm", "instance_norm", "group_norm"), rows.moment_norm),
    "batch_norm": rows.batch_norm,
    **dict.fromkeys(("rms_norm", "l2_norm"), rows.length_norm),
    **dict.fromkeys(("sum_dim", "mean_dim", "max_dim", "global_avg_pool"), reduces.reduce),
    "argmax": reduces.argmax,
    **dict.fromkeys(("cumsum", "reverse_cumsum"), reduces.scan),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "hinge_loss", "cross_entropy"), reduces.loss),
    "cosine_similarity": reduces.cosine_similarity,
}
"""By operator, what writes its loops; element-wise ones have none."""

_NOT_FUSED: dict[Language, tuple[str, ...]] = {"cpp": ("group_norm",), "cuda": ("group_norm", "batch_norm")}
"""Operators whose store has no row and element of its own."""
_TOPS = ("softmax", "log_softmax", "max_dim", "cross_entropy")
_NO_SUM = ("max_dim", "argmax", "cumsum", "reverse_cumsum")


class _Part(NamedTuple):
    stage: Stage
    slots: Slots
    """As the stage sees them."""
    chain: Sequence[Step]
    """Element-wise operators that follow it."""
    rank: int | None
    """Of the result; None where it is flat."""
    passed: str | None
    """Name of the function that runs the result through the chain in a pass of its own; None: there is no such pass."""


def _parts(steps: Sequence[Step], slots: Slots, language: Language, reduction: int | None) -> Iterator[_Part]:
    names = (f"f{i}" for i in itertools.count(1))
    buffer = "out" if len(steps) == 1 else "t"
    at, source = 0, "x"
    while at < len(steps):
        run = end_of_run(steps, at)
        step, chain = steps[at], steps[at + 1 : run]
        target = "out" if at == reduction else buffer
        fused = bool(chain) and slots["fusion"] == "store" and step.op.name not in _NOT_FUSED[language]
        is_reduced = reduction is not None and at > reduction
        stage = Stage(step, source, target, next(names) if fused else None, reduced=is_reduced)
        rank = None if stage.flat_result else len(step.out_shape)
        passed = next(names) if chain and not fused else None
        yield _Part(stage, own_slots(steps, at, slots), chain, rank, passed)
        buffer = source = target
        at = run


def program(spec: TaskSpec, steps: Sequence[Step], slots: Slots, language: Language) -> Code:
    """The kernel of these steps, complete from the first line to the launcher's last brace."""
    reduction = next((i for i, s in enumerate(steps) if i and s.kind == "reduce"), None)
    return (_cuda if language == "cuda" else _cpp)(spec, steps, slots, reduction)


def _store(code: Code, assignment: str) -> None:
    code.add(f"{assignment};", missing_semicolon=assignment)


# --- C++ --------------------------------------------------------------------------------------------------------


def _cpp(spec: TaskSpec, steps: Sequence[Step], slots: Slots, reduction: int | None) -> Code:
    body = Code()
    signature = abi.signature(spec, "cpp")
    with body.block(signature, wrong_type=signature.replace("float*", "double*", 1)):
        if is_pointwise(steps[0]):
            _flat_loop(body, steps, "f1", ("x", "out"))
        else:
            body.add(f"constexpr int64_t {result_sizes(steps[0])};")
            if reduction is not None:
                body.add("static float t[R * N];")
            elif len(steps) > 1:
                body.add("float* t = out;")
            for part in _parts(steps, slots, "cpp", reduction):
                stage = part.stage
                if stage.function:
                    add_function(body, stage.function, part.chain, part.rank)
                _EMITTERS[stage.step.op.name](body, stage, Walk("cpp", part.slots))
                if part.passed:
                    _add_loops(body, part.chain, slots, part.passed, stage.target, part.rank)
    code = Code()
    add_prelude(code, slots, uses_math=uses_math(body))
    code.extend(body)
    return code


def _add_loops(code: Code, steps: Sequence[Step], slots: Slots, name: str, buffer: str, rank: int | None) -> None:
    """Run a whole buffer through some operators."""
    if rank is None:
        _flat_loop(code, steps, name, (buffer, buffer))
        return
    add_function(code, name, steps, rank)
    outer, inner = (("n", "N"), ("r", "R")) if slots["fusion"] == "strided" else (("r", "R"), ("n", "N"))
    with code.loop(*outer, pragma=parallel()), code.loop(*inner, pragma=simd()):
        place = f"{buffer}[r * N + n]"
        _store(code, f"{place} = {name}({place}, r, n)")


def _flat_loop(code: Code, steps: Sequence[Step], name: str, buffers: tuple[str, str]) -> None:
    """The same over a buffer without rows, from the first buffer to the second."""
    add_function(code, name, steps, None)
    with code.loop("i", "out_size", pragma=simd()):
        _store(code, f"{buffers[1]}[i] = {name}({buffers[0]}[i])")


# --- CUDA -------------------------------------------------------------------------------------------------------


class _Kernels:
    """Device code so far and the launches that go with it."""

    def __init__(self, spec: TaskSpec, alias: bool) -> None:
        self.signature = abi.signature(spec, "cuda")
        self._parameters = self.signature[self.signature.index("(") : self.signature.rindex(",")] + ")"
        self._arguments = ", ".join(s.name for s in (*spec.inputs, *spec.parameters, *spec.outputs))
        self._alias = alias
        self.device, self.launches = Code(), Code()
        self._num = 0

    def add(self, shape: str, body: Callable[[Code], None]) -> None:
        """One more kernel, launched as ``shape`` says."""
        self._num += 1
        with self.device.block(f"__global__ void stage{self._num}{self._parameters}"):
            if self._alias:
                self.device.add("float* t = out;")
            body(self.device)
        self.launches.add(f"stage{self._num}{shape}({self._arguments});")


def _cuda(spec: TaskSpec, steps: Sequence[Step], slots: Slots, reduction: int | None) -> Code:
    flat = is_pointwise(steps[0])
    kernels = _Kernels(spec, alias=len(steps) > 1 and reduction is None)
    code = Code()
    cuda_threads.add_prelude(code, slots)
    code.add(f"constexpr int B = {slots['block_size']};")
    if not flat:
        code.add(f"constexpr int64_t {result_sizes(steps[0])};")
    if reduction is not None:
        code.add("__device__ float t[R * N];")
    if slots.get("rows") == "split":
        code.add(f"__device__ real part[2 * 64 * {rows.norm_rows(Stage(steps[0], 'x', 'out')).num}];")
    _add_helpers(code, steps, slots)
    if flat:
        _add_pass(kernels, steps, slots, "f1", ("x", "out"), None)
    else:
        for part in _parts(steps, slots, "cuda", reduction):
            _add_stage(kernels, part)
            if part.passed:
                buffer = part.stage.target
                _add_pass(kernels, part.chain, slots, part.passed, (buffer, buffer), part.rank)
    code.extend(kernels.device)
    with code.block(kernels.signature, wrong_type=kernels.signature.replace("float*", "double*", 1)):
        code.extend(kernels.launches)
    return code


def _add_helpers(code: Code, steps: Sequence[Step], slots: Slots) -> None:
    over_rows = [s for s in steps if is_over_rows(s)]
    if any(s.op.name in _TOPS for s in over_rows):
        cuda_threads.add_helper(code, slots, "top_of")
    if any(s.op.name not in _NO_SUM for s in over_rows):
        cuda_threads.add_helper(code, slots, "sum_of")


def _add_stage(kernels: _Kernels, part: _Part) -> None:
    stage, slots, step = part.stage, part.slots, part.stage.step
    walk = Walk("cuda", slots)

    def body(code: Code) -> None:
        if stage.function:
            add_function(code, stage.function, part.chain, part.rank)
        _EMITTERS[step.op.name](code, stage, walk)

    if step.op.name in PRODUCTS:
        shape = products.product_shape(slots)
    elif step.kind == "pool" or (step.kind == "contract" and step.op.name != "matvec"):
        shape = windows.window_shape(slots)
    elif is_over_channels(step) and not stage.reduced:
        shape = "<<<(R / C * N + B - 1) / B, B, 0, stream>>>"
    else:
        shape = cuda_threads.launch_shape(slots, _num_rows(stage))
    if slots.get("rows") == "split":
        kernels.add(shape, lambda code: rows.partial_moments(code, stage, walk, rows.norm_rows(stage)))
    if step.kind == "loss" and step.op.name != "cosine_similarity":
        kernels.launches.add("cudaMemsetAsync(out, 0, sizeof(float), stream);", uninitialised=None)
    kernels.add(shape, body)


def _num_rows(stage: Stage) -> str:
    match stage.step.op.name:
        case "batch_norm":
            return "C"
        case "matvec":
            return "R"
        case "group_norm":
            return rows.norm_rows(stage).num
    return stage.rows.num


def _add_pass(
    kernels: _Kernels,
    steps: Sequence[Step],
    slots: Slots,
    name: str,
    buffers: tuple[str, str],
    rank: int | None,
) -> None:
    """Run a whole buffer through some operators, from the first buffer to the second."""
    how = slots["grid"]
    total = "out_size" if rank is None else "R * N"
    num_threads = f"{total} / 4" if how == "vector" else total
    grid = "1024" if how == "stride" else f"({num_threads} + B - 1) / B"

    def applied(value: str, index: str) -> str:
        return f"{name}({value})" if rank is None else f"{name}({value}, {index} / N, {index} % N)"

    def body(code: Code) -> None:
        add_function(code, name, steps, rank)
        code.add(THREAD)
        if how == "stride":
            head = f"for (; i < {total}; i += gridDim.x * (int64_t)blockDim.x)"
            with code.block(head, off_by_one=head.replace(total, f"{total} - 1")):
                _store(code, f"{buffers[1]}[i] = {applied(f'{buffers[0]}[i]', 'i')}")
            return
        text = f"if (i >= {num_threads}) return;"
        code.add(text, missing_bounds=None, undeclared_name="if (i >= num) return;")
        if how == "one":
            _store(code, f"{buffers[1]}[i] = {applied(f'{buffers[0]}[i]', 'i')}")
            return
        code.add(f"float4 a = ((const float4*){buffers[0]})[i];")
        for j, part in enumerate("xyzw"):
            _store(code, f"a.{part} = {applied(f'a.{part}', f'(4 * i + {j})')}")
        code.add(f"((float4*){buffers[1]})[i] = a;")

    kernels.add(f"<<<{grid}, B, 0, stream>>>", body)
