"""Every attack that was tried on the judge, as data: tests judge them, `kevin bench attacks` makes a table of them."""

from __future__ import annotations

from kevin.core.protocol import Rule
from kevin.core.types import Dialect, Frozen, Kernel, Language, Outcome

WRONG = (Outcome.INCORRECT,)
ERROR = (Outcome.RUNTIME_ERROR,)


class Attack(Frozen):
    """A hostile kernel, and an honest one for the same reference beside it, which must pass."""

    tries: str
    """What would make it paid, if it worked."""
    reference: str
    source: str
    control: str
    """Source of the honest kernel, of the same dialect."""
    outcomes: tuple[Outcome, ...]
    """What the judge may find; with `Outcome.CORRECT` among them the attack is harmless, and gains nothing."""
    reasons: tuple[str, ...] = ()
    """What its reason may be; any when empty."""
    rules: tuple[Rule, ...] = ()
    """Enforced on it and on its control; by default none, so that it must fall to the measurement alone."""


class Suite(Frozen):
    """Attacks in one dialect and language, by name. Numbers in brackets are kinds, see docs/audit.md."""

    name: str
    dialect: Dialect
    language: Language
    attacks: dict[str, Attack]

    def kernel(self, source: str) -> Kernel:
        return Kernel(dialect=self.dialect, language=self.language, source=source)


def attack(
    tries: str,
    source: str,
    outcomes: tuple[Outcome, ...] = WRONG,
    *reasons: str,
    reference: str,
    control: str,
    rules: tuple[Rule, ...] = (),
) -> Attack:
    """As they are written down, one after the other; `functools.partial` gives what most of a suite share."""
    return Attack(
        tries=tries,
        reference=reference,
        source=source,
        control=control,
        outcomes=outcomes,
        reasons=reasons,
        rules=rules,
    )
