"""Which operator may follow which, so that no step of a composed task is idle and no reduction can be skipped.

`State` follows a sequence: the range its values lie in, and whether everything since the main operator, or since a
normalisation, was affine: then a sum or mean could be drawn through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from kevin.core.types import OpCall
from kevin.tasks.operators import OPERATORS, Attrs

_INF = math.inf

AFFINE = ("scale", "add_scalar", "bias_add", "add_input")
_LINEAR_MAINS = ("avg_pool1d", "avg_pool2d", "cumsum", "reverse_cumsum", "mean_dim", "sum_dim", "global_avg_pool")
_KNOWN_SUM_OVER_LAST = ("softmax", "layer_norm")
_KNOWN_SUM_OVER_PICTURE = ("instance_norm",)
_SUMS = ("sum_dim", "mean_dim", "global_avg_pool")
_SHIFT_INVARIANT = ("softmax", "log_softmax", "layer_norm", "instance_norm", "group_norm", "batch_norm", "argmax")
_SCALE_INVARIANT = ("layer_norm", "rms_norm", "l2_norm", "instance_norm", "group_norm", "batch_norm", "argmax")
_IDLE_ABOVE_ZERO = ("relu", "leaky_relu", "elu")
_CLIPS = ("clamp", "hardtanh")


@dataclass(frozen=True)
class State:
    """What is known of the values after a sequence."""

    low: float = -_INF
    high: float = _INF
    last: str | None = None
    linear: bool = False
    """A sum of the result is a sum of the input: contraction, average or sum, with only affine steps since."""
    known_sum: str | None = None
    """``last`` or ``picture``: the mean over those dimensions does not depend on the input."""
    reduced: bool = False


class Objection(NamedTuple):
    """Why a step makes a bad task."""

    reason: Literal["idle_operator", "constant_output", "reduction_skippable"]
    message: str


def objection(state: State, op: OpCall) -> Objection | None:
    """What is wrong with ``op`` after ``state``; None when it is sound."""
    name = op.name
    if name in _IDLE_ABOVE_ZERO and state.low >= 0:
        return Objection("idle_operator", f"{name} changes nothing: its input is never negative")
    if name == "relu" and state.high <= 0:
        return Objection("constant_output", "relu of a value that is never positive is zero")
    if name in _CLIPS:
        low, high = op.attrs["min"], op.attrs["max"]
        if state.low >= low and state.high <= high:
            return Objection("idle_operator", f"{name} changes nothing: its input lies within its limits")
        if state.high <= low or state.low >= high:
            return Objection("constant_output", f"{name} of a value outside its limits is constant")
    if name in _SHIFT_INVARIANT and state.last == "add_scalar":
        return Objection("idle_operator", f"add_scalar changes nothing before {name}")
    if name in _SCALE_INVARIANT and state.last == "scale":
        return Objection("idle_operator", f"scale changes nothing before {name}")
    if name in _SUMS:
        over = "picture" if name == "global_avg_pool" else "last"
        if state.known_sum == over:
            return Objection("reduction_skippable", f"{name} of a normalised value does not depend on the input")
        if state.linear:
            return Objection("reduction_skippable", f"{name} can be drawn through the linear step before it")
    if state.reduced and OPERATORS[name].kind == "reduce":
        return Objection("reduction_skippable", f"{name} reduces what is reduced already")
    return None


def advance(state: State, op: OpCall) -> State:
    """The state after ``op``."""
    name, kind = op.name, OPERATORS[op.name].kind
    low, high = _range(state, op)
    nxt = replace(state, low=low, high=high, last=name)
    if name in AFFINE:
        shifts = name in ("bias_add", "add_input")
        return replace(nxt, known_sum=None if name == "add_input" else state.known_sum) if shifts else nxt
    known = "last" if name in _KNOWN_SUM_OVER_LAST else "picture" if name in _KNOWN_SUM_OVER_PICTURE else None
    return replace(
        nxt,
        linear=(kind == "contract" or name in _LINEAR_MAINS),
        known_sum=known,
        reduced=state.reduced or kind == "reduce",
    )


def first_objection(ops: Sequence[OpCall]) -> Objection | None:
    """The first objection to any step of a sequence, or None."""
    state = State()
    for op in ops:
        if problem := objection(state, op):
            return problem
        state = advance(state, op)
    return None


def _clip(low: float, high: float) -> Callable[[float, Attrs], float]:
    return lambda v, a: min(max(v, low), high)


_MONOTONE: dict[str, Callable[[float, Attrs], float]] = {
    "relu": lambda v, a: max(v, 0.0),
    "leaky_relu": lambda v, a: v if v >= 0 else v * a["slope"],
    "elu": lambda v, a: max(v, -a["alpha"]),
    "softplus": lambda v, a: v + 0.7 if v > 0 else 0.0,
    "tanh": _clip(-1.0, 1.0),
    "softsign": _clip(-1.0, 1.0),
    "clamp": lambda v, a: min(max(v, a["min"]), a["max"]),
    "hardtanh": lambda v, a: min(max(v, a["min"]), a["max"]),
    "scale": lambda v, a: v * a["c"],
    "add_scalar": lambda v, a: v + a["c"],
    **{n: lambda v, a: v for n in ("max_dim", "mean_dim", "global_avg_pool")},
    **{f"{kind}_pool{n}d": lambda v, a: v for kind in ("max", "avg") for n in (1, 2)},
    **{n: lambda v, a: v * _INF if v else 0.0 for n in ("sum_dim", "cumsum", "reverse_cumsum")},
}
"""Bounds on the value at either end of the interval."""

_DIPPING = ("gelu", "silu", "mish", "hardswish")
"""Fall to about -0.4 below zero, and are near the identity above."""

_FIXED = {"sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "log_softmax": (-_INF, 0.0), "l2_norm": (-1.0, 1.0)}


def _range(state: State, op: OpCall) -> tuple[float, float]:
    """Interval of the values after ``op``."""
    if op.name in _DIPPING:
        return (0.0 if state.low >= 0 else -0.4), max(state.high, 0.0)
    if op.name in _MONOTONE:
        ends = sorted(_MONOTONE[op.name](v, op.attrs) for v in (state.low, state.high))
        return ends[0], ends[1]
    return _FIXED.get(op.name, (-_INF, _INF))
