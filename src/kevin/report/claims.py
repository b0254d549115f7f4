"""The study's primary endpoint and the paper's claims, each with its number, its interval, and a verdict by a rule.

The primary endpoint (``report.primary``) stands first; then effects, of training and of turns; then levels, numbers of
the paper as thresholds, which other tasks may pass by being easier. Beside each interval stands ``detectable``, the
smallest value that so many tasks and seeds would have shown in four of five studies (`metrics.smallest_shown`).

A claim is that a number is above a threshold: a difference above 0, a ratio above 1, a share or speedup at least the
paper's. With the 95 % interval over tasks and seeds it is *shown* when the whole interval lies there, *refuted* when
none of it does, *not shown* in between, and *not measured*, with the reason, where a policy, a split or a comparable
task is missing. A speedup that misses its threshold by less than the clock tells apart (``report.timing_resolution``)
is not shown either way: the best of more kernels is the luckiest of more measurements. LayerNorm is about one kernel:
finding one as fast shows it, and not finding one refutes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.core.types import Outcome
from kevin.report import paper
from kevin.report.budgets import BASE, MULTI, NO_SEARCH, SINGLE, Evidence, NotMeasured, budgets_of_search, shared_tasks
from kevin.report.metrics import Interval, exp, mean_estimate, minus, ratio, smallest_shown
from kevin.report.primary import endpoint_of, measured
from kevin.report.recipes import Recipe, policy_label

SHOWN, REFUTED, NOT_SHOWN, NOT_MEASURED = "shown", "refuted", "not shown", "not measured"
MIN_TASKS = 5
"""Resampling fewer tasks than these says next to nothing."""
PRIMARY, EFFECT, LEVEL = "primary endpoint", "effect", "level"
"""Kinds of rows, in their order."""
COLUMNS = [
    *("kind", "claim", "measure", "unit", "paper", "paper_setting", "ours", "ours_low", "ours_high"),
    *("threshold", "detectable", "verdict", "why"),
    *("policies", "setting", "num_tasks", "num_seeds", "num_seeds_against", "scale", "hardware"),
]

_PAPER = {MULTI: "Kevin, multi-turn RL", SINGLE: "single-turn RL", BASE: "QwQ-32B (base model)"}
_PAPER_LAYER_NORM = ("kb/1/40", "cuda")


class Found(NamedTuple):
    """Our number of a claim."""

    interval: Interval
    recipes: tuple[Recipe, ...]
    num_tasks: int
    setting: str
    """Trajectories x turns."""
    clock: float = 0.0
    """Difference from the threshold that measuring times alone may make, in the claim's unit."""


class Claim(NamedTuple):
    kind: str
    text: str
    measure: str
    unit: str
    """How it is printed: share, points, times or times more."""
    paper: float | None
    paper_setting: str
    threshold: float
    measured: Callable[[Evidence], Found]


# --- measures -----------------------------------------------------------------------------------------------------


def _endpoint(evidence: Evidence) -> Found:
    """See `kevin.report.primary`."""
    endpoint = endpoint_of(evidence)
    interval = exp(measured(endpoint, evidence)).interval
    setting = f"{endpoint.shape} and {endpoint.shape.as_first_answers}"
    sides = (endpoint.policy, endpoint.against)
    return Found(interval, sides, len(evidence.tasks), setting, evidence.study.report.timing_resolution)


def _level(metric: str, evidence: Evidence) -> Found:
    """Of the multi-turn policy."""
    recipe = evidence.recipe(MULTI)
    shape = evidence.shape(recipe)
    values = evidence.values(recipe, metric, shape)
    interval = mean_estimate(values, evidence.study).interval
    return Found(interval, (recipe,), len(values), str(shape), _clock(evidence, metric, interval.value))


def _difference(metric: str, against: str, evidence: Evidence) -> Found:
    """The multi-turn policy minus another, paired, at as many trajectories and turns as both have."""
    sides = (evidence.recipe(MULTI), evidence.recipe(against))
    shape = evidence.shape(*sides)
    values = [evidence.values(side, metric, shape) for side in sides]
    tasks = shared_tasks(values)
    a, b = (mean_estimate(own.loc[tasks], evidence.study, stream) for stream, own in enumerate(values))
    return Found(minus(a, b).interval, sides, len(tasks), str(shape), _clock(evidence, metric, b.value))


def _clock(evidence: Evidence, metric: str, value: float) -> float:
    """What the clock may make of this value of a metric; shares are counted, not timed."""
    return evidence.study.report.timing_resolution * value if metric.startswith("speedup") else 0.0


def _serial_over_parallel(parts: Sequence[str], evidence: Evidence) -> Found:
    """Speedup with most turns over that of first answers, at equal kernels; of two policies the difference."""
    sides = tuple(evidence.recipe(part) for part in parts)
    pairs = evidence.both_ways(sides)
    tasks = shared_tasks([budget.values for pair in pairs for budget in pair])
    ratios = []
    for stream, pair in enumerate(pairs):
        first, turns = (mean_estimate(own.values["speedup"].loc[tasks], evidence.study, stream) for own in pair)
        ratios.append(ratio(turns, first))
    if any(math.isnan(r.value) for r in ratios):
        raise NotMeasured("no first answer is correct: there is nothing to divide by")
    estimate = ratios[0] if len(ratios) == 1 else minus(*ratios)
    clock = evidence.study.report.timing_resolution * ratios[-1].value
    return Found(estimate.interval, sides, len(tasks), f"{pairs[0][1].shape} and {pairs[0][0].shape}", clock)


def _layer_norm(evidence: Evidence) -> Found:
    """The fastest correct kernel of any trained policy, in ``search`` too; no interval, as it is one kernel."""
    trained, search = evidence.trained(), evidence.search
    if not trained:
        raise NotMeasured("no policy made by reinforcement learning is evaluated")
    task = evidence.study.tasks.case_study
    of_search = search[search["policy"].isin([policy for recipe in trained for policy in recipe.seeds])]
    own = pd.concat([*(scores for recipe in trained for scores in evidence.scores(recipe)), of_search])
    own = own[own["task_id"] == task]
    if own.empty:
        raise NotMeasured(f"{task} is not among the tasks that the trained policies answered")
    best = own.loc[own["outcome"] == Outcome.CORRECT.value, "speedup"].max()
    value = 0.0 if math.isnan(best) else float(best)
    searched = [budget.shape for recipe in trained for budget in budgets_of_search(recipe, search)]
    ways = [evidence.shape(trained[0]), *sorted(searched, key=lambda shape: -shape.turns)]
    return Found(Interval(value, math.nan, math.nan), tuple(trained), 1, " and ".join(dict.fromkeys(map(str, ways))))


# --- the claims ---------------------------------------------------------------------------------------------------


def claims(study: Study) -> list[Claim]:
    """In the order of the page."""
    multi, single = (paper.serial_over_parallel(_PAPER[part]) for part in (MULTI, SINGLE))
    budget = "16 × 8 and 128 × 1"
    fastest = max(turn.speedup or 0.0 for turn in paper.LAYER_NORM)
    return [
        _primary(study),
        _effect("Multi-turn RL makes more trajectories correct", BASE, "correct_avg", "points"),
        _effect("Multi-turn RL makes the best kernels faster", BASE, "speedup_best", "times more"),
        _effect("RL gain: the average trajectory gets faster", BASE, "speedup_avg", "times more"),
        _effect("Multi-turn RL beats single-turn RL in speedup", SINGLE, "speedup_best", "times more"),
        Claim(
            EFFECT,
            "A serial budget beats a parallel one, after multi-turn RL",
            "speedup, serial over parallel at equal kernels",
            "times",
            multi,
            budget,
            1.0,
            partial(_serial_over_parallel, [MULTI]),
        ),
        Claim(
            EFFECT,
            "Turns are worth more after multi- than after single-turn RL",
            "the same ratio, multi- minus single-turn RL",
            "times more",
            multi - single,
            f"{multi:.2f}× against {single:.2f}×, {budget}",
            0.0,
            partial(_serial_over_parallel, [MULTI, SINGLE]),
        ),
        _threshold("at least {} of trajectories are correct", "correct_avg", "share"),
        _threshold("at least {} of tasks are solved", "correct_best", "share"),
        _threshold("at least {} of tasks are solved as fast as by eager", "fast_1_best", "share"),
        _threshold("at least {} of trajectories are as fast as eager", "fast_1_avg", "share"),
        _threshold("the best kernels are at least {} as fast as eager", "speedup_best", "times"),
        Claim(
            LEVEL,
            f"LayerNorm is made {fastest:.2f} times as fast",
            "fastest correct kernel of a trained policy",
            "times",
            fastest,
            "KernelBench 1/40, turn 5 of a trajectory (blog)",
            fastest,
            _layer_norm,
        ),
    ]


def _primary(study: Study) -> Claim:
    config = study.report.primary
    kernels = config.trajectories * config.turns
    text = f"{kernels} kernels a task find faster ones as {config.trajectories} × {config.turns} after training"
    if config.against is None:
        text += f" over turns than as first answers after {SINGLE}"
    else:
        text += f" than as first answers of {policy_label(config.against, study)}"
    measure = "geometric mean speedup with eager as the floor: ratio"
    return Claim(PRIMARY, text, measure, "times", None, "", 1.0, _endpoint)


def _effect(text: str, against: str, column: str, unit: str) -> Claim:
    """With the paper's difference, and the two numbers that it is of."""
    ours, theirs = (paper.TABLE1[_PAPER[part]][column] for part in (MULTI, against))
    setting = " against ".join(f"{100 * n:.0f} %" if unit == "points" else f"{n:.2f}×" for n in (ours, theirs))
    measure = f"{', '.join(column.rsplit('_', 1))}: minus {against}"
    return Claim(
        EFFECT, text, measure, unit, ours - theirs, f"{setting}, 16 × 8", 0.0, partial(_difference, column, against)
    )


def _threshold(text: str, column: str, unit: str) -> Claim:
    number = paper.TABLE1[_PAPER[MULTI]][column]
    text = f"After {MULTI}: {text.format(_shown(number, unit))}"
    return Claim(LEVEL, text, ", ".join(column.rsplit("_", 1)), unit, number, "16 × 8", number, partial(_level, column))


def _shown(value: float, unit: str) -> str:
    """A threshold as people write it."""
    if unit in ("share", "points"):
        return f"{100 * value:g} %"
    return f"{value:.4g}×" if value else "0"


def claims_table(scores: pd.DataFrame, study: Study, hardware: str, search: pd.DataFrame = NO_SEARCH) -> pd.DataFrame:
    """One row a claim.

    Args:
        scores: all policies and held-out splits.
        hardware: where they were judged.
        search: of `kevin.report.budgets.read_plain_search`, where there are such rollouts.
    """
    evidence = Evidence(scores, study, search)
    rows = [_row(claim, evidence) | {"scale": study.scale, "hardware": hardware} for claim in claims(study)]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.astype(dict.fromkeys(["num_tasks", "num_seeds", "num_seeds_against"], "Int64"))


def _row(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    head = {name: getattr(claim, name) for name in ("kind", "measure", "unit", "paper", "paper_setting", "threshold")}
    head["claim"] = claim.text
    if evidence.study.report.miniature:
        return head | {"verdict": NOT_MEASURED, "why": "a miniature of the study"}
    try:
        found = claim.measured(evidence)
    except NotMeasured as e:
        return head | {"verdict": NOT_MEASURED, "why": str(e)}
    verdict, why = _verdict(claim, found, evidence.study)
    seeds = [recipe.num_seeds for recipe in found.recipes]
    return head | {
        **dict(zip(("ours", "ours_low", "ours_high"), found.interval, strict=True)),
        "detectable": _detectable(claim, found.interval),
        "verdict": verdict,
        "why": why,
        "policies": ", ".join(recipe.label(evidence.study) for recipe in found.recipes),
        "setting": found.setting,
        "num_tasks": found.num_tasks,
        "num_seeds": seeds[0],
        "num_seeds_against": seeds[1] if len(seeds) > 1 else None,
    }


def _detectable(claim: Claim, interval: Interval) -> float:
    """In the claim's unit; of the primary endpoint, a mean of logarithms, by their interval."""
    if claim.kind == PRIMARY:
        return claim.threshold * math.exp(smallest_shown(math.log(interval.low), math.log(interval.high)))
    return claim.threshold + smallest_shown(interval.low, interval.high)


def _verdict(claim: Claim, found: Found, study: Study) -> tuple[str, str]:
    if claim.measured is _layer_norm:
        return _verdict_of_one_kernel(found.interval.value, claim.threshold, study)
    if found.num_tasks < MIN_TASKS or math.isnan(found.interval.value):
        return NOT_MEASURED, f"{found.num_tasks} tasks with verdicts of all policies; an interval needs {MIN_TASKS}"
    verdict = interval_verdict(found.interval, claim.threshold, at_least=claim.threshold == claim.paper)
    if verdict != NOT_SHOWN and abs(found.interval.value - claim.threshold) < found.clock:
        return (
            NOT_SHOWN,
            f"nearer to {_shown(claim.threshold, claim.unit)} than times are told apart, {found.clock:.2g}",
        )
    where = {SHOWN: "above", REFUTED: "below", NOT_SHOWN: "on both sides of"}[verdict]
    why = f"interval {where} {_shown(claim.threshold, claim.unit)}"
    if claim.kind == PRIMARY and not study.report.primary.declared:
        why += "; named after such kernels had been seen"
    return verdict, why


def interval_verdict(interval: Interval, threshold: float, *, at_least: bool) -> str:
    """``at_least``: the threshold itself fulfils the claim; otherwise it must be exceeded."""
    if interval.low > threshold or (at_least and interval.low == threshold):
        return SHOWN
    return REFUTED if interval.high < threshold else NOT_SHOWN


def _verdict_of_one_kernel(value: float, threshold: float, study: Study) -> tuple[str, str]:
    own = (study.tasks.case_study, study.judge.device)
    if own != _PAPER_LAYER_NORM:
        return NOT_MEASURED, f"ours is {own[0]} on {own[1]}, another input and hardware"
    if value >= threshold:
        return SHOWN, "one kernel shows it"
    return NOT_SHOWN, "no such kernel was found, which refutes nothing"
