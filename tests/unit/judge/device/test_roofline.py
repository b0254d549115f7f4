"""Where a kernel stands against its device, and what its author is told of it."""

from __future__ import annotations

import pytest
from core_fixtures import make_module, make_verdict
from torch.utils.flop_counter import FlopCounterMode

from kevin.core.dialogue import verdict_feedback
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Outcome, Task
from kevin.judge.compile.native import compiler_excerpt, resources_used, without_resources
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.device.roofline import Peaks, count_flops, roofline
from kevin.tasks.format import inspect_task

LINEAR = make_module("return self.linear(x)", "torch.randn(8, 32)", "self.linear = torch.nn.Linear(32, 16)")

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1aPf' for 'sm_90'
ptxas info    : Function properties for _Z1aPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers, 540 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1bPf' for 'sm_90'
ptxas info    : Function properties for _Z1bPf
    96 bytes stack frame, 128 bytes spill stores, 132 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 96 bytes cumulative stack size, 4096 bytes smem
"""


def test_a_linear_layer_by_hand() -> None:
    spec = inspect_task(LINEAR, "test")
    task = Task(id="test", level=1, name="test", source=LINEAR, origin="user", spec=spec)
    assert spec.num_bytes == 4 * (8 * 32 + 16 * 32 + 16 + 8 * 16)
    num_flops = count_flops(ReferenceTask(task, JudgeProtocol()))
    assert num_flops == 2 * 8 * 32 * 16
    shares = roofline(spec, num_flops, 2.0, Peaks(bytes_per_us=10_000, flops_per_us=81_920))
    assert shares == {"bandwidth_share": pytest.approx(3648 / 20_000), "flop_share": pytest.approx(0.05)}
    assert "flop_share" not in roofline(spec, 0, 2.0, Peaks(bytes_per_us=1, flops_per_us=1))


MANY = """
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
        self.back = nn.ConvTranspose2d(8, 4, 3, stride=2)
        self.linear = nn.Linear(9, 6)
    def forward(self, x):
        x = self.linear(self.back(torch.relu(self.conv(x))))
        x = F.scaled_dot_product_attention(x, x, x)
        return torch.einsum("bchw,bcvw->bchv", x, x) * torch.matmul(x, x.transpose(-1, -2)).mean()
def get_inputs():
    return [torch.randn(2, 4, 4, 4)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("source", [LINEAR, MANY])
def test_products_are_counted_as_pytorch_counts_them(source: str) -> None:
    task = Task(id="test", level=1, name="test", source=source, origin="user", spec=inspect_task(source, "test"))
    reference = ReferenceTask(task, JudgeProtocol())
    trial = reference.trials[0]
    with FlopCounterMode(display=False) as counter:
        reference.forward(trial.inputs, trial.parameters)
    assert count_flops(reference) == counter.get_total_flops() > 0


def test_the_compilers_words() -> None:
    assert resources_used(PTXAS) == {"registers": 255, "spilled_bytes": 128, "shared_bytes": 4096}
    assert resources_used("") == {}
    error = "ptxas error   : Entry function '_Z1bPf' uses too much shared data"
    assert without_resources(f"{PTXAS}{error}\n") == error
    warning = "kernel.cu(3): warning #20012-D: something else\n  int x;\n      ^\n"
    assert compiler_excerpt(without_resources(f"{warning}{error}\n{PTXAS}")) == error
    error = 'kernel.cu(5): error: expected a ";"\n  }\n  ^'
    assert compiler_excerpt(f'{error}\n\n1 error detected in the compilation of "kernel.cu".\n').strip() == error


def test_the_author_is_told_only_on_request_and_only_when_correct() -> None:
    details = {"bandwidth_share": 0.12345, "registers": 255, "spilled_bytes": 128, "isolation": "none"}
    verdict = make_verdict(Outcome.CORRECT, kernel_us=2.0, eager_us=2.0, details=details)
    assert verdict_feedback(verdict, with_profile=True) == (
        "Correct, 1x the speed of PyTorch. It can be faster. It reaches 12 % of the memory bandwidth. "
        "It uses 255 registers a thread, 128 bytes spilled."
    )
    profiled = {"achieved_occupancy_share": 0.2437, "stalls": "global memory 81%, stores 10%"}
    assert verdict_feedback(verdict.model_copy(update={"details": profiled}), with_profile=True) == (
        "Correct, 1x the speed of PyTorch. It can be faster. Of the warps that a multiprocessor holds 24 % are active. "
        "Warps wait for global memory 81%, stores 10%."
    )
    assert verdict_feedback(verdict) == "Correct, 1x the speed of PyTorch. It can be faster."
    wrong = verdict.model_copy(update={"outcome": Outcome.INCORRECT, "message": "off by one"})
    assert verdict_feedback(wrong, with_profile=True) == "Correctness error: off by one"
