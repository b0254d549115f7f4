"""Level 1: single operators, each with a size for the CPU and one for the GPU.

On one CPU core PyTorch takes about one to eight milliseconds for each, on a data-centre GPU well over 0.1 ms:
far above what a launch costs, so that the timing floor never decides.
"""

from __future__ import annotations

from typing import Literal

from kevin.core.types import OpCall, Task
from kevin.tasks.operators import Sizes
from kevin.tasks.ops import call, trace
from kevin.tasks.render import render

Size = Literal["cpu", "gpu"]

_ELEMENTWISE = (
    ("relu", 1024),
    ("leaky_relu", 1024),
    ("sigmoid", 768),
    ("tanh", 512),
    ("gelu", 768),
    ("silu", 768),
    ("softplus", 512),
    ("elu", 768),
    ("hardtanh", 1024),
    ("hardswish", 1024),
    ("softsign", 1024),
    ("mish", 256),
)
"""Name and number of rows on the CPU; slow functions get fewer."""


def _flat(batch_size: int, dim: int) -> dict[str, int]:
    return {"batch_size": batch_size, "dim": dim}


def _signal(batch_size: int, channels: int, length: int) -> dict[str, int]:
    return {"batch_size": batch_size, "channels": channels, "length": length}


def _picture(batch_size: int, channels: int, side: int) -> dict[str, int]:
    return {"batch_size": batch_size, "channels": channels, "height": side, "width": side}


def _product(rows: int, inner: int, cols: int) -> dict[str, int]:
    return {"rows": rows, "inner": inner, "cols": cols}


def _conv(batch_size: int, in_channels: int, out_channels: int, *space: int) -> dict[str, int]:
    names = ("length",) if len(space) == 1 else ("height", "width")
    sizes = {"batch_size": batch_size, "in_channels": in_channels, **dict(zip(names, space, strict=True))}
    return {**sizes, "out_channels": out_channels}


def _linear(batch_size: int, in_features: int, out_features: int) -> dict[str, int]:
    return {"batch_size": batch_size, "in_features": in_features, "out_features": out_features}


_OTHERS: tuple[tuple[OpCall, Sizes, Sizes], ...] = (
    (call("matmul"), _product(512, 256, 512), _product(4096, 4096, 4096)),
    (call("matmul_transposed_b"), _product(512, 256, 512), _product(4096, 4096, 4096)),
    (
        call("matmul_batched"),
        {"batch_size": 16, **_product(128, 64, 128)},
        {"batch_size": 128, **_product(512, 1024, 1024)},
    ),
    (call("matvec"), {"rows": 1024, "inner": 4096}, {"rows": 16384, "inner": 32768}),
    (call("linear"), _linear(256, 256, 1024), _linear(4096, 4096, 4096)),
    (call("softmax"), _flat(2048, 512), _flat(32768, 2048)),
    (call("log_softmax"), _flat(2048, 512), _flat(32768, 2048)),
    (call("layer_norm", num_dims=3), _picture(8, 32, 64), _picture(16, 64, 256)),
    (call("rms_norm"), _flat(1024, 512), _flat(32768, 4096)),
    (call("l2_norm"), _flat(1024, 512), _flat(32768, 4096)),
    (call("group_norm"), _picture(8, 32, 64), _picture(32, 64, 256)),
    (call("instance_norm"), _picture(8, 32, 64), _picture(32, 64, 256)),
    (call("batch_norm"), _picture(8, 32, 64), _picture(32, 64, 256)),
    (call("sum_dim", dim=1), _signal(16, 256, 1024), _signal(128, 2048, 1024)),
    (call("mean_dim"), _flat(4096, 1024), _flat(65536, 4096)),
    (call("max_dim", dim=1), _signal(16, 256, 1024), _signal(128, 2048, 1024)),
    (call("argmax"), _flat(2048, 1024), _flat(65536, 4096)),
    (call("cumsum"), _flat(1024, 1024), _flat(32768, 4096)),
    (call("reverse_cumsum"), _flat(512, 1024), _flat(32768, 4096)),
    (call("max_pool1d", kernel=4, stride=4), _signal(8, 32, 4096), _signal(64, 128, 16384)),
    (call("avg_pool1d", kernel=4, stride=4), _signal(8, 32, 4096), _signal(64, 128, 16384)),
    (call("max_pool2d"), _picture(8, 32, 64), _picture(32, 64, 256)),
    (call("avg_pool2d"), _picture(8, 32, 64), _picture(32, 64, 256)),
    (call("conv1d"), _conv(16, 16, 32, 2048), _conv(64, 64, 128, 16384)),
    (call("conv2d"), _conv(4, 8, 32, 64, 64), _conv(32, 64, 64, 256, 256)),
    (call("depthwise_conv2d"), _picture(4, 32, 64), _picture(32, 64, 256)),
    (call("conv2d_pointwise"), _conv(4, 32, 64, 64, 64), _conv(32, 64, 128, 256, 256)),
    (call("mse_loss"), _flat(1024, 1024), _flat(32768, 1024)),
    (call("smooth_l1_loss"), _flat(1024, 1024), _flat(32768, 1024)),
    (call("hinge_loss"), _flat(1024, 1024), _flat(32768, 1024)),
    (call("cross_entropy"), {"batch_size": 2048, "classes": 512}, {"batch_size": 32768, "classes": 4096}),
    (call("cosine_similarity"), _flat(2048, 512), _flat(32768, 4096)),
)

_CLOSED_FORM_ON_GPU = ("mse_loss", "smooth_l1_loss", "hinge_loss", "cross_entropy")
"""Means over so many random numbers that their expectation is within tolerance."""


def catalog(size: Size) -> list[Task]:
    """Every level-1 task, ids ``l1/<operator>``, with its spec; the order never changes."""
    rows = [(call(name), _flat(n, 1024), _flat(65536, 1024)) for name, n in _ELEMENTWISE]
    tasks = []
    for op, cpu, gpu in (*_OTHERS[:5], *rows, *_OTHERS[5:]):
        sizes = cpu if size == "cpu" else gpu
        closed = size == "gpu" and op.name in _CLOSED_FORM_ON_GPU
        tasks.append(
            Task(
                id=f"l1/{op.name}",
                level=1,
                name=op.name,
                source=render([op], sizes),
                ops=(op,),
                origin="catalog",
                flaws=("closed_form",) if closed else (),
                spec=trace([op], sizes).spec,
            )
        )
    return tasks
