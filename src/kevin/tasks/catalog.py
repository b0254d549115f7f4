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
    ("relu", 4096),
    ("leaky_relu", 4096),
    ("sigmoid", 3072),
    ("tanh", 768),
    ("gelu", 3072),
    ("silu", 3072),
    ("softplus", 1024),
    ("elu", 1024),
    ("hardtanh", 4096),
    ("hardswish", 4096),
    ("softsign", 2048),
    ("mish", 512),
)
"""Name and number of rows on the CPU; slow functions get fewer."""


def flat(batch_size: int, dim: int) -> dict[str, int]:
    return {"batch_size": batch_size, "dim": dim}


def signal(batch_size: int, channels: int, length: int) -> dict[str, int]:
    return {"batch_size": batch_size, "channels": channels, "length": length}


def picture(batch_size: int, channels: int, side: int) -> dict[str, int]:
    return {"batch_size": batch_size, "channels": channels, "height": side, "width": side}


def product(rows: int, inner: int, cols: int) -> dict[str, int]:
    return {"rows": rows, "inner": inner, "cols": cols}


def conv(batch_size: int, in_channels: int, out_channels: int, *space: int) -> dict[str, int]:
    names = ("length",) if len(space) == 1 else ("height", "width")
    sizes = {"batch_size": batch_size, "in_channels": in_channels, **dict(zip(names, space, strict=True))}
    return {**sizes, "out_channels": out_channels}


def linear(batch_size: int, in_features: int, out_features: int) -> dict[str, int]:
    return {"batch_size": batch_size, "in_features": in_features, "out_features": out_features}


_OTHERS: tuple[tuple[OpCall, Sizes, Sizes], ...] = (
    (call("matmul"), product(512, 256, 512), product(4096, 4096, 4096)),
    (call("matmul_transposed_b"), product(512, 256, 512), product(4096, 4096, 4096)),
    (
        call("matmul_batched"),
        {"batch_size": 64, **product(128, 64, 128)},
        {"batch_size": 128, **product(512, 1024, 1024)},
    ),
    (call("matvec"), {"rows": 2048, "inner": 4096}, {"rows": 16384, "inner": 32768}),
    (call("linear"), linear(256, 256, 1024), linear(4096, 4096, 4096)),
    (call("softmax"), flat(4096, 512), flat(65536, 2048)),
    (call("log_softmax"), flat(4096, 512), flat(65536, 2048)),
    (call("layer_norm", num_dims=3), picture(16, 64, 64), picture(16, 64, 256)),
    (call("rms_norm"), flat(8192, 512), flat(32768, 4096)),
    (call("l2_norm"), flat(8192, 512), flat(32768, 4096)),
    (call("group_norm"), picture(16, 64, 64), picture(32, 64, 256)),
    (call("instance_norm"), picture(8, 32, 64), picture(32, 64, 256)),
    (call("batch_norm"), picture(8, 32, 64), picture(32, 64, 256)),
    (call("sum_dim", dim=1), signal(16, 256, 1024), signal(128, 2048, 1024)),
    (call("mean_dim"), flat(8192, 1024), flat(65536, 4096)),
    (call("max_dim", dim=1), signal(16, 256, 1024), signal(128, 2048, 1024)),
    (call("argmax"), flat(2048, 1024), flat(65536, 4096)),
    (call("cumsum"), flat(2048, 1024), flat(32768, 4096)),
    (call("reverse_cumsum"), flat(1024, 1024), flat(32768, 4096)),
    (call("max_pool1d", kernel=4, stride=4), signal(16, 64, 4096), signal(64, 128, 16384)),
    (call("avg_pool1d", kernel=4, stride=4), signal(8, 32, 4096), signal(64, 128, 16384)),
    (call("max_pool2d"), picture(8, 32, 64), picture(32, 64, 256)),
    (call("avg_pool2d"), picture(8, 32, 64), picture(32, 64, 256)),
    (call("conv1d"), conv(16, 16, 32, 2048), conv(64, 64, 128, 16384)),
    (call("conv2d"), conv(4, 16, 32, 64, 64), conv(32, 64, 64, 256, 256)),
    (call("depthwise_conv2d"), picture(8, 64, 64), picture(32, 64, 256)),
    (call("conv2d_pointwise"), conv(8, 32, 64, 64, 64), conv(32, 64, 128, 256, 256)),
    (call("mse_loss"), flat(4096, 1024), flat(65536, 1024)),
    (call("smooth_l1_loss"), flat(4096, 1024), flat(65536, 1024)),
    (call("hinge_loss"), flat(1536, 1024), flat(65536, 1024)),
    (call("cross_entropy"), {"batch_size": 4096, "classes": 512}, {"batch_size": 32768, "classes": 4096}),
    (call("cosine_similarity"), flat(3072, 512), flat(32768, 4096)),
)

_SUBSAMPLE_PASSES_ON_GPU = ("mse_loss", "smooth_l1_loss", "hinge_loss")
"""Means over so many random numbers that the mean of a part is within tolerance."""


def catalog(size: Size) -> list[Task]:
    """Every level-1 task, ids ``l1/<operator>``, with its spec; the order never changes."""
    rows = [(call(name), flat(n, 1024), flat(65536, 1024)) for name, n in _ELEMENTWISE]
    tasks = []
    for op, cpu, gpu in (*_OTHERS[:5], *rows, *_OTHERS[5:]):
        sizes = cpu if size == "cpu" else gpu
        subsample = size == "gpu" and op.name in _SUBSAMPLE_PASSES_ON_GPU
        tasks.append(
            Task(
                id=f"l1/{op.name}",
                level=1,
                name=op.name,
                source=render([op], sizes),
                ops=(op,),
                origin="catalog",
                flaws=("subsample_passes",) if subsample else (),
                spec=trace([op], sizes).spec,
            )
        )
    return tasks
