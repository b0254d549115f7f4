"""Attacks and honest controls on a GPU, the rules switched off. Numbers as in docs/audit.md."""

from __future__ import annotations

import pytest

from kevin.core.types import Outcome
from kevin.judge.benchmarks.attacks import c_abi_cuda, modules, modules_cuda
from kevin.judge.benchmarks.attacks.modules_cuda import DECOY, LARGE, OWN_KERNEL, PRODUCTS, SQUARE, SQUARE_OWN

from .conftest import check_attack
from .controls import C_ABI_CUDA, MODULES_CUDA

pytestmark = pytest.mark.gpu

CONTROLS = {"c_abi": (c_abi_cuda.RELU, C_ABI_CUDA), "load_inline": (LARGE, MODULES_CUDA)}
ATTACKS = {"c_abi": c_abi_cuda.ATTACKS, "load_inline": modules.ATTACKS | modules_cuda.ATTACKS}


@pytest.mark.parametrize(("dialect", "name"), [(d, name) for d, (_, kernels) in CONTROLS.items() for name in kernels])
def test_control_passes(gpu_judge, dialect: str, name: str) -> None:
    reference, kernels = CONTROLS[dialect]
    verdict = gpu_judge(reference, kernels[name], dialect=dialect)
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)
    assert verdict.speedup is not None and verdict.speedup > 0


def test_an_expanded_input_has_room_for_its_contiguous_form(gpu_judge) -> None:
    task = c_abi_cuda.RELU.replace("randn(4096, 4096)", "randn(4096).expand(4096, 4096)")
    verdict = gpu_judge(task, c_abi_cuda.PLAIN)
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


def test_a_flag_is_given_to_a_launcher(gpu_judge) -> None:
    task = c_abi_cuda.RELU.replace("(self, x)", "(self, x, flag)").replace("4096)]", "4096), True]")
    launch = c_abi_cuda.HEAD.replace("float* out", "bool flag, float* out")
    verdict = gpu_judge(task, f"{c_abi_cuda.KERNEL}{launch} {{ if (flag) {c_abi_cuda.RUN} }}")
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


@pytest.mark.parametrize(("dialect", "name"), [(d, name) for d, attacks in ATTACKS.items() for name in attacks])
def test_attack_gains_nothing_and_the_next_kernel_is_judged(gpu_judge, dialect: str, name: str) -> None:
    """The honest kernel after it is right, and what is counted as right is not much faster."""
    attack = ATTACKS[dialect][name]
    verdict = check_attack(gpu_judge, attack, dialect)
    honest = gpu_judge(attack.reference, attack.control, dialect=dialect, rules=attack.rules)
    assert honest.outcome is Outcome.CORRECT, (honest.reason, honest.message)
    if verdict.outcome is Outcome.CORRECT:
        assert verdict.speedup is not None and honest.speedup is not None and verdict.speedup < 2 * honest.speedup


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
