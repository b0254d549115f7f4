"""What tests of `ModelNew` modules on CPU and GPU share. The modules: `kevin.judge.benchmarks.attacks.modules`."""

from __future__ import annotations

from collections.abc import Callable

from kevin.core.types import Outcome, Verdict
from kevin.judge.benchmarks.attacks import Attack
from kevin.judge.benchmarks.attacks.modules import ATTACKS, LINEAR, LINEAR_HONEST, LINEAR_IGNORES_BIAS


def check(attack: Attack, verdict: Verdict) -> None:
    """The verdict is one that the attack may get."""
    assert attack.may_get(verdict.outcome, verdict.reason), (verdict.outcome, verdict.reason, verdict.message)


def check_attack(judge: Callable[..., Verdict], name: str) -> None:
    """The rules are off, so that the measurement alone has to catch it."""
    attack = ATTACKS[name]
    check(attack, judge(attack.reference, attack.source, dialect="load_inline"))


def check_ignored_bias(judge: Callable[..., Verdict]) -> None:
    """(33) parameters with the reference's names are given other values in some trials."""
    assert judge(LINEAR, LINEAR_HONEST, dialect="load_inline").outcome is Outcome.CORRECT
    assert judge(LINEAR, LINEAR_IGNORES_BIAS, dialect="load_inline").outcome is Outcome.INCORRECT
