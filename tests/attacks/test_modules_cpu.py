"""Attacks and controls in the `ModelNew` dialect on the CPU."""

from __future__ import annotations

import pytest

from kevin.core.types import Outcome

from .modules import ATTACKS, CONTROLS, LINEAR, LINEAR_IGNORES_BIAS, RELU


@pytest.mark.parametrize("name", CONTROLS)
def test_control_passes(judge, name: str) -> None:
    verdict = judge(RELU, CONTROLS[name], dialect="load_inline")
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_fails(judge, name: str) -> None:
    source, outcome, reasons = ATTACKS[name]
    verdict = judge(RELU, source, dialect="load_inline")
    assert verdict.outcome is outcome, (verdict.reason, verdict.message)
    assert reasons is None or verdict.reason in reasons, verdict.message


def test_ignored_bias_is_found_out(judge) -> None:
    """(33) parameters with the reference's names are given other values in some trials."""
    honest = LINEAR_IGNORES_BIAS.replace("linear.weight.T", "linear.weight.T + self.linear.bias")
    assert judge(LINEAR, honest, dialect="load_inline").outcome is Outcome.CORRECT
    assert judge(LINEAR, LINEAR_IGNORES_BIAS, dialect="load_inline").outcome is Outcome.INCORRECT


def test_late_thread_cannot_be_started(judge) -> None:
    """(3) a Python thread that fills the output after forward has returned."""
    source = (
        "import threading\nimport torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
        "        y = torch.empty_like(x)\n"
        "        threading.Thread(target=lambda: y.copy_(torch.relu(x))).start()\n        return y\n"
    )
    assert judge(RELU, source, dialect="load_inline").outcome is Outcome.RUNTIME_ERROR
