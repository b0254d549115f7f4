"""What becomes known of one candidate while it is judged."""

from __future__ import annotations

from kevin.core.protocol import Flag, Rule
from kevin.core.types import Frozen, Outcome, Round, Timing
from kevin.judge.correctness.compare import Comparison


class Measured(Frozen):
    kernel: Timing
    reference: Timing
    rounds: tuple[Round, ...]
    clock_us: float | None = None
    """Of a call by the cell's clock, where that is less than calls in a row were found to take, which counts."""
    num_left_out: int = 0
    """Rounds that do not count, since other work disturbed them."""
    num_looked_at: int = 0
    """Timed calls whose outputs were compared with what was expected of them."""
    leaked_bytes: int = 0
    """That it keeps more with every call; 0 where none were seen."""
    is_disturbed: bool = False
    """Too few rounds had the core to themselves: times are those of all, without the waiting for it."""


class Findings:
    """What is known so far of one candidate; mutable only while it is being judged. ``rules``: those enforced."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.outcome = Outcome.RUNTIME_ERROR
        self.reason: str | None = None
        self.message = ""
        self.trials_passed = 0
        self.max_abs_error: float | None = None
        self.max_rel_error: float | None = None
        self.measured: Measured | None = None
        self.seconds: dict[str, float] = {}
        self.details: dict[str, float | int | str | None] = {}
        self.flags: set[Flag] = set()
        """What is told beside the outcome: rules that what ran has broken, beside those that its source breaks."""

    def add(self, result: Comparison) -> None:
        for name in ("max_abs_error", "max_rel_error"):
            new, old = getattr(result, name), getattr(self, name)
            if new is not None and (old is None or new > old):
                setattr(self, name, new)
