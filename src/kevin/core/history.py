"""What a later turn sees of the turns before it: ``rollout.history``. The same in training and test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from kevin.core.types import Outcome, Settings, Turn

NUM_BEST = 3
"""How many of the best kernels ``best_and_worst`` shows."""
HistoryView = Literal["all", "fastest_and_last", "best_and_worst", "best", "fastest"]

_STANDING = (
    Outcome.PARSE_ERROR,
    Outcome.REFUSED,
    Outcome.COMPILE_ERROR,
    Outcome.RUNTIME_ERROR,
    Outcome.TIMEOUT,
    Outcome.QUARANTINED,
    Outcome.INCORRECT,
    Outcome.CORRECT,
)
"""From bad to good: how far a kernel came."""


class HistoryConfig(Settings):
    """What a later turn sees of the turns before it, each a kernel with its summary and evaluation."""

    view: HistoryView = "all"
    """``all``: every kernel in order (the paper). ``fastest_and_last``: the fastest correct kernel so far, then the
    last one. ``best_and_worst``: the worst kernel, then the three best, the best of all last; no kernel twice.
    ``best``: the best kernel so far and no other. ``fastest``: the fastest correct kernel so far and no other; until
    one is correct, every turn is a first one. An own base model learns from transcripts in this view, or in that of
    ``base_model.history``."""

    @property
    def is_whole(self) -> bool:
        """Whether a prompt holds every earlier turn, so that those of a trajectory continue each other."""
        return self.view == "all"

    def shown(self, past: Sequence[Turn]) -> list[Turn]:
        """Of ``past`` (in order) what stands in the next prompt, in its order there."""
        if self.is_whole or not past:
            return list(past)
        correct = [t for t in past if t.speedup is not None]
        fastest = max(correct, key=lambda t: t.speedup or 0.0, default=None)
        if self.view == "fastest":
            return [fastest] if fastest else []
        if self.view == "fastest_and_last":
            return [past[-1]] if fastest is None or fastest is past[-1] else [fastest, past[-1]]
        ranked = ranking(past)
        if self.view == "best":
            return ranked[-1:] or [past[-1]]
        return ranked if len(ranked) <= NUM_BEST else [ranked[0], *ranked[-NUM_BEST:]]


def ranking(turns: Iterable[Turn]) -> list[Turn]:
    """Judged turns with different kernels, from the worst to the best: by how far they came, then by speedup.

    Of equal kernels the latest counts, among equals the later is the better one. Answers without code are left out
    where there is anything else.
    """
    judged = [t for t in turns if t.outcome is not None]
    by_kernel = {t.kernel.digest: t for t in judged if t.kernel is not None}
    kept = [t for t in judged if t.kernel is not None and by_kernel[t.kernel.digest] is t]
    return sorted(kept or judged[-1:], key=standing)


def standing(turn: Turn) -> tuple[int, float]:
    """Sorts judged turns from bad to good."""
    assert turn.outcome is not None, "a turn without a verdict has no standing"
    return _STANDING.index(turn.outcome), turn.speedup or 0.0
