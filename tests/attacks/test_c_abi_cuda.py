"""Attacks and honest controls in the c_abi dialect on a GPU, the rules switched off. Numbers as in docs/audit.md."""

from __future__ import annotations

import pytest

from kevin.core.types import Outcome
from kevin.judge.benchmarks.attacks.c_abi_cuda import (
    ARGMAX,
    ARGMAX_KERNEL,
    ATTACKS,
    CONTROLS,
    PLAIN,
    RELU,
    SOFTMAX,
    STREAMS,
    ZEROS,
)

from .modules import check

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CONTROLS)
def test_control_passes(gpu_judge, name: str) -> None:
    verdict = gpu_judge(RELU, CONTROLS[name])
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)
    assert verdict.speedup is not None and verdict.speedup > 0


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_fails_and_the_next_kernel_is_judged(gpu_judge, name: str) -> None:
    check(ATTACKS[name], gpu_judge(RELU, ATTACKS[name].source))
    assert gpu_judge(RELU, PLAIN).outcome is Outcome.CORRECT


@pytest.mark.parametrize("name", STREAMS)
def test_work_on_another_stream_is_counted(gpu_judge, name: str) -> None:
    honest, verdict = gpu_judge(RELU, CONTROLS["slow"]), gpu_judge(RELU, STREAMS[name].source)
    assert verdict.outcome in (Outcome.CORRECT, Outcome.INCORRECT, Outcome.QUARANTINED), verdict.message
    if verdict.outcome is Outcome.CORRECT:
        assert verdict.speedup < 2 * honest.speedup


def test_zeros_for_tiny_values(gpu_judge) -> None:
    """(26) every output is below the absolute tolerance."""
    assert gpu_judge(SOFTMAX, ZEROS).outcome is Outcome.INCORRECT


def test_tuple_with_integer_output(gpu_judge) -> None:
    assert gpu_judge(ARGMAX, ARGMAX_KERNEL).outcome is Outcome.CORRECT
    assert gpu_judge(ARGMAX, ARGMAX_KERNEL.replace("out1[r] = best", "out1[r] = best + 1")).outcome is Outcome.INCORRECT
