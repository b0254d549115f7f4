"""Every attack that was tried on the judge, as data: tests judge them, `kevin bench attacks` makes a table of them."""

from __future__ import annotations

from dataclasses import dataclass

from kevin.core.protocol import Rule
from kevin.core.types import Outcome


@dataclass(frozen=True)
class Attack:
    """A hostile kernel, and an honest one for the same reference beside it, which must pass.

    `functools.partial` gives what most of a module share. Numbers in brackets are kinds, see docs/audit.md.
    """

    tries: str
    """What would make it paid, if it worked."""
    source: str
    expect: str = "incorrect"
    """What the judge may find: outcomes, and behind a colon their reasons, any where there is none. With ``correct``
    among them the attack is harmless, and gains nothing."""
    rules: tuple[Rule, ...] = ()
    """Enforced on it and on its control; by default none, so that it must fall to the measurement alone."""
    reference: str = ""
    control: str = ""
    """Source of the honest kernel, of the same dialect."""

    def may_get(self, outcome: Outcome, reason: str | None) -> bool:
        outcomes, _, reasons = self.expect.partition(": ")
        return outcome in outcomes.split(", ") and (not reasons or reason in reasons.split(", "))
