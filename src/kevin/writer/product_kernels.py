"""Kernels that differ in how they compute products alone, to be compared on a device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kevin.core.types import Task
from kevin.tasks.ops import parse_sequence, trace
from kevin.tasks.render import render as render_task
from kevin.writer.counterpart import counterpart
from kevin.writer.general.tensor import TILES
from kevin.writer.plan import Plan, plan_space, render

_PICTURE = {"batch_size": 64, "in_channels": 64, "height": 128, "width": 128, "out_channels": 128}
_HALF = {**_PICTURE, "out_channels": 64}
_VOLUME = {"batch_size": 16, "in_channels": 32, "depth": 16, "height": 64, "width": 64, "out_channels": 64}
_SHAPES = (
    ("matmul", {"rows": 4096, "inner": 4096, "cols": 4096}),
    ("matmul", {"rows": 256, "inner": 524288, "cols": 256}),
    ("matmul", {"rows": 16384, "inner": 64, "cols": 16384}),
    ("matmul", {"rows": 8205, "inner": 2949, "cols": 5921}),
    ("matmul_transposed_a", {"inner": 8192, "rows": 2048, "cols": 4096}),
    ("matmul_transposed_b", {"rows": 2048, "inner": 8192, "cols": 4096}),
    ("matmul_transposed", {"inner": 8192, "rows": 2048, "cols": 4096}),
    ("matmul_batched", {"batch_size": 128, "rows": 512, "inner": 1024, "cols": 2048}),
    ("linear | relu", {"batch_size": 1024, "in_features": 8192, "out_features": 8192}),
    ("linear | gelu | scale", {"batch_size": 1024, "in_features": 8192, "out_features": 8192}),
    ("conv1d stride=3 dilation=4", {"batch_size": 64, "in_channels": 64, "length": 65536, "out_channels": 128}),
    ("conv2d | relu", _PICTURE),
    ("conv2d padding=1 | mish", _HALF),
    ("conv2d_pointwise", _PICTURE),
    ("conv2d kernel=11 stride=4 padding=2", {**_HALF, "in_channels": 3, "height": 224, "width": 224}),
    ("conv3d | relu", {**_VOLUME, "out_channels": 32}),
    ("conv_transpose2d | relu", _HALF),
    ("conv_transpose2d stride=2 padding=1 output_padding=1 | clamp", _HALF),
    ("conv_transpose3d stride=2 padding=1 output_padding=1 | relu", _VOLUME),
)


def shapes() -> list[Task]:
    """Own tasks of the kinds and magnitudes of KernelBench's products."""
    return [_task(i, text, sizes) for i, (text, sizes) in enumerate(_SHAPES)]


def _task(number: int, text: str, sizes: dict[str, int]) -> Task:
    ops = parse_sequence(text)
    name = "_".join(op.name for op in ops)
    return Task(
        id=f"l1/{name}_{number}",
        level=1,
        name=name,
        source=render_task(ops, sizes),
        ops=tuple(ops),
        origin="composed",
        spec=trace(ops, sizes).spec,
    )


def product_kernels(tasks: Iterable[Task]) -> Iterator[tuple[Task, str, str]]:
    """Task, way and source of a CUDA kernel for every way to compute the products of every task that tensor cores can
    help; all other decisions are what mostly wins. Tasks that the writer does not know are left out.
    """
    for task in tasks:
        plain, names = task, None
        if task.origin == "kernelbench":
            known = counterpart(task)
            if known is None:
                continue
            plain, names = known
        space = plan_space(plain, "cuda")
        ways = space.get("product", ())
        if not any(way in TILES for way in ways):
            continue
        usual = {slot: values[0] for slot, values in space.items()}
        usual |= {slot: values[-1] for slot, values in space.items() if slot in ("fusion", "grid", "rows")}
        for way in ways:
            slots = {**usual, "product": way}
            yield task, way, render(plain, Plan(language="cuda", slots=tuple(slots.items())), names)
