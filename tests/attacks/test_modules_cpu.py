"""Attacks and controls in the `ModelNew` dialect on the CPU."""

from __future__ import annotations

import pytest

from kevin.core.types import Outcome
from kevin.judge.benchmarks.attacks.modules import (
    ATTACKS,
    CPU_ONLY,
    FIRST_HALF_ZERO,
    HALF_OF_512,
    HEAD,
    LINEAR,
    LINEAR_HONEST,
    RELU,
    SWALLOWED,
    TWO_OF_ONE_NAME,
    WHEN_MADE,
)

from .conftest import check_attack
from .controls import MODULES as CONTROLS

pytestmark = pytest.mark.timing


@pytest.mark.parametrize("name", CONTROLS)
def test_control_passes(judge, name: str) -> None:
    verdict = judge(RELU, CONTROLS[name], dialect="load_inline")
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


@pytest.mark.parametrize("name", ATTACKS | CPU_ONLY)
def test_attack_gains_nothing(judge, name: str) -> None:
    check_attack(judge, (ATTACKS | CPU_ONLY)[name], "load_inline")


def test_the_honest_kernel_beside_an_ignored_bias_passes(judge) -> None:
    assert judge(LINEAR, LINEAR_HONEST, dialect="load_inline").outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("reference", "body", "outcome", "check"),
    [
        (RELU, "return torch.relu(x)", Outcome.CORRECT, "passed"),
        (RELU, "return x", Outcome.INCORRECT, "failed"),
        (RELU, "return x.relu_()", Outcome.INCORRECT, "passed"),
        (RELU.replace("randn", "rand"), "return x.clone()", Outcome.INCORRECT, "passed"),
        (RELU.replace("relu(x)", "relu(x) * 1000"), "return torch.relu(x) * 1000 + 0.05", Outcome.CORRECT, "failed"),
        (RELU, "return torch.relu(x).half()", Outcome.INCORRECT, None),
    ],
    ids=["right", "wrong", "in place", "right for its inputs", "right at its magnitude", "nothing to compare"],
)
def test_kernelbenchs_own_check_stands_beside_the_verdict(
    judge, reference: str, body: str, outcome: Outcome, check: str | None
) -> None:
    verdict = judge(reference, f"{HEAD}        {body}\n", dialect="load_inline")
    assert (verdict.outcome, verdict.details.get("kernelbench_check")) == (outcome, check), verdict.message


FOR_512_ROWS = (
    HEAD
    + """
        y = torch.empty(512, 2048)
        torch.maximum(x, torch.zeros(512, 2048), out=y)
        return y
"""
)
PICK = (
    RELU.replace("(self, x)", "(self, x, i)")
    .replace("torch.relu(x)", "torch.relu(x)[i]")
    .replace("[torch.randn(512, 2048)]", "[torch.randn(512, 2048), torch.randint(512, (512,))]")
)
PRODUCT = (
    RELU.replace("(self, x)", "(self, x, w)")
    .replace("torch.relu(x)", "x @ w")
    .replace("[torch.randn(512, 2048)]", "[torch.randn(256, 256), torch.randn(256, 256)]")
)


@pytest.mark.parametrize(
    ("reference", "source", "found"),
    [
        (RELU, CONTROLS["plain"], "passed"),
        (RELU, FOR_512_ROWS, "exception"),
        (FIRST_HALF_ZERO, HALF_OF_512, "wrong_values"),
        (PRODUCT, HEAD.replace("(self, x)", "(self, x, w)") + "        return x @ w\n", "passed"),
        (PICK, HEAD.replace("(self, x)", "(self, x, i)") + "        return torch.relu(x)[i]\n", None),
    ],
    ids=["any size", "another size fails", "another size is wrong", "a product", "integers may be indices"],
)
def test_what_is_right_for_its_own_sizes_only_is_flagged(judge, reference: str, source: str, found: str | None) -> None:
    """(31) KernelBench's tasks have one size each, so a kernel may be made for it: it is refused only on request."""
    verdict = judge(reference, source, dialect="load_inline")
    assert (verdict.outcome, verdict.details.get("fewer_rows")) == (Outcome.CORRECT, found), verdict.message
    assert ("fixed_shapes" in verdict.flags) == (found not in ("passed", None))
    if found == "wrong_values":
        strict = judge(reference, source, dialect="load_inline", rules=("fixed_shapes",))
        assert (strict.outcome, strict.reason) == (Outcome.REFUSED, "fixed_shapes")


def test_two_extensions_of_one_name(judge) -> None:
    """Torch calls a later build of a name ``own_v1``, as it does when what the narrow headers lack is built anew."""
    verdict = judge(RELU, TWO_OF_ONE_NAME, dialect="load_inline")
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


WHEN_CALLED = WHEN_MADE.replace('extension("2").run', "None").replace(
    "        return torch", '        self.twice = self.twice or extension("2").run\n        return torch'
)


@pytest.mark.parametrize("source", [WHEN_MADE, WHEN_CALLED])
def test_an_extension_that_is_compiled_late(judge, source: str) -> None:
    verdict = judge(RELU, source, dialect="load_inline")
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


def test_a_failed_build_that_is_swallowed_is_measured_where_nobody_minds(judge) -> None:
    for _ in range(2):  # the second time its folder is there
        verdict = judge(RELU, SWALLOWED, dialect="load_inline")
        assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)
        assert "error" in verdict.details["failed_build"]
        strict = judge(RELU, SWALLOWED, dialect="load_inline", rules=("torch_compute",))
        assert (strict.outcome, strict.reason) == (Outcome.COMPILE_ERROR, "fallback_after_failed_build")
        assert "error" in strict.message


FOLDED = """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        with torch.no_grad():
            self.linear.bias.mul_(2.0)
    def forward(self, x):
        return x @ self.linear.weight.T + self.linear.bias * FACTOR
"""


@pytest.mark.parametrize(("factor", "outcome"), [("0.5", Outcome.CORRECT), ("0.25", Outcome.INCORRECT)])
def test_parameters_that_are_changed_when_the_model_is_made(judge, factor: str, outcome: Outcome) -> None:
    """Folding a constant into a bias is honest: KernelBench leaves parameters as they are made from the seed."""
    verdict = judge(LINEAR, FOLDED.replace("FACTOR", factor), dialect="load_inline")
    assert verdict.outcome is outcome, (verdict.reason, verdict.message)
    kept = "as made from the seed" if outcome is Outcome.CORRECT else None
    assert verdict.details.get("parameters") == kept
    assert verdict.details["kernelbench_check"] == ("passed" if outcome is Outcome.CORRECT else "failed")


def test_parameters_that_are_drawn_in_another_order(judge) -> None:
    """KernelBench would call it wrong; what it computes from its parameters is right."""
    source = LINEAR_HONEST.replace("        self.linear", "        torch.rand(3)\n        self.linear", 1)
    verdict = judge(LINEAR, source, dialect="load_inline")
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)
    assert verdict.details["kernelbench_check"] == "failed"
