"""THE loop: m trajectories x n turns of every task, a turn of all of them at a time (arXiv 2507.11948, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kevin.core.types import Task, Turn, digest
from kevin.policy.interface import Policy
from kevin.rollout.checkpoint import Checkpoint
from kevin.rollout.search import Search, Trajectories, shuffled_feedback
from kevin.rollout.settings import Judge, Place, RolloutSettings, TurnTiming
from kevin.rollout.turn import TurnPlayer


def refine(
    tasks: Sequence[Task],
    policy: Policy,
    judge: Judge,
    settings: RolloutSettings,
    checkpoint: Path | None = None,
    *,
    progress: bool = True,
    identity: Mapping[str, Any] | None = None,
    on_timing: Callable[[TurnTiming], None] | None = None,
    beside: bool = False,
    search: Search | None = None,
    starts: Mapping[str, Turn] | None = None,
) -> list[Turn]:
    """Roll out and return all turns, ordered by task (as given), trajectory, turn.

    A trajectory is shorter than n turns when its prompt outgrew the budget or the policy's recording ended, and ends in
    a turn with outcome None when the harness failed on it. ``policy.complete`` is called exactly n times.

    Args:
        checkpoint: folder that makes the run resumable: started again with the same arguments it repeats nothing that
            it holds, and tries the harness's failures again. An interrupt at any moment leaves it usable.
        identity: what else a resume must agree on, e.g. the policy's settings and files, and the judging protocol.
        on_timing: told where the time of each turn went.
        beside: judge answers while others are being generated; policy and judge must not share a device.
        search: how the trajectories of a task depend on each other; not at all by default.
        starts: by task id a turn that all its trajectories have behind them, and that is none of theirs.

    Raises:
        DataError: the checkpoint holds answers for other tasks, of another policy or under other settings.
        TaskError: a task's first prompt is over the budget.
        PolicyError: the policy failed; what it had answered is in the checkpoint.
    """
    search, starts = search or Trajectories(), starts or {}
    what = dict(identity or {})
    if starts:
        what["starts"] = {task: digest("start", t.model_dump_json()) for task, t in starts.items()}
    saved = Checkpoint(checkpoint, rollout_identity(tasks, policy.name, settings, search, what)) if checkpoint else None
    player = TurnPlayer(
        tasks, policy, judge, settings, checkpoint=saved, show_progress=progress, on_timing=on_timing, beside=beside
    )
    is_coupled = search.is_coupled or settings.feedback == "shuffled"
    histories: dict[Place, list[Turn]] = {(t.id, k): [] for t in tasks for k in range(settings.num_trajectories)}

    def shown(place: Place) -> Sequence[Turn]:
        start = starts.get(place[0])
        known = histories if start is None else {**histories, place: [start, *histories[place]]}
        return search.shown(place, known, settings.history)

    for turn in range(1, settings.num_turns + 1):
        before = list(saved.turns(turn).values()) if saved and is_coupled else []
        played = player.play(turn, histories, shown)
        if saved and is_coupled and played != before:
            saved.forget_after(turn)
        for t in shuffled_feedback(played, settings.seed) if settings.feedback == "shuffled" else played:
            histories[t.task_id, t.trajectory].append(t)
        if turn < settings.num_turns:
            histories = search.after(turn, histories, settings)
    return [turn for history in histories.values() for turn in history]


def rollout_identity(
    tasks: Sequence[Task], policy: str, settings: RolloutSettings, search: Search, identity: Mapping[str, Any]
) -> dict[str, Any]:
    """What a rollout depends on, as nested JSON values under the configuration's keys. ``identity``: what else."""
    rollout = settings.model_dump(mode="json")
    coupled = {} if search.method == "trajectories" else {"search": search.model_dump(mode="json")}
    return {
        "policy": policy,
        **{key: rollout.pop(key) for key in ("dialect", "language", "seed")},
        "rollout": rollout,
        "tasks": {t.id: t.digest for t in tasks},
        **coupled,
        **identity,
    }
