"""Level 2 of the whole inventory: a main operator and what may stand around it, as in KernelBench's tasks."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from kevin.core.errors import TaskError
from kevin.core.types import OpCall, Task
from kevin.tasks.catalog import Size, Values, attributes, draw
from kevin.tasks.compose import MAX_FURTHER, new_sequences
from kevin.tasks.kernelbench_ops import kernelbench_sequences
from kevin.tasks.operators import OPERATORS, Sizes
from kevin.tasks.ops import call, own_task, sequence, trace
from kevin.tasks.rules import State, advance, objection

_ELEMENTS: dict[Size, tuple[int, int]] = {"cpu": (11, 15), "gpu": (16, 24)}
"""Powers of two between which the number of elements of the first input is drawn."""
_ATTEMPTS = 500

Shapes = list[tuple[int, ...]]

_MAINS: dict[str, float] = {
    "linear": 4.0,
    "conv2d": 4.0,
    "conv3d": 2.5,
    "conv_transpose2d": 2.5,
    "conv_transpose3d": 3.0,
    "conv1d": 1.0,
    "conv_transpose1d": 0.7,
    "depthwise_conv2d": 0.6,
    "conv2d_pointwise": 0.8,
    **dict.fromkeys(("matmul", "matmul_batched", "matmul_weight", "matmul_transposed_b", "matmul_shared"), 0.6),
    **dict.fromkeys(("layer_norm", "group_norm", "batch_norm", "avg_pool3d", "max_pool2d", "rms_norm_dim"), 0.3),
}

_FURTHER: tuple[tuple[float, tuple[str, ...]], ...] = (
    (
        4.0,
        (
            *("relu", "leaky_relu", "sigmoid", "tanh", "gelu", "silu", "softplus", "elu", "hardtanh", "hardswish"),
            *("softsign", "mish", "selu", "hardsigmoid", "new_gelu", "abs", "square"),
        ),
    ),
    (2.5, ("scale", "add_scalar", "sub_scalar", "div_scalar", "clamp", "clamp_min", "min_scalar", "max_scalar")),
    (2.0, ("add_param", "mul_param", "sub_param", "min_param")),
    (0.6, ("add_input", "mul_input")),
    (1.3, ("add_residual", "mul_residual", "residual_sub")),
    (1.6, ("group_norm", "batch_norm", "instance_norm", "layer_norm", "row_norm", "rms_norm_dim")),
    (0.9, ("softmax", "logsumexp", "spatial_softmax")),
    (1.6, ("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool")),
    (1.2, ("sum_dim", "mean_dim", "max_dim", "min_dim")),
    (0.3, ("dropout",)),
    (2.5, ("linear",)),
)
"""Weight and members of each class of further operators."""

_BEFORE: tuple[tuple[float, tuple[str, ...]], ...] = (
    (3.0, ("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")),
    (2.0, ("relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "hardswish", "square", "abs")),
    (1.0, ("batch_norm", "group_norm", "layer_norm", "instance_norm")),
    (1.0, ("scale", "add_scalar", "add_param", "mul_param", "add_input")),
)
"""The same, of operators before the main one."""
_BEFORE_SHARE = 0.12
_AGAIN_SHARE = 0.05
_CENTRED_SHARE = 0.3
"""Of reductions that keep their dimension: how often what was reduced has the result subtracted."""
_MAY_COME_AGAIN = ("pool", "elementwise")
"""Kinds of operators that may follow themselves, where it changes something: people write two subtractions in a row."""
_WIDTHS = (16, 32, 64, 100, 128, 256, 512, 1024, 2048)

_SOFT = ("softmax", "spatial_softmax")
_AFTER_SOFTMAX = ("scale", "mul_param", "add_param", "sub_param", "mul_input", "mul_residual", "max_dim")
_CLIPPED = {
    "min_dim": ("relu", "clamp", "clamp_min", "max_scalar", "hardtanh", "hardsigmoid", "elu", "selu"),
    "max_dim": ("clamp", "min_scalar", "min_param", "hardtanh", "hardsigmoid"),
}
"""Reductions with what makes their results all alike: the limit that came before."""
_MAX_ELEMENTS = 1 << 28
_FEWEST_PER_STATISTIC = 32


def _draw(rng: random.Random, elements: int) -> tuple[list[OpCall], dict[str, int]]:
    """A sequence and its sizes; it may be shorter than wanted when nothing more fits."""
    (name,) = rng.choices(list(_MAINS), weights=list(_MAINS.values()))
    main, sizes = draw(rng, name, elements)
    ops, shapes = [main], _shapes([main], sizes)
    if rng.random() < _BEFORE_SHARE:
        ops, shapes = _preceded(rng, main, sizes, shapes)
    state = State()
    for given in ops:
        state = advance(state, given)
    wanted = rng.randint(2, MAX_FURTHER + 1)
    for _ in range(12):
        if len(ops) == wanted or max(math.prod(s) for s in shapes) > _MAX_ELEMENTS:
            break
        following = ops[-1].name if rng.random() < _AGAIN_SHARE else _one(rng, _FURTHER)
        if ops[-1].attrs.get("keepdim") and rng.random() < _CENTRED_SHARE:
            following = "residual_sub"
        op = _fitting(rng, following, ops, shapes)
        if op is None or objection(state, op) or (op.name == "linear" and state.linear):
            continue  # two linear layers in a row are one
        try:
            shapes = _shapes([*ops, op], sizes)
        except TaskError:  # a window larger than what it moves over
            continue
        ops.append(op)
        state = advance(state, op)
    return ops, sizes


def _one(rng: random.Random, classes: Sequence[tuple[float, tuple[str, ...]]]) -> str:
    (members,) = rng.choices([m for _, m in classes], weights=[w for w, _ in classes])
    return rng.choice(members)


def _preceded(rng: random.Random, main: OpCall, sizes: dict[str, int], shapes: Shapes) -> tuple[list[OpCall], Shapes]:
    """The main operator behind another one; alone where that does not fit, or would be the same without it."""
    for _ in range(6):
        op = _fitting(rng, _one(rng, _BEFORE), [main], shapes[:1])
        if op is None or objection(State(), op):
            continue
        try:
            return [op, main], _shapes([op, main], sizes)
        except TaskError:  # a window larger than what is left
            continue
    return [main], shapes


def _shapes(ops: list[OpCall], sizes: dict[str, int]) -> Shapes:
    return [tuple(d.size for d in shape) for shape in trace(ops, sizes).shapes]


def _fitting(rng: random.Random, name: str, ops: list[OpCall], shapes: Shapes) -> OpCall | None:
    """The operator with attributes for what is there so far; None where it does not fit."""
    operator, shape = OPERATORS[name], shapes[-1]
    rank, counts = len(shape), Counter(op.name for op in ops)
    if rank not in operator.ranks or counts[name] > 1:
        return None
    if ops[-1].name == name and operator.kind not in _MAY_COME_AGAIN:
        return None
    if any(counts[soft] for soft in _SOFT) and name not in _AFTER_SOFTMAX:
        return None
    if any(counts[clip] for clip in _CLIPPED.get(name, ())):
        return None
    values: Values | None
    match operator.kind:
        case "residual":
            return _residual(rng, name, shapes)
        case "contract":
            values = {"out": rng.choice(_WIDTHS)} if rank == 2 and shape[1] > 1 else None
        case "norm" | "row":
            values = _norm(rng, name, shape)
        case "reduce":
            values = _reduction(rng, name, shape)
        case "pool":
            values = None if rank == 2 and counts["linear"] == 0 else _pool(rng, name, rank, shape)
        case _ if name == "min_param":  # one limit for all may lie below everything
            values = {} if rank > 1 and shape[1] > 1 else None
        case _ if "ndim" in operator.optional and (rank == 1 or shape[1] == 1):
            values = {"ndim": max(rank - 1, 0), "axis": -1}
        case _:
            values = attributes(rng, name, rank, shape)
    return None if values is None else call(name, **values)


def _residual(rng: random.Random, name: str, shapes: Shapes) -> OpCall | None:
    """An earlier result of the same shape, the input among them, or one that a reduction has made smaller since."""
    last = shapes[-1]
    usable = [
        i
        for i, s in enumerate(shapes[:-1])
        if len(s) == len(last) and all(b in (a, 1) for a, b in zip(s, last, strict=True))
    ]
    return call(name, of=rng.choice(usable)) if usable else None


def _norm(rng: random.Random, name: str, shape: tuple[int, ...]) -> Values | None:
    values: Values = {}
    match name:
        case "group_norm":
            groups = [g for g in (2, 4, 8, 16, 32) if shape[1] % g == 0]
            groups = [g for g in groups if math.prod(shape[1:]) // g >= _FEWEST_PER_STATISTIC]
            return {"groups": rng.choice(groups)} if groups else None
        case "batch_norm":
            values, count = {"track": 1}, math.prod(shape) // shape[1]
        case "instance_norm" | "spatial_softmax":
            count = math.prod(shape[2:])
        case "softmax" | "rms_norm_dim":
            values, count = {"dim": 1}, shape[1]
        case "layer_norm" if len(shape) > 2 and rng.random() < 0.4:
            num_dims = rng.choice((len(shape) - 1, len(shape) - 1, 2))
            values, count = {"num_dims": num_dims}, math.prod(shape[-num_dims:])
        case _:
            count = shape[-1]
    return values if count >= (_FEWEST_PER_STATISTIC if name == "batch_norm" else 4) else None


def _reduction(rng: random.Random, name: str, shape: tuple[int, ...]) -> Values | None:
    rank = len(shape)
    choices: list[Values] = [{"dim": 1}]
    if rank > 2:
        choices += [{"dim": 2, "num_dims": rank - 2}, {"dim": 2}, {"dim": 1, "num_dims": rank - 1}]
    values = dict(choices[0] if name == "logsumexp" else rng.choice(choices))
    first = int(values["dim"])
    if math.prod(shape[first : first + int(values.get("num_dims", 1))]) < 4:
        return None
    return {**values, "keepdim": 1} if rng.random() < 0.6 else values


def _pool(rng: random.Random, name: str, rank: int, shape: tuple[int, ...]) -> Values | None:
    if min(shape[2:] or shape[1:]) < 6:
        return None
    if name == "adaptive_avg_pool":
        return {"size": 1}
    kernel = rng.choice((2, 2, 2, 3, 4))
    return {"kernel": kernel, "stride": kernel if rng.random() < 0.8 else 2}


def compose_general(num: int, seed: int, size: Size) -> Iterator[Task]:
    """``num`` tasks of a main operator and one to five others around it, one after the other, no sequence twice and
    none of KernelBench's.

    Sequences and attributes come from the whole inventory, sizes from small to those of KernelBench (``gpu``). The
    same arguments give the same tasks.

    Raises:
        TaskError: so many are asked for that no new sequence is found.
    """
    rng = random.Random(f"kevin general level 2, {size}, seed {seed}")
    low, high = _ELEMENTS[size]

    def drawn() -> tuple[list[OpCall], Sizes] | None:
        ops, sizes = _draw(rng, int(2 ** rng.uniform(low, high)))
        return (ops, sizes) if len(ops) > 1 else None

    for index, (ops, sizes) in enumerate(new_sequences(num, set(kernelbench_sequences()), drawn, _ATTEMPTS), 1):
        yield own_task(f"l2/g{index:04d}_{'_'.join(sequence(ops))}", ops, sizes)
