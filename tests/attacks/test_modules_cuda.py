"""Attacks and controls in the `ModelNew` dialect on a GPU. Numbers as in docs/audit.md."""

from __future__ import annotations

import pytest

from kevin.core.types import Outcome
from kevin.judge.benchmarks.attacks import modules, modules_cuda
from kevin.judge.benchmarks.attacks.modules_cuda import DECOY, LARGE, OWN_KERNEL, PRODUCTS, SQUARE, SQUARE_OWN

from .controls import MODULES_CUDA as CONTROLS
from .modules import check_on_a_gpu

pytestmark = pytest.mark.gpu


ATTACKS = modules.ATTACKS | modules_cuda.ATTACKS


@pytest.mark.parametrize("name", CONTROLS)
def test_control_passes(gpu_judge, name: str) -> None:
    verdict = gpu_judge(LARGE, CONTROLS[name], dialect="load_inline")
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_gains_nothing(gpu_judge, name: str) -> None:
    check_on_a_gpu(gpu_judge, ATTACKS[name], "load_inline")


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
