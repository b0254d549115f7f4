"""From the turns of a step to its training samples: one row a turn, with score, return and advantage. No framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from kevin.core import reward
from kevin.core.config import RewardConfig
from kevin.core.dialogue import opening_is_expected
from kevin.core.errors import HarnessError
from kevin.core.files import append_line, read_lines, turns_frame
from kevin.core.texts import strict_json
from kevin.core.types import Kernel, Outcome, Task, Turn, Verdict
from kevin.rollout.settings import Judge


@dataclass(frozen=True)
class Row:
    """One training sample: a turn, or the place of one that was never played."""

    task_id: str
    trajectory: int
    turn: int
    """Counted from 1."""
    played: Turn | None
    """None: a placeholder, its trajectory ended before."""
    score: float | None
    """None for placeholders and where the harness failed."""
    return_: float | None
    advantage: float
    """Exactly 0 wherever there is no return."""


def turn_score(turn: Turn, config: RewardConfig, bonus: float = 0.0) -> float | None:
    """S of one turn, with a bonus if it is correct; None where the harness failed: that is never a score of 0."""
    own = reward.configured_score(turn.outcome, turn.speedup, config)
    return own + bonus if own is not None and turn.outcome is Outcome.CORRECT else own


def training_rows(
    turns: Sequence[Turn],
    task_ids: Sequence[str],
    *,
    num_trajectories: int,
    num_turns: int,
    config: RewardConfig,
    mode: reward.AdvantageMode = "group",
    bonuses: Mapping[str, float] | None = None,
) -> list[Row]:
    """Exactly ``len(task_ids) * num_trajectories * num_turns`` rows, by task (as given), turn, trajectory:
    rows whose prompts begin alike are neighbours.

    A task's m * n rows are one group. What has no return is left out of the group's mean and has advantage 0.

    Args:
        bonuses: what is added to the score of a correct kernel, by verdict key.

    Raises:
        ValueError: a turn that belongs to no row, or two for one.
    """
    by_place: dict[tuple[str, int], list[Turn]] = {}
    for turn in sorted(turns, key=lambda t: t.turn):
        by_place.setdefault((turn.task_id, turn.trajectory), []).append(turn)
    rows: list[Row] = []
    for task_id in task_ids:
        group = []
        for trajectory in range(num_trajectories):
            played = by_place.pop((task_id, trajectory), [])
            if [t.turn for t in played] != list(range(1, len(played) + 1)) or len(played) > num_turns:
                raise ValueError(f"{task_id}, trajectory {trajectory}: turns {[t.turn for t in played]}")
            scores = [turn_score(t, config, (bonuses or {}).get(t.verdict_key or "", 0.0)) for t in played]
            values = reward.configured_returns(scores, [t.num_completion_tokens for t in played], config)
            missing = [None] * (num_turns - len(played))
            cells = zip(
                range(1, num_turns + 1), [*played, *missing], [*scores, *missing], [*values, *missing], strict=True
            )
            group += [(trajectory, *cell) for cell in cells]
        numbers = [number for _, number, *_ in group]
        advantages = reward.advantages([value for *_, value in group], mode=mode, turns=numbers)
        own = [Row(task_id, *place, advantage) for place, advantage in zip(group, advantages, strict=True)]
        rows += sorted(own, key=lambda r: r.turn)
    if by_place:
        raise ValueError(f"turns of no row: {sorted(by_place)[:3]}")
    return rows


def rows_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """The played turns with ``score``, ``return``, ``advantage``: what a person looks through."""
    played = [r for r in rows if r.played is not None]
    frame = turns_frame([r.played for r in played if r.played is not None])
    frame["score"] = pd.Series([r.score for r in played], dtype="float64")
    frame["return"] = pd.Series([r.return_ for r in played], dtype="float64")
    frame["advantage"] = pd.Series([r.advantage for r in played], dtype="float64")
    return frame


def flat_groups(rows: Sequence[Row]) -> tuple[int, int]:
    """(groups without a gradient, groups)."""
    groups = [list(g) for _, g in groupby(rows, key=lambda r: r.task_id)]
    return sum(all(r.advantage == 0 for r in g) for g in groups), len(groups)


def kept_groups_scale(counts: Sequence[tuple[int, int]]) -> float:
    """What makes a mean over all groups one over those with a gradient; `flat_groups` of every process.

    A step in which all groups are flat has no gradient anyway.
    """
    flat, every = (sum(column) for column in zip(*counts, strict=True))
    return every / (every - flat) if flat < every else 1.0


MAX_UNJUDGED_SHARE = 0.5
"""Of a step's kernels that may lack a verdict; with more the harness is broken and training on the rest would mislead.
"""


def check_judged(turns: Sequence[Turn]) -> None:
    """Raises HarnessError when over `MAX_UNJUDGED_SHARE` of the kernels have no verdict."""
    kernels = [t for t in turns if t.kernel is not None]
    failed = sum(t.outcome is None for t in kernels)
    if failed > MAX_UNJUDGED_SHARE * len(kernels):
        raise HarnessError(
            f"the judge failed on {failed} of {len(kernels)} kernels of a step; see the log, then start again: what "
            f"was generated and judged is kept"
        )


def step_metrics(rows: Sequence[Row], num_turns: int) -> dict[str, float]:
    """What a step's rollouts say, as plain numbers: of all turns together, and of each turn number.

    ``score``, ``correct`` and ``compiled`` (shares), ``speedup`` (mean over correct ones; absent without any),
    ``completion_tokens``, ``truncated``, ``not_okay_ratio``, ``unjudged`` and ``placeholders`` (shares),
    ``flat_groups`` (share of the tasks whose returns are all equal: they teach nothing), ``score_turn_1``,
    ``correct_turn_1``, ``compiled_turn_1``, ... A share over nothing is absent, never 0.
    """
    played = [r.played for r in rows if r.played is not None]
    judged = [r for r in rows if r.score is not None]
    record = {"unjudged": 1 - len(judged) / len(played) if played else 0.0}
    record["placeholders"] = 1 - len(played) / len(rows)
    record |= _judged_metrics(judged, "")
    for number in range(1, num_turns + 1):
        record |= _judged_metrics([r for r in judged if r.turn == number], f"_turn_{number}")
    speedups = [t.speedup for t in played if t.speedup is not None]
    if speedups:
        record["speedup"] = _mean(speedups)
    if played:
        record["completion_tokens"] = _mean([t.num_completion_tokens for t in played])
        record["truncated"] = _mean([t.finish_reason == "length" for t in played])
        record["not_okay_ratio"] = _mean([not opening_is_expected(t.completion) for t in played])
    flat, every = flat_groups(rows)
    record["flat_groups"] = flat / every
    return record


def _judged_metrics(judged: Sequence[Row], suffix: str) -> dict[str, float]:
    if not judged:
        return {}
    correct = [r.played is not None and r.played.outcome is Outcome.CORRECT for r in judged]
    compiled = [r.played is not None and r.played.outcome is not None and r.played.outcome.compiles for r in judged]
    return {
        f"score{suffix}": _mean([r.score for r in judged]),
        f"correct{suffix}": _mean(correct),
        f"compiled{suffix}": _mean(compiled),
    }


def _mean(values: Sequence[Any]) -> float:
    return float(sum(values) / len(values))


_OWN_SHARE = "own_kernel_share"
"""Of a verdict's details."""


_PAIR = TypeAdapter(tuple[str, float])


class OwnShares:
    """The profiling-based reward: what share of device time a kernel's own code had, by verdict key. A turn does not
    carry them, so they are kept in a file beside the step's rollouts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.by_key = dict(read_lines(path, _PAIR.validate_json, "delete it"))

    def watched(self, judge: Judge) -> Judge:
        """The judge, with every share that it reports remembered before its verdicts are used."""

        def judging(pairs: Sequence[tuple[Task, Kernel]]) -> list[Verdict | HarnessError]:
            results = judge(pairs)
            for verdict in results:
                if isinstance(verdict, Verdict) and isinstance(share := verdict.details.get(_OWN_SHARE), int | float):
                    if verdict.key not in self.by_key:
                        append_line(self._path, strict_json([verdict.key, share]))
                    self.by_key[verdict.key] = float(share)
            return results

        return judging
