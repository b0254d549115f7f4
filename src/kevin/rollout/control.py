"""A control: what turns gain without true feedback is gained by drawing again."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kevin.core.types import Turn


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
