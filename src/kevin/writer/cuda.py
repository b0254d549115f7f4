"""A whole CUDA kernel in the ``c_abi`` dialect: sizes, buffers, device functions, one or more kernels, the launcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from kevin.core import abi
from kevin.core.types import TaskSpec
from kevin.tasks.ops import Step
from kevin.writer import cuda_products, cuda_reduce, cuda_rows, cuda_threads, layout
from kevin.writer.code import Code
from kevin.writer.pointwise import add_pointwise, is_pointwise
from kevin.writer.slots import Slots
from kevin.writer.space import own_slots
from kevin.writer.stage import Stage, add_store

_ROW_KERNELS: dict[str, Callable[[Code, Stage, Slots], None]] = {
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

    def __init__(self, spec: TaskSpec, slots: Slots, alias: bool) -> None:
        signature = abi.signature(spec, "cuda")
        if slots["pointers"] == "restrict":
            signature = signature.replace("* ", "* __restrict__ ")
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
    flat = is_pointwise(steps[0]) and len(steps) == 1
    whole = _Program(spec, slots, alias=len(steps) > 1 and reduction is None)
    code = Code()
    if slots["math"] == "fast":
        code.add("#define expf __expf")
        code.add("#define logf __logf")
    if not flat:
        code.add(f"constexpr int64_t {layout.of_result(steps[0])};")
    if reduction is not None:
        code.add("__device__ float t[R * N];")
    if slots.get("rows") == "split":
        rows = cuda_rows.norm_rows(Stage(steps[0], "x", "out"))
        code.add(f"__device__ {slots['real']} part[2 * 64 * {rows.num}];")
    _add_helpers(code, steps, slots)
    if flat:
        _add_pass(whole, steps, slots, ("x", "out"), "out_size", None)
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
    buffer = "out" if len(steps) == 1 else "t"
    at, source = 0, "x"
    while at < len(steps):
        run = at + 1
        while run < len(steps) and is_pointwise(steps[run]):
            run += 1
        target = "out" if at == reduction else buffer
        done = reduction is not None and at > reduction
        fused = slots.get("fusion") == "store" and steps[at].op.name not in _NOT_FUSED
        stage = Stage(steps[at], source, target, tuple(steps[at + 1 : run]) if fused else (), reduced=done)
        _add_stage(whole, stage, own_slots(steps, at, slots))
        buffer = source = target
        if not fused:
            _add_passes(whole, steps, slots, (at + 1, run), buffer)
        at = run


def _add_stage(whole: _Program, stage: Stage, slots: Slots) -> None:
    name, size = stage.step.op.name, slots["block_size"]
    if name in _PRODUCTS:
        shape = cuda_products.product_shape(slots)
        whole.add(shape, lambda code: cuda_products.product(code, stage, slots))
    elif stage.step.kind == "contract" and name != "matvec":
        whole.add(cuda_products.window_shape(slots), lambda code: cuda_products.conv(code, stage, slots))
    elif stage.step.kind == "pool":
        whole.add(cuda_products.window_shape(slots), lambda code: cuda_products.pool(code, stage, slots))
    elif _over_channels(stage.step) and not stage.reduced:
        shape = f"<<<(R / C * N + {int(size) - 1}) / {size}, {size}, 0, stream>>>"
        whole.add(shape, lambda code: _columns(code, stage, slots))
    else:
        _add_row_kernels(whole, stage, slots)


def _add_row_kernels(whole: _Program, stage: Stage, slots: Slots) -> None:
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
    whole.add(shape, lambda code: _ROW_KERNELS[name](code, stage, slots))


def _columns(code: Code, stage: Stage, slots: Slots) -> None:
    """A reduction over the channels: neighbouring threads own neighbouring columns."""
    code.add("int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;")
    code.add("if (i >= R / C * N) return;", missing_bounds=None)
    pointer = f"const float* p = {stage.source} + i / N * C * N + i % N;"
    code.add(pointer, wrong_axis=pointer.replace("i / N * C * N + i % N", "i * C"))
    top = stage.step.op.name == "max_dim"
    real = slots["real"]
    code.add(f"{real} acc = {'p[0]' if top else '0'};", uninitialised=f"{real} acc;")
    with code.loop("c", "C"):
        code.add("float e = p[c * N];", wrong_axis="float e = p[c];")
        code.add("acc = e > acc ? e : acc;" if top else "acc += e;", wrong_formula="acc = e;")
    value = "acc / C" if stage.step.op.name == "mean_dim" else "acc"
    add_store(code, stage, slots, value, index="i", channel=layout.channel_after_reduction(stage.step, "i"))


def _add_passes(whole: _Program, steps: Sequence[Step], slots: Slots, run: tuple[int, int], buffer: str) -> None:
    chain = steps[run[0] : run[1]]
    if not chain:
        return
    reduced = next((s for s in steps[: run[0]] if s.kind == "reduce"), None)
    rank = len(steps[run[0] - 1].out_shape)
    channel = layout.channel_after_reduction(reduced, "i") if reduced else ("i % N" if rank == 2 else "i / N % C")
    for part in [chain] if slots["fusion"] != "each" else [[s] for s in chain]:
        _add_pass(whole, part, slots, (buffer, buffer), "out_size" if reduced else "R * N", channel)


def _add_pass(
    whole: _Program, steps: Sequence[Step], slots: Slots, buffers: tuple[str, str], total: str, channel: str | None
) -> None:
    """Read ``v`` from the first buffer, run it through the steps, store it in the second."""
    size = slots["block_size"]
    stride = slots["grid"] == "stride"
    grid = "1024" if stride else f"({total} + {int(size) - 1}) / {size}"
    vector = slots["grid"] == "vector"
    if vector:
        grid = f"({total} / 4 + {int(size) - 1}) / {size}"

    def statements(code: Code, index: str) -> None:
        at = channel.replace("i", f"({index})") if channel and index != "i" else channel
        for step in steps:
            add_pointwise(code, step, index=index, channel=at or "0", real=slots["real"])

    def body(code: Code) -> None:
        code.add("int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;")
        if vector:
            code.add(f"if (i >= {total} / 4) return;", missing_bounds=None)
            code.add(f"float4 f = ((const float4*){buffers[0]})[i];")
            code.add("float* e = &f.x;")
            with code.block("for (int j = 0; j < 4; j++)", off_by_one="for (int j = 0; j < 3; j++)"):
                code.add(f"{slots['real']} v = e[j];")
                statements(code, "4 * i + j")
                code.add("e[j] = v;", missing_semicolon="e[j] = v")
            code.add(f"((float4*){buffers[1]})[i] = f;")
            return
        head = f"for (; i < {total}; i += gridDim.x * (int64_t)blockDim.x)"
        with code.block(head, off_by_one=head.replace(total, f"{total} - 1")) if stride else _bounded(code, total):
            code.add(f"{slots['real']} v = {buffers[0]}[i];")
            statements(code, "i")
            code.add(f"{buffers[1]}[i] = v;", missing_semicolon=f"{buffers[1]}[i] = v")

    whole.add(f"<<<{grid}, {size}, 0, stream>>>", body)


def _bounded(code: Code, total: str) -> AbstractContextManager[None]:
    code.add(f"if (i >= {total}) return;", missing_bounds=None, undeclared_name="if (i >= size) return;")
    return nullcontext()
