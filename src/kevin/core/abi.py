"""The ``c_abi`` dialect: one bare translation unit with an ``extern "C"`` launcher, no torch header anywhere.

The launcher takes every input in the order of `Model.forward`, then every parameter, then every output, each a
pointer to contiguous row-major memory (scalars by value), and on CUDA a stream last. Sizes are compile-time constants.
"""

from __future__ import annotations

from kevin.core.errors import TaskError
from kevin.core.types import Language, TaskSpec, TensorSpec

LAUNCHER = "launch"

_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "bool": "bool",
}
_CUDA_TYPES = {**_C_TYPES, "float16": "__half", "bfloat16": "__nv_bfloat16"}


def c_type(spec: TensorSpec, language: Language) -> str:
    """C type of one element. Raises TaskError for a dtype the dialect does not carry."""
    types = _CUDA_TYPES if language == "cuda" else _C_TYPES
    try:
        return types[spec.dtype]
    except KeyError:
        raise TaskError(
            f"{spec.name}: dtype {spec.dtype} is not part of the c_abi dialect in {language}: let the reference use "
            f"float32 there{', or judge on a GPU' if spec.dtype in _CUDA_TYPES else ''}"
        ) from None


def signature(spec: TaskSpec, language: Language) -> str:
    """The launcher's exact declaration, without a semicolon."""
    args = []
    for s in (*spec.inputs, *spec.parameters):
        args.append(
            f"{c_type(s, language)} {s.name}" if s.kind == "scalar" else f"const {c_type(s, language)}* {s.name}"
        )
    args += [f"{c_type(s, language)}* {s.name}" for s in spec.outputs]
    if language == "cuda":
        args.append("cudaStream_t stream")
    return f'extern "C" void {LAUNCHER}({", ".join(args)})'


def wanted(spec: TaskSpec, language: Language) -> str:
    """For the author of a kernel whose launcher is another one."""
    return f"the harness calls {signature(spec, language)}: give the launcher these arguments"


def header(spec: TaskSpec, language: Language) -> str:
    """What the harness puts before the candidate's source: includes, sizes as constants, the declaration.

    Dimension ``i`` of a tensor ``x`` is ``x_d<i>``, its number of elements ``x_size``.
    """
    lines = ["#include <cstdint>"]
    if language == "cuda":
        lines.append("#include <cuda_runtime.h>")
        dtypes = {s.dtype for s in (*spec.inputs, *spec.parameters, *spec.outputs)}
        if "float16" in dtypes:
            lines.append("#include <cuda_fp16.h>")
        if "bfloat16" in dtypes:
            lines.append("#include <cuda_bf16.h>")
    for s in (*spec.inputs, *spec.parameters, *spec.outputs):
        if s.kind == "tensor":
            consts = [f"{s.name}_d{i} = {d}" for i, d in enumerate(s.shape)] + [f"{s.name}_size = {s.num_elements}"]
            lines.append(f"constexpr int64_t {', '.join(consts)};")
    lines.append(signature(spec, language) + ";")
    return "\n".join(lines) + "\n"
