"""Beam search over turns: now and then only the trajectories with the fastest kernels go on, copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from kevin.core.types import Frozen, Task, Turn
from kevin.policy.protocol import Policy
from kevin.rollout.refine import open_checkpoint
from kevin.rollout.settings import Judge, Place, RolloutSettings
from kevin.rollout.turn import TurnPlayer


class BeamSettings(Frozen):
    """The defaults are the authors': after every 4 turns of 16 trajectories the best 4 go on, four times each."""

    turns_per_round: int = Field(default=4, ge=1)
    num_kept: int = Field(default=4, ge=1)


def beam_search(
    tasks: Sequence[Task],
    policy: Policy,
    judge: Judge,
    settings: RolloutSettings,
    beam: BeamSettings,
    *,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> list[Turn]:
    """Turns of the trajectories that stand at the end, each with all that it was copied from.

    ``settings.num_turns`` counts all rounds together. The fastest kernel found is always among the result; averages
    over its trajectories mean little, as they share their early turns.
    """
    identity = {"beam": beam.model_dump_json()}
    saved = open_checkpoint(checkpoint, tasks, policy, settings, identity) if checkpoint else None
    player = TurnPlayer(tasks, policy, judge, settings, checkpoint=saved, show_progress=progress)
    histories: dict[Place, list[Turn]] = {(t.id, k): [] for t in tasks for k in range(settings.num_trajectories)}
    for turn in range(1, settings.num_turns + 1):
        before = saved.turns(turn) if saved else {}
        played = {(t.task_id, t.trajectory): t for t in player.play(turn, histories)}
        if saved and played != before:
            saved.forget_after(turn)
        for place, t in played.items():
            histories[place].append(t)
        if turn % beam.turns_per_round == 0 and turn < settings.num_turns:
            histories = {
                place: history
                for task in tasks
                for place, history in select(task.id, histories, settings.num_trajectories, beam.num_kept).items()
            }
    return [turn for history in histories.values() for turn in history]


def select(
    task_id: str, histories: Mapping[Place, Sequence[Turn]], num_trajectories: int, num_kept: int
) -> dict[Place, list[Turn]]:
    """The ``num_kept`` trajectories with the fastest kernels, copied in turn until there are ``num_trajectories``.

    Among equals those that can go on come first, then the earlier ones.
    """
    own = [list(h) for (task, _), h in histories.items() if task == task_id]
    longest = max((len(h) for h in own), default=0)

    def rank(history: list[Turn]) -> tuple[float, bool]:
        can_go_on = len(history) == longest and all(t.outcome is not None for t in history)
        return max((t.speedup for t in history if t.speedup is not None), default=0.0), can_go_on

    best = sorted(own, key=rank, reverse=True)[:num_kept]
    return {
        (task_id, k): [t.model_copy(update={"trajectory": k}) for t in best[k * len(best) // num_trajectories]]
        for k in range(num_trajectories)
    }
