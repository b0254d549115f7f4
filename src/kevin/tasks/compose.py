"""Level 2: seeded sequences of operators, no sequence twice.

Those of the study are a main operator and two to five further ones; those of the whole inventory a main operator and
what may stand around it, as in KernelBench's tasks.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeVar

from kevin.core.errors import TaskError
from kevin.core.types import OpCall, Task
from kevin.tasks.catalog import Size, Values, attributes, conv, draw, flat, linear, picture, product, signal
from kevin.tasks.kernelbench_ops import kernelbench_sequences
from kevin.tasks.operators import OPERATORS, Sizes
from kevin.tasks.ops import call, own_task, sequence, trace
from kevin.tasks.rules import State, advance, first_objection, objection

MIN_FURTHER, MAX_FURTHER = 2, 5
_ATTEMPTS = 2000

T = TypeVar("T")


class Main(NamedTuple):
    """A first operator with its sizes. The CPU's keep PyTorch busy for well over the timing floor."""

    op: OpCall
    cpu: Sizes
    gpu: Sizes


MAINS: tuple[Main, ...] = (
    Main(call("linear"), linear(1024, 64, 1024), linear(8192, 512, 8192)),
    Main(call("linear"), linear(2048, 128, 512), linear(16384, 1024, 4096)),
    Main(call("matmul"), product(1024, 64, 1024), product(8192, 512, 8192)),
    Main(call("matmul_transposed_b"), product(1024, 96, 768), product(8192, 1024, 4096)),
    Main(
        call("matmul_batched"),
        {"batch_size": 16, **product(128, 64, 512)},
        {"batch_size": 64, **product(512, 256, 1024)},
    ),
    Main(call("conv1d"), conv(16, 16, 32, 2048), conv(32, 64, 128, 16384)),
    Main(call("conv2d"), conv(4, 16, 32, 64, 64), conv(32, 32, 64, 128, 128)),
    Main(call("conv2d"), conv(8, 8, 32, 64, 64), conv(64, 16, 64, 128, 128)),
    Main(call("depthwise_conv2d"), picture(8, 48, 64), picture(32, 64, 256)),
    Main(call("conv2d_pointwise"), conv(8, 32, 32, 64, 64), conv(32, 64, 64, 128, 128)),
    Main(call("layer_norm"), flat(6144, 512), flat(32768, 2048)),
    Main(call("rms_norm"), flat(6144, 512), flat(32768, 2048)),
    Main(call("l2_norm"), flat(6144, 512), flat(32768, 2048)),
    Main(call("group_norm"), picture(12, 48, 64), picture(32, 64, 192)),
    Main(call("instance_norm"), picture(8, 32, 64), picture(32, 64, 192)),
    Main(call("batch_norm"), picture(8, 32, 64), picture(32, 64, 192)),
    Main(call("max_pool1d", kernel=2, stride=2), signal(16, 64, 4096), signal(64, 128, 16384)),
    Main(call("avg_pool1d", kernel=2, stride=2), signal(8, 32, 4096), signal(64, 128, 16384)),
    Main(call("max_pool2d", kernel=2, stride=2), picture(4, 32, 64), picture(64, 64, 256)),
    Main(call("avg_pool2d", kernel=2, stride=2), picture(8, 32, 64), picture(64, 64, 256)),
)

_ACTIVATIONS: tuple[OpCall, ...] = (
    *(call(n) for n in ("relu", "sigmoid", "tanh", "gelu", "silu", "softplus", "hardswish", "softsign", "mish")),
    call("leaky_relu", slope=0.1),
    call("elu"),
    call("hardtanh"),
)

_FURTHER: tuple[tuple[float, tuple[OpCall, ...]], ...] = (
    (4.0, _ACTIVATIONS),
    (
        2.5,
        (
            *(call("scale", c=c) for c in (0.5, 2.0)),
            *(call("add_scalar", c=c) for c in (-0.5, 1.0)),
            *(call("clamp", min=low, max=high) for low, high in ((-0.5, 0.5), (-1.0, 2.0))),
        ),
    ),
    (2.5, (call("bias_add"), call("add_input"), call("mul_input"))),
    (1.5, (call("softmax"), call("layer_norm"), call("rms_norm"))),
    (1.5, (call("sum_dim"), call("mean_dim"), call("max_dim"), call("global_avg_pool"))),
)
"""Weight and members of each class of further operators."""

_HAVE_BIAS = ("linear", "conv1d", "conv2d", "depthwise_conv2d", "conv2d_pointwise", "layer_norm", "group_norm")
_NORMS = ("softmax", "layer_norm", "rms_norm", "l2_norm")
_AFTER_SOFTMAX = ("scale", "mul_input")
"""Its values are so small that all else would change nothing, or hide them."""
_SATURATING = ("sigmoid", "tanh", "softsign", "clamp", "hardtanh")
"""Nearly constant on the large values that a sum or maximum gives."""

_NS_PER_ELEMENT = {"mish": 4.0, "tanh": 2.6, "softplus": 1.6, "elu": 1.4, "softmax": 0.6, "gelu": 0.5, "sigmoid": 0.5}
_OTHER_NS_PER_ELEMENT = 0.3
_MAX_FURTHER_NS = 3e6
"""Rough costs on one CPU core: slow sequences get a smaller batch, so that all stay within a few milliseconds."""


def _fits(state: State, op: OpCall, used: set[str], rank: int) -> bool:
    """Whether an operator may come next: sound, new, and of the right rank."""
    name, kind = op.name, OPERATORS[op.name].kind
    if name in used or objection(state, op):
        return False
    if "softmax" in used and name not in _AFTER_SOFTMAX:
        return False
    if used & {"sum_dim", "max_dim"} and name in _SATURATING:
        return False
    if kind == "row":
        return rank == 2 and state.last not in _NORMS
    if kind == "reduce":
        return rank in OPERATORS[name].ranks and rank >= 2
    if name == "bias_add":
        return not state.reduced and state.last not in (*_HAVE_BIAS, "batch_norm")
    return kind != "second" or not state.reduced


def _one(rng: random.Random, classes: Sequence[tuple[float, Sequence[T]]]) -> T:
    """A member of a class that is drawn by its weight."""
    (members,) = rng.choices([m for _, m in classes], weights=[w for w, _ in classes])
    return rng.choice(members)


def _draw(rng: random.Random) -> tuple[list[OpCall], Main]:
    """One sequence; it may be shorter than wanted when nothing more fits."""
    main = rng.choice(MAINS)
    wanted = rng.randint(MIN_FURTHER, MAX_FURTHER)
    ops = [main.op]
    state = advance(State(), main.op)
    while len(ops) <= wanted:
        rank = len(trace(ops, main.cpu).shapes[-1])
        used = {op.name for op in ops}
        classes = [(w, [op for op in members if _fits(state, op, used, rank)]) for w, members in _FURTHER]
        classes = [(w, members) for w, members in classes if members]
        if not classes:
            break
        ops.append(_one(rng, classes))
        state = advance(state, ops[-1])
    return ops, main


def _cpu_sizes(ops: list[OpCall], sizes: Sizes) -> Sizes:
    """The sizes, the first of them halved until the further operators are fast enough."""
    first = next(iter(sizes))
    while True:
        steps = trace(ops, sizes).steps[1:]
        ns = sum(_NS_PER_ELEMENT.get(s.op.name, _OTHER_NS_PER_ELEMENT) * math.prod(s.in_shape) for s in steps)
        if ns <= _MAX_FURTHER_NS:
            return sizes
        sizes = {**sizes, first: sizes[first] // 2}


def compose(num: int, seed: int, size: Size, exclude: Collection[tuple[str, ...]] = frozenset()) -> Iterator[Task]:
    """``num`` level-2 tasks, drawn one after the other; the same for the same arguments.

    Args:
        size: decides the sizes only: the sequences are the same on both devices.
        exclude: operator-name sequences that must not come up.

    Raises:
        TaskError: so many are asked for that no new sequence is found.
    """
    rng = random.Random(f"kevin level 2, seed {seed}")

    def drawn() -> _Drawn | None:
        ops, main = _draw(rng)
        if len(ops) <= MIN_FURTHER or first_objection(ops):
            return None
        return ops, _cpu_sizes(ops, main.cpu) if size == "cpu" else main.gpu

    return _new_tasks(num, "l2/{:03d}", set(exclude), drawn)


_Drawn = tuple[list[OpCall], Sizes]


def _new_tasks(num: int, names: str, seen: set[tuple[str, ...]], draw: Callable[[], _Drawn | None]) -> Iterator[Task]:
    """``num`` tasks, one after the other, whose sequences differ from each other and from those ``seen``."""
    for number in range(1, num + 1):
        for _ in range(_ATTEMPTS):
            if (drawn := draw()) is not None and sequence(drawn[0]) not in seen:
                break
        else:
            raise TaskError(f"no new operator sequence found after {number - 1} of {num}; ask for fewer tasks")
        ops, sizes = drawn
        seen.add(sequence(ops))
        yield own_task(f"{names.format(number)}_{'_'.join(sequence(ops))}", ops, sizes)


# --- the whole inventory ----------------------------------------------------------------------------------------

_ELEMENTS: dict[Size, tuple[int, int]] = {"cpu": (11, 15), "gpu": (16, 24)}
"""Powers of two between which the number of elements of the first input is drawn."""

Shapes = list[tuple[int, ...]]

_MAIN_WEIGHTS: dict[str, float] = {
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

_FOLLOWING: tuple[tuple[float, tuple[str, ...]], ...] = (
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
"""Weight and members of each class of operators behind the main one."""

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
_MAY_FOLLOW_SOFTMAX = ("scale", "mul_param", "add_param", "sub_param", "mul_input", "mul_residual", "max_dim")
_CLIPPED = {
    "min_dim": ("relu", "clamp", "clamp_min", "max_scalar", "hardtanh", "hardsigmoid", "elu", "selu"),
    "max_dim": ("clamp", "min_scalar", "min_param", "hardtanh", "hardsigmoid"),
}
"""Reductions with what makes their results all alike: the limit that came before."""
_MAX_ELEMENTS = 1 << 28
_FEWEST_PER_STATISTIC = 32


def _draw_around(rng: random.Random, elements: int) -> tuple[list[OpCall], dict[str, int]]:
    """A sequence and its sizes; it may be shorter than wanted when nothing more fits."""
    (name,) = rng.choices(list(_MAIN_WEIGHTS), weights=list(_MAIN_WEIGHTS.values()))
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
        following = ops[-1].name if rng.random() < _AGAIN_SHARE else _one(rng, _FOLLOWING)
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
    if any(counts[soft] for soft in _SOFT) and name not in _MAY_FOLLOW_SOFTMAX:
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

    def drawn() -> _Drawn | None:
        ops, sizes = _draw_around(rng, int(2 ** rng.uniform(low, high)))
        return (ops, sizes) if len(ops) > 1 else None

    return _new_tasks(num, "l2/g{:04d}", set(kernelbench_sequences()), drawn)
