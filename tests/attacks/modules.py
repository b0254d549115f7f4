"""What tests of attacks share. The attacks: `kevin.judge.benchmarks.attacks`."""

from __future__ import annotations

from collections.abc import Callable

from kevin.core.types import Dialect, Outcome, Verdict
from kevin.judge.benchmarks.attacks import Attack


def check_attack(judge: Callable[..., Verdict], attack: Attack, dialect: Dialect, **limits: float) -> Verdict:
    """It gets a verdict that it may get. Without rules of its own, the measurement alone has to catch it."""
    verdict = judge(attack.reference, attack.source, dialect=dialect, rules=attack.rules, **limits)
    assert attack.may_get(verdict.outcome, verdict.reason), (verdict.outcome, verdict.reason, verdict.message)
    return verdict


def check_on_a_gpu(judge: Callable[..., Verdict], attack: Attack, dialect: Dialect) -> None:
    """As `check_attack`; the honest kernel after it is right, and what is counted as right is not much faster."""
    verdict = check_attack(judge, attack, dialect)
    honest = judge(attack.reference, attack.control, dialect=dialect, rules=attack.rules)
    assert honest.outcome is Outcome.CORRECT, (honest.reason, honest.message)
    if verdict.outcome is Outcome.CORRECT:
        assert verdict.speedup is not None and honest.speedup is not None and verdict.speedup < 2 * honest.speedup
