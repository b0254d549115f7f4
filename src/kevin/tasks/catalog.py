"""Level 1: single operators, those of the study with two sizes, and the whole inventory over shapes drawn at random.

On one CPU core PyTorch takes about one to eight milliseconds for each of the study's, on a data-centre GPU well over
0.1 ms: far above what a launch costs, so that the timing floor never decides.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from kevin.core.errors import TaskError
from kevin.core.types import OpCall, Task
from kevin.tasks.operators import NAMES_BY_RANK, OPERATORS, Sizes
from kevin.tasks.ops import call, own_task, trace

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
        tasks.append(own_task(f"l1/{op.name}", [op], sizes, flaws=("subsample_passes",) if subsample else ()))
    return tasks


# --- the whole inventory ----------------------------------------------------------------------------------------

_ELEMENTS: dict[Size, tuple[int, int]] = {"cpu": (14, 18), "gpu": (16, 27)}
"""Powers of two between which the number of elements of the first input is drawn."""

NOT_ALONE = ("add_residual", "mul_residual", "residual_sub", "dropout")


def catalog_extended(size: Size, per_operator: int = 3, seed: int = 0) -> list[Task]:
    """Every operator alone, ``per_operator`` times over shapes, ranks and dimensions; ids ``l1/<operator>_<number>``.

    The same arguments give the same tasks; those of an operator do not depend on the other operators.
    """
    low, high = _ELEMENTS[size]
    tasks = []
    for name in OPERATORS:
        if name in NOT_ALONE:
            continue
        rng = random.Random(f"kevin extended catalog, {name}, {size}, seed {seed}")
        for number in range(1, per_operator + 1):
            op, sizes = draw(rng, name, int(2 ** rng.uniform(low, high)))
            tasks.append(own_task(f"l1/{name}_{number}", [op], sizes))
    return tasks


Values = dict[str, int | float]

_CONSTANTS: dict[str, tuple[Values, ...]] = {
    "leaky_relu": ({"slope": 0.01}, {"slope": 0.1}, {"slope": 0.2}),
    "elu": ({"alpha": 1.0}, {"alpha": 0.5}),
    "hardtanh": ({"min": -1.0, "max": 1.0}, {"min": -2.0, "max": 2.0}),
    "scale": ({"c": 0.5}, {"c": 1.5}, {"c": 2.0}, {"c": 10.0}),
    "add_scalar": ({"c": 0.5}, {"c": 1.0}, {"c": -0.5}, {"c": 3.0}),
    "sub_scalar": ({"c": 0.5}, {"c": 0.2}, {"c": 2.0}),
    "div_scalar": ({"c": 2.0}, {"c": 1.5}, {"c": 10.0}),
    "clamp": ({"min": -0.5, "max": 0.5}, {"min": 0.0, "max": 1.0}, {"min": -1.0, "max": 1.0}),
    "clamp_min": ({"min": 0.0}, {"min": -1.0}, {"min": -0.5}),
    "min_scalar": ({"c": 0.5}, {"c": 0.0}, {"c": 1.0}),
    "max_scalar": ({"c": 0.0}, {"c": -0.5}),
    "dropout": ({"p": 0.2}, {"p": 0.5}),
    "triplet_loss": ({"margin": 1.0}, {"margin": 0.5}),
}

CONVS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


def power(rng: random.Random, low: int, high: int) -> int:
    """A power of two from ``low`` to ``high``."""
    return 1 << rng.randint(low.bit_length() - 1, max(low, high).bit_length() - 1)


def _sides(rng: random.Random, num: int, elements: int) -> list[int]:
    """Spatial sizes whose product is about ``elements``; one in three is no round number."""
    side = max(round(elements ** (1 / num)), 5)
    sides = [max(side if rng.random() < 0.5 else rng.choice((side, side // 2, side * 2)), 5) for _ in range(num)]
    if sum(s >= 16 for s in sides) and rng.random() < 2 / 3:
        sides = [s // 8 * 8 if s >= 16 else s for s in sides]
    return sides


def tensor(rng: random.Random, rank: int, elements: int, channels: int | None = None) -> dict[str, int]:
    """Sizes of a tensor of about so many elements."""
    if rank == 1:
        return {"dim": elements}
    batch = power(rng, 2, max(2, min(elements // 64, 128)))
    if rank == 2:
        (dim,) = _sides(rng, 1, max(elements // batch, 8))
        return {"batch_size": batch, "dim": dim}
    channels = channels or 8 * power(rng, 1, max(1, min(elements // batch // 128, 16)))
    sides = _sides(rng, rank - 2, elements // batch // channels)
    return dict(zip(NAMES_BY_RANK[rank], (batch, channels, *sides), strict=True))


def draw(rng: random.Random, name: str, elements: int) -> tuple[OpCall, dict[str, int]]:
    """An operator that stands alone, over a tensor of about so many elements.

    Raises TaskError for an operator that reads an earlier result: it cannot stand alone.
    """
    if OPERATORS[name].kind == "residual":
        raise TaskError(f"operator {name} reads an earlier result; it cannot stand alone")
    while True:
        op, sizes = _drawn(rng, name, elements)
        try:
            trace([op], sizes)
        except TaskError:  # a window larger than what it moves over
            continue
        return op, sizes


def _drawn(rng: random.Random, name: str, elements: int) -> tuple[OpCall, dict[str, int]]:
    operator = OPERATORS[name]
    match operator.kind:
        case "contract" if name in CONVS or "conv2d" in name:
            return draw_conv(rng, name, elements)
        case "contract":
            return _product(rng, name, elements)
        case "loss":
            return _loss(rng, name, elements)
    lowest = 2 if "ndim" in operator.optional or operator.constructor else 1
    rank = rng.choice([r for r in operator.ranks if lowest <= r])
    sizes = tensor(rng, rank, elements)
    return call(name, **attributes(rng, name, rank, tuple(sizes.values()))), sizes


def attributes(rng: random.Random, name: str, rank: int, shape: Sequence[int]) -> Values:
    """Attributes for a tensor of this rank and shape."""
    operator = OPERATORS[name]
    if name in _CONSTANTS:
        return dict(rng.choice(_CONSTANTS[name]))
    if operator.kind == "pool":
        return {"size": rng.choice((1, 1, 2))} if name == "adaptive_avg_pool" else _window(rng, name, rank, shape)
    if "ndim" in operator.optional:
        return _parameter(rng, rank)
    if name == "group_norm":
        return {"groups": rng.choice([g for g in (2, 4, 8, 16) if shape[1] % g == 0 and shape[1] > g] or [1])}
    if name == "layer_norm":
        return {"num_dims": rng.choice((1, rank - 1)) if rank > 2 else 1}
    if name == "batch_norm":
        return {"track": 1}
    if "dim" not in operator.attrs:
        return {}
    values: Values = {"dim": rng.choice((*range(1, rank), -1))}
    if "num_dims" in operator.optional and rank > 2 and rng.random() < 0.3:
        first = rng.randrange(1, rank - 1)
        values = {"dim": first, "num_dims": rank - first}
    if "keepdim" in operator.optional and rng.random() < 0.4:
        values["keepdim"] = 1
    return values


def _parameter(rng: random.Random, rank: int) -> Values:
    if rng.random() < 0.15:
        return {"ndim": rng.choice((0, 1)), "axis": -1}
    if rank > 2 and rng.random() < 0.3:
        either: tuple[Values, Values] = {"ndim": rank}, {"view": 1}
        return rng.choice(either)
    return {}


def _window(rng: random.Random, name: str, rank: int, shape: Sequence[int]) -> Values:
    kernel = rng.choice((2, 3, 4) if min(shape[2:] or shape[1:]) >= 8 else (2, 3))
    values: Values = {"kernel": kernel, "stride": rng.choice((kernel, kernel, 1, 2))}
    if rng.random() < 0.4:
        values["padding"] = rng.randint(1, kernel // 2)
    if name.startswith("max") and rng.random() < 0.2 and kernel < 4:
        values["dilation"] = 2
    return values


def draw_conv(rng: random.Random, name: str, elements: int) -> tuple[OpCall, dict[str, int]]:
    """A convolution with its sizes."""
    axes = 2 if "conv2d" in name else int(name[-2])
    widest = max(1, min(elements // 512, 16))
    if name == "depthwise_conv2d":
        sizes = tensor(rng, 4, elements, 8 * power(rng, 1, widest))
    else:
        first = 3 if rng.random() < 0.2 else 8 * power(rng, 1, widest)
        sizes = {n.replace("channels", "in_channels"): s for n, s in tensor(rng, axes + 2, elements, first).items()}
        sizes["out_channels"] = 8 * power(rng, 1, max(widest, 2))
    attrs = conv_attributes(rng, name, axes, sizes.get("in_channels", 1))
    return call(name, **attrs), sizes


def conv_attributes(rng: random.Random, name: str, axes: int, in_channels: int) -> Values:
    if name == "conv2d_pointwise":
        return {} if rng.random() < 0.6 else {"bias": 0}
    kernel = rng.choice((3, 3, 3, 2, 4) if axes < 3 else (3, 3, 2))
    values: Values = {"kernel": kernel}
    if axes > 1 and rng.random() < 0.25:
        values |= {f"kernel_{axis}": rng.choice((1, 3, 5) if axis else (3, 1)) for axis in range(axes)}
    if rng.random() < 0.5:
        values["padding"] = rng.randint(1, kernel // 2)
    if rng.random() < 0.4:
        values["stride"] = 2
    if rng.random() < 0.2 and kernel < 5 and len(values) < 4:
        values["dilation"] = rng.choice((2, 2, 3))
    if name in CONVS and in_channels % 8 == 0 and rng.random() < 0.15:
        values["groups"] = rng.choice((2, 4))
    if "transpose" in name and values.get("stride") == 2 and rng.random() < 0.5:
        values["output_padding"] = 1
    if rng.random() < 0.3:
        values["bias"] = 0
    return values


def _product(rng: random.Random, name: str, elements: int) -> tuple[OpCall, dict[str, int]]:
    side = max(int(elements**0.5), 8)
    a, b, c = (max(8, rng.choice((side // 2, side, side * 2, side + 13))) for _ in range(3))
    match name:
        case "linear" | "matmul_weight":
            bias = {"bias": 0} if name == "linear" and rng.random() < 0.3 else {}
            return call(name, **bias), {"batch_size": a, "in_features": b, "out_features": c}
        case "attention":
            width = rng.choice((8, 16, 32, 64, 128))
            length = max(8, round((elements / width / 4) ** 0.7))
            batch = max(1, elements // (4 * length * width))
            return call(name), {"batch_size": batch, "heads": 4, "length": length, "dim": width}
        case "matvec":
            return call(name), {"rows": a, "inner": b}
        case "matmul_diagonal":
            return call(name), {"rows": a, "cols": c}
        case "matmul_symmetric" | "matmul_upper_triangular" | "matmul_lower_triangular":
            return call(name), {"rows": a, "inner": a}
        case "matmul_transposed_a" | "matmul_transposed":
            return call(name), {"inner": a, "rows": b, "cols": c}
        case "matmul_batched" | "matmul_shared":
            batch = power(rng, 2, 32)
            a, b, c = (max(8, round(n / batch**0.5)) for n in (a, b, c))
            heads = {"heads": rng.choice((2, 4))} if name == "matmul_shared" and rng.random() < 0.5 else {}
            return call(name), {"batch_size": batch, **heads, "rows": a, "inner": b, "cols": c}
    return call(name), {"rows": a, "inner": b, "cols": c}


def _loss(rng: random.Random, name: str, elements: int) -> tuple[OpCall, dict[str, int]]:
    sizes = tensor(rng, 2, elements)
    if name == "cross_entropy":
        sizes = {"batch_size": sizes["batch_size"], "classes": sizes["dim"]}
    return call(name, **attributes(rng, name, 2, ())), sizes
