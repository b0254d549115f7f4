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

_SHIFTS = ("add_scalar", "sub_scalar")
_SCALES = ("scale", "div_scalar")
_PARAMETERS = ("bias_add", "add_param", "sub_param", "mul_param")
AFFINE = (*_SCALES, *_SHIFTS, *_PARAMETERS, "add_input", "add_residual", "residual_sub")
_LINEAR_MAINS = (
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_avg_pool",
    "cumsum",
    "reverse_cumsum",
    "mean_dim",
    "sum_dim",
    "global_avg_pool",
)
_KNOWN_SUM_OVER_LAST = ("softmax", "layer_norm", "row_norm")
_KNOWN_SUM_OVER_PICTURE = ("instance_norm", "spatial_softmax")
_SUMS = ("sum_dim", "mean_dim", "global_avg_pool")
_CENTRED = ("layer_norm", "row_norm", "instance_norm", "group_norm", "batch_norm", "argmax", "argmin")
_SHIFT_INVARIANT = ("softmax", "log_softmax", "spatial_softmax", *_CENTRED)
_SCALE_INVARIANT = (*_CENTRED, "rms_norm", "rms_norm_dim", "l2_norm", "l1_norm", "frobenius_norm")
_IDLE_ABOVE_ZERO = ("relu", "leaky_relu", "elu", "abs", "dropout")
_CLIPS = ("clamp", "hardtanh", "clamp_min", "min_scalar", "max_scalar")


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
        low, high = _limits(op)
        if state.low >= low and state.high <= high:
            return Objection("idle_operator", f"{name} changes nothing: its input lies within its limits")
        if state.high <= low or state.low >= high:
            return Objection("constant_output", f"{name} of a value outside its limits is constant")
    if name in _SHIFT_INVARIANT and state.last in _SHIFTS:
        return Objection("idle_operator", f"{state.last} changes nothing before {name}")
    if name in _SCALE_INVARIANT and state.last in _SCALES:
        return Objection("idle_operator", f"{state.last} changes nothing before {name}")
    if name in _SUMS:
        over = "picture" if name == "global_avg_pool" else "last"
        if state.known_sum == over:
            return Objection("reduction_skippable", f"{name} of a normalised value does not depend on the input")
        if state.linear:
            return Objection("reduction_skippable", f"{name} can be drawn through the linear step before it")
    if state.reduced and OPERATORS[name].kind == "reduce":
        return Objection("reduction_skippable", f"{name} reduces what is reduced already")
    return None


def _limits(op: OpCall) -> tuple[float, float]:
    """The interval that an operator clips to."""
    if op.name == "min_scalar":
        return -_INF, op.attrs["c"]
    if op.name == "max_scalar":
        return op.attrs["c"], _INF
    return op.attrs["min"], op.attrs.get("max", _INF)


def advance(state: State, op: OpCall) -> State:
    name, kind = op.name, OPERATORS[op.name].kind
    low, high = _range(state, op)
    nxt = replace(state, low=low, high=high, last=name)
    if name in AFFINE:
        return replace(nxt, known_sum=None) if kind in ("second", "residual") else nxt
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
    "sub_scalar": lambda v, a: v - a["c"],
    "div_scalar": lambda v, a: v / a["c"],
    "clamp_min": lambda v, a: max(v, a["min"]),
    "min_scalar": lambda v, a: min(v, a["c"]),
    "max_scalar": lambda v, a: max(v, a["c"]),
    "selu": lambda v, a: max(1.06 * v, -1.76),
    "hardsigmoid": lambda v, a: min(max(v / 6 + 0.5, 0.0), 1.0),
    **{n: lambda v, a: v for n in ("max_dim", "min_dim", "mean_dim", "global_avg_pool", "adaptive_avg_pool")},
    **{f"{kind}_pool{n}d": lambda v, a: v for kind in ("max", "avg") for n in (1, 2, 3)},
    **{n: lambda v, a: v * _INF if v else 0.0 for n in ("sum_dim", "cumsum", "reverse_cumsum")},
}
"""Bounds on the value at either end of the interval."""

_DIPPING = ("gelu", "silu", "mish", "hardswish", "new_gelu")
"""Fall to about -0.4 below zero, and are near the identity above."""

_FIXED = {
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "spatial_softmax": (0.0, 1.0),
    "log_softmax": (-_INF, 0.0),
    "l2_norm": (-1.0, 1.0),
    "abs": (0.0, _INF),
    "square": (0.0, _INF),
}


def _range(state: State, op: OpCall) -> tuple[float, float]:
    if op.name in _DIPPING:
        return (0.0 if state.low >= 0 else -0.4), max(state.high, 0.0)
    if op.name in _MONOTONE:
        ends = sorted(_MONOTONE[op.name](v, op.attrs) for v in (state.low, state.high))
        return ends[0], ends[1]
    return _FIXED.get(op.name, (-_INF, _INF))
