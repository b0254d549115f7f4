"""A whole kernel: sizes, then one loop nest a stage, or in CUDA a kernel or two."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from kevin.core import abi
from kevin.core.types import Language, TaskSpec
from kevin.tasks.ops import Step
from kevin.writer.kernels import norms, orders, products, reduces, tensor, windows
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.dims import wrapped
from kevin.writer.kernels.mode import THREAD, Mode, add_helper, launch_shape, store
from kevin.writer.kernels.rows import is_over_rows, is_shared, rows_of
from kevin.writer.kernels.space import can_be_vectors, own_slots
from kevin.writer.kernels.stages import Program, Stage, add_function, broadcast_index, cut
from kevin.writer.slots import Slots, add_prelude, parallel, simd, uses_math

_LARGEST_INT = 1 << 30
Emitter = Callable[[Code, Stage, Mode], None]


def _row_emitter(stage: Stage) -> Emitter:
    """What writes a stage over rows."""
    if stage.kind == "scan":
        return reduces.scan
    if reduces.is_mean(stage):
        return reduces.losses
    if stage.kind in ("reduce", "contract", "pool", "loss"):
        return reduces.reduce
    if stage.name in norms.SOFTMAX:
        return norms.softmax
    return norms.moments if stage.name in norms.MOMENTS else norms.lengths


def _add_sizes(code: Code, spec: TaskSpec, program: Program) -> None:
    """Type of indices, then every size by its name."""
    tensors = [s.num_elements for s in (*spec.inputs, *spec.parameters, *spec.outputs)]
    largest = max([*tensors, *(s.out_dims.num for s in program.stages)])
    code.add(f"typedef {'int' if largest < _LARGEST_INT else 'int64_t'} idx;")
    for name, text in program.declarations:
        code.add(f"constexpr idx {name} = {text};")


def _flat(code: Code, stage: Stage, mode: Mode) -> None:
    """Nothing but element-wise operators; the source may be broadcast. A diagonal matrix scales rows."""
    dims = stage.out_dims
    with mode.results(code, dims.total, innermost=True):
        if stage.name == "matmul_diagonal":
            value = f"{stage.source}[i / {dims.names[1]}] * {stage.step.second}[i]"
            store(code, stage, value, wrong_axis=value.replace(" / ", " % "))
        else:
            store(code, stage, f"{stage.source}[{broadcast_index(stage.in_dims, dims)}]")


def program(spec: TaskSpec, steps: Sequence[Step], slots: Slots, language: Language) -> Code:
    """The kernel of these steps, complete from the first line to the last brace."""
    plan = cut(steps, fused=slots.get("fusion") != "pass")
    return (_cuda if language == "cuda" else _cpp)(spec, plan, slots)


# --- C++ --------------------------------------------------------------------------------------------------------


def _cpp(spec: TaskSpec, plan: Program, slots: Slots) -> Code:
    body = Code()
    _add_sizes(body, spec, plan)
    signature = abi.signature(spec, "cpp")
    with body.block(signature, wrong_type=signature.replace("float*", "double*", 1)):
        for name, dims in plan.scratch:
            body.add(f"static float {name}[{dims.total}];")
        for stage in plan.stages:
            add_function(body, stage, stage.out_dims)
            _add_loops(body, stage, Mode("cpp", own_slots(stage, slots)))
    code = Code()
    add_prelude(code, slots, uses_math=uses_math(body))
    code.extend(body)
    return code


def _add_loops(code: Code, stage: Stage, mode: Mode) -> None:
    if stage.name == "frobenius_norm":
        _whole_norm(code, stage)
    elif mode.slots.get("order") in orders.ORDERED:
        orders.ordered(code, stage, mode)
    elif reduces.is_mean(stage):
        code.add("double total = 0;", uninitialised="double total;")
        _row_emitter(stage)(code, stage, mode)
        code.add("out[0] = total;")
    elif is_over_rows(stage):
        _row_emitter(stage)(code, stage, mode)
    elif stage.name in ("", "matmul_diagonal"):
        _flat(code, stage, mode)
    elif stage.kind == "pool":
        windows.pool(code, stage, mode)
    elif products.is_window(stage):
        windows.conv(code, stage, mode)
    else:
        products.naive(code, stage, mode)


def _whole_norm(code: Code, stage: Stage) -> None:
    total = stage.in_dims.total
    code.add("double squares = 0;", uninitialised="double squares;")
    code.add(parallel("+:squares"))
    head = f"for (idx i = 0; i < {total}; i++)"
    line = f"squares += {stage.source}[i] * {stage.source}[i];"
    code.add(f"{head} {line}", wrong_formula=f"{head} squares += {stage.source}[i];")
    code.add("real inv = 1 / sqrt(squares);", wrong_formula="real inv = 1 / squares;")
    code.add(simd())
    with code.block(head):
        store(code, stage, f"{stage.source}[i] * inv")


# --- CUDA -------------------------------------------------------------------------------------------------------


def _way(stage: Stage, mode: Mode) -> str:
    """The plan's way to compute a product, or the nearest that this stage allows."""
    wanted, allowed = mode.slots.get("product", "naive"), tensor.ways(stage)
    return wanted if wanted in allowed else allowed[-1]


def _vectors(code: Code, stage: Stage, mode: Mode) -> None:
    """Nothing but element-wise operators, four neighbours a thread."""
    total = stage.out_dims.total
    code.add(THREAD)
    text = f"if (i >= {total} / 4) return;"
    code.add(text, missing_bounds=None, undeclared_name="if (i >= num) return;", off_by_one=text.replace(" / 4", ""))
    code.add(f"float4 q = ((const float4*){stage.source})[i];")
    for j, part in enumerate("xyzw"):
        right = f"q.{part} = {stage.applied(f'q.{part}', f'4 * i + {j}')}"
        code.add(f"{right};", missing_semicolon=right, wrong_axis=right.replace(f"(q.{part}", "(q.x") + ";")
    code.add(f"((float4*){stage.target})[i] = q;")


class _Writer:
    """Kernels so far and the launches that go with them."""

    def __init__(self, spec: TaskSpec, program: Program, slots: Slots) -> None:
        self.slots = slots
        self.device, self.launches = Code(), Code()
        types = {
            s.name: abi.c_type(s, "cuda") if s.kind == "scalar" else f"const {abi.c_type(s, 'cuda')}*"
            for s in (*spec.inputs, *spec.parameters)
        }
        self.scratch = [(name, dims.total) for name, dims in program.scratch]
        types |= {name: "float*" for name, _ in self.scratch}
        types |= {s.name: f"{abi.c_type(s, 'cuda')}*" for s in spec.outputs}
        self._types = types
        self._num = 0

    def add(self, shape: str, stage: Stage, emit: Emitter, mode: Mode, bounds: str = "") -> None:
        """One more kernel; it takes what its text names. ``bounds``: threads a block, and blocks a multiprocessor."""
        self._num += 1
        body = Code()
        add_function(body, stage, stage.out_dims)
        emit(body, stage, mode)
        words = set(re.findall(r"(?<![.\w])\w+", body.text()))  # x, but not blockIdx.x
        used = [name for name in self._types if name in words]
        parameters = ", ".join(f"{self._types[name]} {name}" for name in used)
        bounds = f"__launch_bounds__({bounds}) " if bounds else ""
        with self.device.block(f"__global__ void {bounds}stage{self._num}({parameters})"):
            self.device.extend(body)
        self.launches.add(f"stage{self._num}{shape}({', '.join(used)});")

    def add_stage(self, stage: Stage) -> None:
        mode = Mode("cuda", own_slots(stage, self.slots))
        shape = self._per_result(stage.out_dims.total)
        if stage.name == "frobenius_norm":
            self._whole_norm(stage, mode)
        elif is_over_rows(stage):
            self._rows(stage, mode)
        elif self.slots.get("grid") == "vector" and can_be_vectors(stage):
            self.add(f"<<<({stage.out_dims.total} / 4 + B - 1) / B, B, 0, stream>>>", stage, _vectors, mode)
        elif stage.name in ("", "matmul_diagonal"):
            self.add(shape, stage, _flat, mode)
        elif stage.kind == "pool":
            self.add(shape, stage, windows.pool, mode)
        elif (way := _way(stage, mode)) != "naive":
            mode = replace(mode, slots={**mode.slots, "product": way})
            if way in tensor.TILES:
                self._tensor(stage, mode)
            else:
                self.add(products.tiles_shape(stage, mode), stage, products.tiled, mode)
        else:
            emit = windows.conv if products.is_window(stage) else products.naive
            self.add(shape, stage, emit, mode)

    def _per_result(self, total: str) -> str:
        """``<<<...>>>`` of a kernel with a thread for each result, or of a grid's stride."""
        return f"<<<{'1024' if self.slots.get('grid') == 'stride' else f'({total} + B - 1) / B'}, B, 0, stream>>>"

    def _tensor(self, stage: Stage, mode: Mode) -> None:
        """Tiles on tensor cores; where blocks share a sum, a pass over the results does what follows."""
        shape, bounds = tensor.tensor_shape(stage, mode), tensor.bounds(mode)
        if not tensor.num_parts(stage, mode):
            self.add(shape, stage, tensor.tensor, mode, bounds)
            return
        total = stage.out_dims.total
        self.launches.add(
            f"cudaMemsetAsync({stage.target}, 0, sizeof(float) * {wrapped(total)}, stream);", uninitialised=None
        )
        self.add(shape, stage.bare, tensor.tensor, mode, bounds)
        if stage.chain:
            self.add_stage(replace(stage, main=None, source=stage.target, in_dims=stage.out_dims))

    def _rows(self, stage: Stage, mode: Mode) -> None:
        rows = rows_of(stage)
        if not is_shared(stage) or "rows" not in self.slots:
            mode = mode.owned_by("thread")
        if mode.rows == "split":
            if norms.can_be_split(stage):
                self._split(stage, mode)
                return
            mode = mode.owned_by("shuffle")
        if reduces.is_mean(stage):
            self.launches.add("cudaMemsetAsync(out, 0, sizeof(float), stream);", uninitialised=None)
        self.add(launch_shape(mode.rows, rows.num), stage, _row_emitter(stage), mode)

    def _split(self, stage: Stage, mode: Mode) -> None:
        """Moments in one kernel, the result in another, both by 64 blocks a row."""
        num = rows_of(stage).num
        moments = self._scratch("moments", f"3 * {num}")
        self.launches.add(f"cudaMemsetAsync({moments}, 0, sizeof(float) * 3 * {num}, stream);", uninitialised=None)
        shape = launch_shape("split", num)
        self.add(shape, stage.bare, partial(norms.partial_moments, moments=moments), mode)
        self.add(shape, stage, partial(norms.from_moments, moments=moments), mode)

    def _scratch(self, name: str, size: str) -> str:
        """A new buffer of so many floats."""
        taken = [n for n, _ in self.scratch]
        name = name if name not in taken else f"{name}{len(taken)}"
        self.scratch.append((name, size))
        self._types[name] = "float*"
        return name

    def _whole_norm(self, stage: Stage, mode: Mode) -> None:
        """The norm of a whole tensor: 1024 blocks add up squares, then every element is scaled."""
        total = stage.in_dims.total

        squares = self._scratch("squares", "1")

        def add_up(code: Code, stage: Stage, mode: Mode) -> None:
            code.add("real sum = 0;", uninitialised="real sum;")
            code.add(THREAD)
            head = f"for (; i < {total}; i += gridDim.x * (idx)blockDim.x)"
            with code.block(head, off_by_one=head.replace(total, f"{total} - 1", 1)):
                code.add(f"sum += {stage.source}[i] * {stage.source}[i];", wrong_formula=f"sum += {stage.source}[i];")
            code.add("for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(0xffffffff, sum, k);", op_left_out=None)
            code.add(
                f"if (threadIdx.x % 32 == 0) atomicAdd({squares}, (float)sum);", missing_barrier=f"*{squares} += sum;"
            )

        def scaled(code: Code, stage: Stage, mode: Mode) -> None:
            with mode.results(code, total):
                value = f"{stage.source}[i] / sqrt({squares}[0])"
                store(code, stage, value, wrong_formula=value.replace("sqrt", ""))

        self.launches.add(f"cudaMemsetAsync({squares}, 0, sizeof(float), stream);", uninitialised=None)
        self.add("<<<1024, B, 0, stream>>>", stage.bare, add_up, mode)
        self.add(self._per_result(total), stage, scaled, mode)


def _cuda(spec: TaskSpec, plan: Program, slots: Slots) -> Code:
    code = Code()
    if slots["math"] == "fast":
        code.add("#define exp __expf")
        code.add("#define log __logf")
    code.add(f"typedef {slots['real']} real;")
    _add_sizes(code, spec, plan)
    code.add(f"constexpr int B = {slots['block_size']};")
    writer = _Writer(spec, plan, slots)
    for stage in plan.stages:
        writer.add_stage(stage)
    if "mma(" in writer.device.text():
        tensor.add_helpers(code)
    for helper in ("top_of", "sum_of"):
        if f"{helper}(" in writer.device.text():
            add_helper(code, slots, helper)
    code.extend(writer.device)
    signature = abi.signature(spec, "cuda")
    with code.block(signature, wrong_type=signature.replace("float*", "double*", 1)):
        for name, size in writer.scratch:
            code.add(f"static float* {name};")
            code.add(f"if (!{name}) cudaMalloc(&{name}, sizeof(float) * {size});")
        code.extend(writer.launches)
    return code
