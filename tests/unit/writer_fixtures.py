"""Small-sized tasks for the kernel writer, and a way to run many C++ kernels from one shared object."""

from __future__ import annotations

import ctypes
import functools
import random
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from kevin.core import abi
from kevin.core.types import Language, OpCall, Task
from kevin.tasks.catalog import NOT_ALONE, catalog, draw
from kevin.tasks.compose import compose, compose_general
from kevin.tasks.format import load_module
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import own_task, parse_sequence, sizes_of
from kevin.writer.plan import Plan, render

SMALL = {
    "batch_size": 8,
    "dim": 64,
    "channels": 16,
    "in_channels": 8,
    "out_channels": 16,
    "length": 32,
    "height": 16,
    "width": 16,
    "rows": 16,
    "inner": 64,
    "cols": 32,
    "in_features": 64,
    "out_features": 32,
    "classes": 64,
}


def small(task: Task) -> Task:
    """The same operators on small tensors."""
    names = [n for n in sizes_of(task.source) if n in SMALL]
    return task_of(task.ops, {n: SMALL[n] for n in names})


def task_of(ops: Sequence[OpCall], sizes: dict[str, int]) -> Task:
    return own_task(f"l{1 if len(ops) == 1 else 2}/{'_'.join(op.name for op in ops)}", ops, sizes)


def small_catalog() -> list[Task]:
    return [small(t) for t in catalog("cpu")]


def small_composed(num: int, seed: int = 0) -> list[Task]:
    return [small(t) for t in compose(num, seed, "cpu")]


@functools.cache
def small_tasks() -> tuple[Task, ...]:
    """Single operators and composed ones."""
    return (*small_catalog(), *small_composed(20))


_PICTURE = {"batch_size": 2, "in_channels": 3, "height": 9, "width": 8, "out_channels": 8}
_VOLUME = {"batch_size": 2, "in_channels": 3, "depth": 5, "height": 6, "width": 7, "out_channels": 4}
_FLAT = {"batch_size": 6, "in_features": 12, "out_features": 40}
_SEQUENCES = [
    ("linear | sigmoid | linear out=9 | logsumexp dim=1", _FLAT),
    ("linear | mean_dim keepdim=1 | gelu | add_residual of=0", {**_FLAT, "in_features": 40}),
    ("linear | scale | add_residual of=2 | clamp | mish | mish", _FLAT),
    ("linear | row_norm | add_input | mul_input again=1", _FLAT),
    ("linear | max_pool1d | sum_dim | scale c=0.5", _FLAT),
    ("linear bias=0 | batch_norm track=1 | mul_param ndim=1 axis=-1 | softmax", _FLAT),
    ("conv2d | group_norm groups=4 | tanh | hardswish | add_residual of=1 | logsumexp dim=1 keepdim=1", _PICTURE),
    (
        "conv_transpose2d stride=2 padding=1 output_padding=1 | add_param | add_residual of=1 | mul_residual of=1"
        " | add_residual of=1",
        _PICTURE,
    ),
    (
        "conv_transpose2d | mean_dim dim=2 num_dims=2 keepdim=1 | add_param | logsumexp dim=1 keepdim=1"
        " | sum_dim dim=2 num_dims=2 | scale c=10.0",
        _PICTURE,
    ),
    ("conv3d padding=1 | mul_param | instance_norm | clamp | mul_param again=1 | max_dim dim=1", _VOLUME),
    (
        "conv_transpose3d stride=2 | batch_norm track=1 | mean_dim dim=2 num_dims=3 keepdim=1 | residual_sub of=2",
        _VOLUME,
    ),
    ("avg_pool3d | conv_transpose3d stride=2 padding=1 | spatial_softmax | mul_param", _VOLUME),
    ("conv2d | min_dim dim=1 keepdim=1 | tanh | tanh", _PICTURE),
    (
        "depthwise_conv2d padding=1 | conv2d_pointwise bias=0 | adaptive_avg_pool | square",
        {"batch_size": 2, "channels": 4, "height": 6, "width": 6, "out_channels": 5},
    ),
]


def task_of_text(text: str, sizes: dict[str, int]) -> Task:
    """Of operators as `parse_sequence` reads them; as if it had been composed."""
    return task_of(parse_sequence(text), sizes).model_copy(update={"origin": "composed"})


def general_composed() -> list[Task]:
    return [task_of(parse_sequence(text), sizes) for text, sizes in _SEQUENCES]


def general_singles(seed: int, elements: int = 600) -> list[Task]:
    """One task of every operator that can stand alone, in any shape."""
    rng = random.Random(seed)
    drawn = (draw(rng, name, elements) for name in OPERATORS if name not in NOT_ALONE)
    return [task_of([op], sizes) for op, sizes in drawn]


@functools.cache
def general_drawn() -> tuple[Task, ...]:
    return tuple(compose_general(600, 0, "gpu"))


def _unit(pairs: Sequence[tuple[Task, str]], fast: bool) -> str:
    """All kernels in one file, each in a namespace of its own with a launcher ``launch_<index>``."""
    parts = ["#include <cstdint>", "#include <cmath>"]
    if fast:
        parts = ["#define __FAST_MATH__ 1", '#pragma GCC optimize("fast-math")', *parts]
    for i, (task, source) in enumerate(pairs):
        if ("fast-math" in source) != fast:
            continue
        assert task.spec is not None
        text = re.sub(
            r"^#(include|define __FAST|pragma GCC optimize).*\n", "", abi.header(task.spec, "cpp") + source, flags=re.M
        )
        text = re.sub(r"\blaunch\b", f"launch_{i}", text)
        parts.append(f"namespace k{i} {{\n{text}}}")
    return "\n".join(parts) + "\n"


_LAUNCH = re.compile(r"(\w+)<<<(.*), 0, stream>>>\((.*)\);")


def _emulated(pairs: Sequence[tuple[Task, str]]) -> str:
    """All CUDA kernels in one file for the CPU: launches become calls that run block after block."""
    parts = ['#include "emulated_cuda.h"']
    for i, (task, source) in enumerate(pairs):
        assert task.spec is not None
        text = re.sub(r"^#include.*\n", "", abi.header(task.spec, "cuda"), flags=re.M) + source
        fast = "#define exp __expf" in text
        text = re.sub(r"^#define (exp|log) .*\n", "", text, flags=re.M)
        text = re.sub(r"\blaunch\b", f"launch_{i}", text)
        text = with_functions_for_asm(_LAUNCH.sub(_launched, text))
        macros = ("#define exp __expf\n#define log __logf\n", "#undef exp\n#undef log\n") if fast else ("", "")
        parts.append(f"{macros[0]}namespace k{i} {{\n{text}}}\n{macros[1]}")
    return "\n".join(parts) + "\n"


_ASM = re.compile(r"asm(?: volatile)?\((.*?)\);\n", re.DOTALL)
_STRING = re.compile(r'"([^"]*)"')


def with_functions_for_asm(text: str) -> str:
    """Every asm statement of one instruction as a call of the function that has its name in ``emulated_cuda.h``.

    The function takes the values for which the placeholders stand, in the order of the instruction's operands.
    """
    return _ASM.sub(lambda match: _called(match[1]), text)


def _called(statement: str) -> str:
    template, *sections = _split(statement, ":")
    values = [part for section in sections[:2] for part in _split(section, ",") if part]
    values = [value[value.index("(") : value.rindex(")") + 1] for value in values]
    instruction, _, operands = "".join(_STRING.findall(template)).rstrip(";").partition(" ")
    numbers = [int(n) for n in re.findall(r"%(\d+)", operands)]
    return f"ptx::{instruction.replace('.', '_')}({', '.join(values[n] for n in numbers)});\n"


def _split(text: str, separator: str) -> list[str]:
    """Parts between separators that stand in no brackets and no string."""
    parts, depth, quoted = [""], 0, False
    for char in text:
        quoted ^= char == '"'
        depth += 0 if quoted else (char == "(") - (char == ")")
        if char == separator and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _launched(match: re.Match[str]) -> str:
    kernel, shape, arguments = match.groups()
    at = _top_level_comma(shape)
    return f"emulated::launch({shape[:at]}, {shape[at + 1 :]}, [&] {{ {kernel}({arguments}); }});"


def _top_level_comma(text: str) -> int:
    depth = 0
    for i, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            return i
    raise ValueError(text)


def right_results(pairs: Sequence[tuple[Task, str]], folder: Path, language: Language) -> list[bool]:
    """Whether each kernel gives what PyTorch gives. CUDA is run on the CPU."""
    if language == "cuda":
        return [_is_close(*results) for results in cuda_results(pairs, folder)]
    libraries = compile_all(pairs, folder)
    return [
        _is_close(*_results(task, getattr(libraries["fast-math" in source], f"launch_{i}")))
        for i, (task, source) in enumerate(pairs)
    ]


def wrong(pairs: Sequence[tuple[Task, Plan]], folder: Path) -> list[tuple[str, dict[str, str]]]:
    """Task and decisions of the plans, all of one language, whose kernels give something else than PyTorch."""
    language = pairs[0][1].language
    right = right_results([(t, render(t, p)) for t, p in pairs], folder, language)
    return [(t.id, dict(p.slots)) for (t, p), ok in zip(pairs, right, strict=True) if not ok]


def cuda_results(
    pairs: Sequence[tuple[Task, str]], folder: Path, dtype: torch.dtype = torch.float32
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What each CUDA kernel, run on the CPU, gives, and what PyTorch gives in ``dtype``."""
    source, library = folder / "emulated.cpp", folder / "emulated.so"
    source.write_text(_emulated(pairs))
    flags = ["-O1", "-std=c++17", "-shared", "-fPIC", "-w", f"-I{Path(__file__).parent}"]
    subprocess.run(["g++", *flags, "-o", str(library), str(source)], check=True, timeout=300)
    kernels = ctypes.CDLL(str(library))
    for i, (task, _) in enumerate(pairs):
        yield _results(task, getattr(kernels, f"launch_{i}"), ctypes.c_int(0), dtype=dtype)


def compile_all(pairs: Sequence[tuple[Task, str]], folder: Path) -> list[ctypes.CDLL]:
    """Two libraries, of the kernels in strict and in relaxed arithmetic."""
    libraries = []
    for fast in (False, True):
        source, library = folder / f"all{fast}.cpp", folder / f"all{fast}.so"
        source.write_text(_unit(pairs, fast))
        flags = ["-O1", "-march=native", "-fopenmp", "-std=c++17", "-shared", "-fPIC", "-w"]
        subprocess.run(["g++", *flags, "-o", str(library), str(source)], check=True, timeout=300)
        libraries.append(ctypes.CDLL(str(library)))
    return libraries


def _is_close(out: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(out.double(), expected.double(), atol=1e-4, rtol=1e-4)


def _results(
    task: Task, launch: Callable[..., None], *stream: ctypes.c_int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a kernel gives, and what PyTorch gives in ``dtype``."""
    module = load_module(task.source, task.id)
    torch.manual_seed(0)
    model = module.Model(*module.get_init_inputs())
    inputs = module.get_inputs()
    parameters = [p.detach().clone() for p in model.parameters()]
    buffers = [b.clone() for b in model.buffers() if b.is_floating_point()]
    with torch.no_grad():
        if dtype != torch.float32:
            wide = [i.to(dtype) if isinstance(i, torch.Tensor) and i.is_floating_point() else i for i in inputs]
            expected = model.to(dtype)(*wide)
        else:
            expected = model(*inputs)
    out = torch.full_like(expected, -7, dtype=torch.float32 if expected.is_floating_point() else expected.dtype)
    arguments = [*inputs, *parameters, *buffers, out]
    launch(*(ctypes.c_double(t) if isinstance(t, float) else ctypes.c_void_p(t.data_ptr()) for t in arguments), *stream)
    return out, expected
