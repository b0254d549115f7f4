"""Level 2: seeded sequences of one main operator and two to five further ones, no sequence twice."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, TypeVar

from kevin.core.errors import TaskError
from kevin.core.types import OpCall, Task
from kevin.tasks.catalog import Size, conv, flat, linear, picture, product, signal
from kevin.tasks.operators import OPERATORS, Sizes
from kevin.tasks.ops import call, own_task, sequence, trace
from kevin.tasks.rules import State, advance, first_objection, objection

MIN_FURTHER, MAX_FURTHER = 2, 5
_ATTEMPTS = 2000


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
        (members,) = rng.choices([m for _, m in classes], weights=[w for w, _ in classes])
        ops.append(rng.choice(members))
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

    def drawn() -> tuple[list[OpCall], Main] | None:
        ops, main = _draw(rng)
        return (ops, main) if len(ops) > MIN_FURTHER and not first_objection(ops) else None

    for index, (ops, main) in enumerate(new_sequences(num, set(exclude), drawn, _ATTEMPTS), 1):
        sizes = _cpu_sizes(ops, main.cpu) if size == "cpu" else main.gpu
        yield own_task(f"l2/{index:03d}_{'_'.join(sequence(ops))}", ops, sizes)


Drawn = TypeVar("Drawn")


def new_sequences(
    num: int,
    seen: set[tuple[str, ...]],
    draw: Callable[[], tuple[list[OpCall], Drawn] | None],
    max_attempts: int,
) -> Iterator[tuple[list[OpCall], Drawn]]:
    """``num`` draws, one after the other, whose sequences differ from each other and from those ``seen``."""
    for done in range(num):
        for _ in range(max_attempts):
            if (drawn := draw()) is not None and sequence(drawn[0]) not in seen:
                break
        else:
            raise TaskError(f"no new operator sequence found after {done} of {num}; ask for fewer tasks")
        seen.add(sequence(drawn[0]))
        yield drawn
