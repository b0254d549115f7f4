"""A whole CUDA kernel in the ``c_abi`` dialect: sizes, buffers, device functions, one or more kernels, the launcher."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from kevin.core import abi
from kevin.core.types import TaskSpec
from kevin.tasks.ops import Step
from kevin.writer import cuda_products, cuda_reduce, cuda_rows, cuda_threads, layout
from kevin.writer.code import Code
from kevin.writer.pointwise import add_function, end_of_run, is_pointwise
from kevin.writer.slots import Slots
from kevin.writer.space import own_slots
from kevin.writer.stage import Stage, add_store

Emitter = Callable[[Code, Stage, Slots], None]

_ROW_KERNELS: dict[str, Emitter] = {
    **dict.fromkeys(("softmax", "log_softmax"), cuda_rows.softmax),
    **dict.fromkeys(("layer_norm", "instance_norm", "group_norm"), cuda_rows.moment_norm),
    "batch_norm": cuda_rows.batch_norm,
    **dict.fromkeys(("rms_norm", "l2_norm"), cuda_rows.length_norm),
    **dict.fromkeys(("sum_dim", "mean_dim", "max_dim", "global_avg_pool"), cuda_reduce.reduce_rows),
    "argmax": cuda_reduce.argmax,
    **dict.fromkeys(("cumsum", "reverse_cumsum"), cuda_reduce.scan),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "hinge_loss", "cross_entropy"), cuda_reduce.loss),
    "cosine_similarity": cuda_reduce.cosine_similarity,
    "matvec": cuda_products.matvec,
}
_PRODUCTS = ("linear", "matmul", "matmul_transposed_b", "matmul_batched", "conv2d_pointwise")
_TOPS = ("softmax", "log_softmax", "max_dim", "cross_entropy")
_NO_SUM = ("max_dim", "argmax", "cumsum", "reverse_cumsum")
_NOT_FUSED = ("group_norm", "batch_norm")


class _Program:
    """Device code so far and the launches that go with it."""

    def __init__(self, spec: TaskSpec, alias: bool) -> None:
        signature = abi.signature(spec, "cuda")
        self.signature = signature
        self._parameters = signature[signature.index("(") : signature.rindex(",")] + ")"
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


def program(spec: TaskSpec, steps: Sequence[Step], slots: Slots) -> Code:
    """The kernel of these steps, complete from the first macro to the launcher's last brace."""
    reduction = next((i for i, s in enumerate(steps) if i and s.kind == "reduce"), None)
    flat = is_pointwise(steps[0])
    whole = _Program(spec, alias=len(steps) > 1 and reduction is None)
    code = Code()
    if slots["math"] == "fast":
        code.add("#define exp __expf")
        code.add("#define log __logf")
    code.add(f"typedef {slots['real']} real;")
    code.add(f"constexpr int B = {slots['block_size']};")
    if not flat:
        code.add(f"constexpr int64_t {layout.of_result(steps[0])};")
    if reduction is not None:
        code.add("__device__ float t[R * N];")
    if slots.get("rows") == "split":
        rows = cuda_rows.norm_rows(Stage(steps[0], "x", "out"))
        code.add(f"__device__ real part[2 * 64 * {rows.num}];")
    _add_helpers(code, steps, slots)
    if flat:
        _add_pass(whole, steps, slots, "f1", ("x", "out"), None)
    else:
        _add_stages(whole, steps, slots, reduction)
    code.extend(whole.device)
    with code.block(whole.signature, wrong_type=whole.signature.replace("float*", "double*", 1)):
        code.extend(whole.launches)
    return code


def _add_helpers(code: Code, steps: Sequence[Step], slots: Slots) -> None:
    over_rows = [s for s in steps if s.op.name in _ROW_KERNELS and (s is not steps[0] or not _over_channels(s))]
    if any(s.op.name in _TOPS for s in over_rows):
        cuda_threads.add_helper(code, slots, "top_of")
    if any(s.op.name not in _NO_SUM for s in over_rows):
        cuda_threads.add_helper(code, slots, "sum_of")


def _over_channels(step: Step) -> bool:
    return step.kind == "reduce" and layout.rows(step) is None


def _add_stages(whole: _Program, steps: Sequence[Step], slots: Slots, reduction: int | None) -> None:
    names = (f"f{i}" for i in itertools.count(1))
    buffer = "out" if len(steps) == 1 else "t"
    at, source = 0, "x"
    while at < len(steps):
        run = end_of_run(steps, at)
        step, chain = steps[at], steps[at + 1 : run]
        target = "out" if at == reduction else buffer
        done = reduction is not None and at > reduction
        fused = bool(chain) and slots["fusion"] == "store" and step.op.name not in _NOT_FUSED
        stage = Stage(step, source, target, next(names) if fused else None, reduced=done)
        rank = None if stage.flat_result else len(step.out_shape)
        _add_stage(whole, stage, own_slots(steps, at, slots), chain, rank)
        buffer = source = target
        if chain and not fused:
            _add_pass(whole, chain, slots, next(names), (buffer, buffer), rank)
        at = run


def _add_stage(whole: _Program, stage: Stage, slots: Slots, chain: Sequence[Step], rank: int | None) -> None:
    name = stage.step.op.name

    def with_function(emit: Emitter) -> Callable[[Code], None]:
        def body(code: Code) -> None:
            if stage.function:
                add_function(code, stage.function, chain, rank)
            emit(code, stage, slots)

        return body

    if name in _PRODUCTS:
        shape = cuda_products.product_shape(slots)
        whole.add(shape, with_function(cuda_products.product))
    elif stage.step.kind == "contract" and name != "matvec":
        whole.add(cuda_products.window_shape(slots), with_function(cuda_products.conv))
    elif stage.step.kind == "pool":
        whole.add(cuda_products.window_shape(slots), with_function(cuda_products.pool))
    elif _over_channels(stage.step) and not stage.reduced:
        shape = "<<<(R / C * N + B - 1) / B, B, 0, stream>>>"
        whole.add(shape, with_function(_columns))
    else:
        _add_row_kernels(whole, stage, slots, with_function(_ROW_KERNELS[name]))


def _add_row_kernels(whole: _Program, stage: Stage, slots: Slots, body: Callable[[Code], None]) -> None:
    name = stage.step.op.name
    if name == "batch_norm":
        num = "C"
    elif name in ("layer_norm", "instance_norm", "group_norm"):
        num = cuda_rows.norm_rows(stage).num
    else:
        num = "R" if name == "matvec" else stage.rows.num
    shape = cuda_threads.launch_shape(slots, num)
    if slots["rows"] == "split":
        rows = cuda_rows.norm_rows(stage)
        whole.add(shape, lambda code: cuda_rows.partial_moments(code, stage, slots, rows))
    if stage.step.kind == "loss" and name != "cosine_similarity":
        whole.launches.add("cudaMemsetAsync(out, 0, sizeof(float), stream);", uninitialised=None)
    whole.add(shape, body)


def _columns(code: Code, stage: Stage, slots: Slots) -> None:
    """A reduction over the channels: neighbouring threads own neighbouring columns."""
    code.add("int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;")
    code.add("if (i >= R / C * N) return;", missing_bounds=None)
    pointer = f"const float* p = {stage.source} + i / N * C * N + i % N;"
    code.add(pointer, wrong_axis=pointer.replace("i / N * C * N + i % N", "i * C"))
    top = stage.step.op.name == "max_dim"
    code.add(f"real acc = {'p[0]' if top else '0'};", uninitialised="real acc;")
    with code.loop("c", "C"):
        code.add("float e = p[c * N];", wrong_axis="float e = p[c];")
        code.add("acc = e > acc ? e : acc;" if top else "acc += e;", wrong_formula="acc = e;")
    value = "acc / C" if stage.step.op.name == "mean_dim" else "acc"
    add_store(code, stage, value, index="i")


def _add_pass(
    whole: _Program,
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
        code.add("int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;")
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

    whole.add(f"<<<{grid}, B, 0, stream>>>", body)


def _store(code: Code, assignment: str) -> None:
    code.add(f"{assignment};", missing_semicolon=assignment)
