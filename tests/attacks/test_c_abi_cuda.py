"""Attacks and honest controls in the c_abi dialect on a GPU, the rules switched off. Numbers as in docs/audit.md."""

from __future__ import annotations

import pytest

from kevin.core.types import Outcome
from kevin.judge.benchmarks.attacks.c_abi_cuda import ATTACKS, RELU

from .controls import C_ABI_CUDA as CONTROLS
from .modules import check_on_a_gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CONTROLS)
def test_control_passes(gpu_judge, name: str) -> None:
    verdict = gpu_judge(RELU, CONTROLS[name])
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)
    assert verdict.speedup is not None and verdict.speedup > 0


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_gains_nothing_and_the_next_kernel_is_judged(gpu_judge, name: str) -> None:
    check_on_a_gpu(gpu_judge, ATTACKS[name], "c_abi")
