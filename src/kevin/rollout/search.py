"""How trajectories depend on each other: not at all, as a beam, as a population of kernels; or, as a control, by the
feedback of another one, since what turns gain without true feedback is gained by drawing again.

A search is asked twice a turn: which turns each prompt shows (``shown``), and what each place goes on from when a turn
that is not the last one is judged (``after``). Where trajectories depend on each other (``is_coupled``) a turn that
changes, because the harness had failed on it, makes all later ones be played again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from kevin.core.config import StrategyConfig
from kevin.core.history import HistoryConfig, ranking
from kevin.core.types import Frozen, Turn
from kevin.rollout.settings import Histories, Place, RolloutSettings


class _Search(Frozen):
    def shown(self, place: Place, histories: Histories, history: HistoryConfig) -> Sequence[Turn]:
        return history.shown(histories[place])

    def after(self, turn: int, histories: Histories, settings: RolloutSettings) -> dict[Place, list[Turn]]:
        return {place: list(past) for place, past in histories.items()}


class Trajectories(_Search):
    """Each by itself, as in training; with one turn it is parallel sampling."""

    method: Literal["trajectories"] = "trajectories"
    is_coupled: Literal[False] = False


class Beam(_Search):
    """Now and then only the trajectories with the fastest kernels go on, copied.

    The defaults are the authors': after every 4 turns of 16 trajectories the best 4 go on, four times each. The result
    holds the trajectories that stand at the end, each with all that it was copied from; the fastest kernel found is
    always among them.
    """

    method: Literal["beam"] = "beam"
    is_coupled: Literal[True] = True
    turns_per_round: int = Field(default=4, ge=1)
    num_kept: int = Field(default=4, ge=1)

    def after(self, turn: int, histories: Histories, settings: RolloutSettings) -> dict[Place, list[Turn]]:
        if turn % self.turns_per_round:
            return super().after(turn, histories, settings)
        chosen: dict[Place, list[Turn]] = {}
        for task_id in dict.fromkeys(task for task, _ in histories):
            chosen |= select(task_id, histories, settings.num_trajectories, self.num_kept)
        return chosen


class Evolution(_Search):
    """Every prompt shows kernels of all the task's trajectories with their evaluations (EvoEngineer, arXiv 2510.03760).

    The population is the best ``population`` different kernels of the task so far. Each place draws its own
    ``num_parents`` of them without replacement, the r-th best with weight 1 / r, and sees the best of them last.
    """

    method: Literal["evolution"] = "evolution"
    is_coupled: Literal[True] = True
    population: int = Field(default=8, ge=1)
    num_parents: int = Field(default=3, ge=1)
    seed: int = Field(default=0, ge=0)

    def shown(self, place: Place, histories: Histories, history: HistoryConfig) -> Sequence[Turn]:
        turns = [t for (task, _), past in histories.items() if task == place[0] for t in past]
        best_first = ranking(turns)[::-1][: self.population]
        rng = random.Random(f"kevin parents, {self.seed}, {place[0]}, {place[1]}, {len(histories[place])}")
        drawn: list[int] = []
        while len(drawn) < min(self.num_parents, len(best_first)):
            left = [i for i in range(len(best_first)) if i not in drawn]
            drawn += rng.choices(left, [1 / (i + 1) for i in left])
        return [best_first[i] for i in sorted(drawn, reverse=True)]


Search = Trajectories | Beam | Evolution


def make_search(strategy: StrategyConfig, settings: RolloutSettings) -> Search:
    """What a strategy of the configuration says, for rollouts of these settings."""
    if strategy.method == "beam":
        return Beam(turns_per_round=max(1, settings.num_turns // 2), num_kept=max(1, settings.num_trajectories // 4))
    if strategy.method == "evolution":
        return Evolution(num_parents=strategy.num_parents, seed=settings.seed)
    return Trajectories()


def select(task_id: str, histories: Histories, num_trajectories: int, num_kept: int) -> dict[Place, list[Turn]]:
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


def shuffled_feedback(turns: Sequence[Turn], seed: int) -> list[Turn]:
    """The judged turns of one number, each with the feedback of another one: of another task's where there is one.

    Which one follows from the seed, the turn's number and the turns. A turn that is alone loses its feedback.
    """
    told = []
    for turn in turns:
        others = [t for t in turns if t is not turn and t.outcome is not None]
        foreign = [t for t in others if t.task_id != turn.task_id]
        rng = random.Random(f"kevin shuffled feedback, {seed}, {turn.task_id}, {turn.trajectory}, {turn.turn}")
        feedback = rng.choice(foreign or others).feedback if others else ""
        told.append(turn.model_copy(update={"feedback": feedback}) if turn.outcome is not None else turn)
    return told
