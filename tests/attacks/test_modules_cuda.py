"""Attacks and controls in the `ModelNew` dialect on a GPU. Numbers as in docs/audit.md."""

from __future__ import annotations

import pytest

from kevin.core.types import Outcome
from kevin.judge.benchmarks.attacks.modules import ATTACKS, CONTROLS, LINEAR
from kevin.judge.benchmarks.attacks.modules_cuda import ATTACKS as GPU_ATTACKS
from kevin.judge.benchmarks.attacks.modules_cuda import CONTROLS as GPU_CONTROLS
from kevin.judge.benchmarks.attacks.modules_cuda import (
    DECOY,
    LARGE,
    OWN_KERNEL,
    PRODUCTS,
    SLOW_MODULE,
    SQUARE,
    SQUARE_OWN,
    STREAMS,
    TF32,
)

from .modules import check, check_attack, check_ignored_bias

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", {**CONTROLS, **GPU_CONTROLS})
def test_control_passes(gpu_judge, name: str) -> None:
    verdict = gpu_judge(LARGE, {**CONTROLS, **GPU_CONTROLS}[name], dialect="load_inline")
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_fails(gpu_judge, name: str) -> None:
    check_attack(gpu_judge, name)


@pytest.mark.parametrize("name", GPU_ATTACKS)
def test_attack_on_the_gpu_fails(gpu_judge, name: str) -> None:
    check(GPU_ATTACKS[name], gpu_judge(LARGE, GPU_ATTACKS[name].source, dialect="load_inline"))


@pytest.mark.parametrize("name", STREAMS)
def test_work_on_another_stream_is_counted(gpu_judge, name: str) -> None:
    honest = gpu_judge(LARGE, SLOW_MODULE, dialect="load_inline")
    verdict = gpu_judge(LARGE, STREAMS[name].source, dialect="load_inline")
    assert verdict.outcome in (Outcome.CORRECT, Outcome.INCORRECT, Outcome.QUARANTINED), verdict.message
    if verdict.outcome is Outcome.CORRECT:
        assert verdict.speedup < 2 * honest.speedup


def test_ignored_bias_is_found_out(gpu_judge) -> None:
    check_ignored_bias(gpu_judge)


def test_tf32_switched_on_is_found_out(gpu_judge) -> None:
    """(12, 30) global flags of the candidate's process: less precision than PyTorch's default."""
    assert gpu_judge(LINEAR, TF32, dialect="load_inline").outcome is Outcome.INCORRECT


@pytest.mark.slow
def test_own_kernels_are_proven_and_a_decoy_is_refused(gpu_judge) -> None:
    """(41) a kernel of its own that is built and never launched; the control uses AT_DISPATCH."""
    rules = ("torch_compute",)
    honest = gpu_judge(LARGE, OWN_KERNEL, dialect="load_inline", rules=rules)
    assert honest.outcome is Outcome.CORRECT, (honest.reason, honest.message)
    assert honest.details["own_kernel_share"] > 0.9
    verdict = gpu_judge(LARGE, DECOY, dialect="load_inline", rules=rules)
    assert verdict.outcome is Outcome.REFUSED, (verdict.reason, verdict.message)


@pytest.mark.slow
@pytest.mark.parametrize("how", PRODUCTS, ids=["getattr(torch, 'matmul')(x, x)", "module.product(x)"])
def test_a_kernel_for_the_look_of_it_beside_a_librarys_product_is_refused(gpu_judge, how: str) -> None:
    """(42) in Python, hidden from a look at the source, and in C++."""
    kernel = PRODUCTS[how]
    verdict = gpu_judge(SQUARE, kernel, dialect="load_inline", rules=("torch_compute",))
    assert (verdict.outcome, verdict.reason) == (Outcome.REFUSED, "library_kernels"), verdict.message
    measured = gpu_judge(SQUARE, kernel, dialect="load_inline", rules=())
    assert measured.outcome is Outcome.CORRECT, measured.message
    assert "torch_compute" in measured.flags and 0 < measured.details["own_kernel_share"] < 0.5


@pytest.mark.slow
def test_an_honest_product_of_its_own(gpu_judge) -> None:
    verdict = gpu_judge(SQUARE, SQUARE_OWN, dialect="load_inline", rules=("torch_compute",))
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


@pytest.mark.slow
def test_launch_bounds_do_not_hide_whose_a_kernel_is(gpu_judge) -> None:
    source = OWN_KERNEL.replace("__global__ void", "__global__ void __launch_bounds__(256)")
    assert source != OWN_KERNEL
    verdict = gpu_judge(LARGE, source, dialect="load_inline", rules=("torch_compute",))
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)
