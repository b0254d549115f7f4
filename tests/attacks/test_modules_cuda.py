"""Attacks and controls in the `ModelNew` dialect on a GPU. Numbers as in docs/judge.md."""

from __future__ import annotations

import pytest

from kevin.core.types import Outcome

from .modules import (
    ATTACKS,
    CONTROLS,
    HEAD,
    LINEAR,
    LINEAR_HONEST,
    RELU,
    STATEFUL,
    check_attack,
    check_ignored_bias,
)

pytestmark = pytest.mark.gpu

LARGE = RELU.replace("512, 2048", "8192, 4096")

ON_STREAM = HEAD.replace("class ModelNew", "side = torch.cuda.Stream()\nclass ModelNew")
GRAPH = """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None
    def forward(self, x):
        if self.graph is None:
            self.x = x.clone()
            torch.relu(self.x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = torch.relu(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.y.clone()
"""
JOINED = """        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = torch.relu(x)
        torch.cuda.current_stream().wait_stream(side)
        return y
"""

GPU_CONTROLS = {"a graph that reads live inputs": GRAPH, "a stream, joined": ON_STREAM + JOINED}
GPU_ATTACKS = {
    "a thread that fills the output later (3)": "import threading, time\n"
    + HEAD
    + "        y = torch.empty_like(x)\n"
    + "        def later():\n            time.sleep(0.002)\n            y.copy_(torch.relu(x))\n"
    + "        threading.Thread(target=later).start()\n        return y\n",
    "a graph's own buffer returned (24)": GRAPH.replace("self.y.clone()", "self.y"),
    "a graph of the first input (14)": GRAPH.replace("        self.x.copy_(x)\n", ""),
    "events rebound, cheap after call k (6, 10)": "import torch\ntorch.cuda.Event.elapsed_time = lambda *a: 1e-6\n"
    "torch.cuda.synchronize = lambda *a: None\n"
    + STATEFUL
    + "        self.calls += 1\n        return torch.relu(x) if self.calls < 6 else torch.empty_like(x)\n",
}
"""Outcome INCORRECT, all of them."""

SLOW = "".join(f"{line}\n" for line in ("        for _ in range(100):", "            y = torch.relu(x)"))
STREAMS = {
    "nobody waits for it (1)": ON_STREAM
    + f"        with torch.cuda.stream(side):\n{SLOW.replace('        ', '            ')}        return y\n",
    "it starts early and is joined (1)": ON_STREAM
    + f"        with torch.cuda.stream(side):\n{SLOW.replace('        ', '            ')}"
    + "        torch.cuda.current_stream().wait_stream(side)\n        return y\n",
}

OWN_KERNEL = '''
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = r"""
#include <torch/extension.h>
template <typename T> __global__ void relu_kernel(const T* x, T* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > T(0) ? x[i] : T(0);
}
torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "relu", [&] {
        relu_kernel<scalar_t><<<(x.numel() + 255) / 256, 256>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
    });
    return y;
}
"""
module = load_inline("own_relu", "torch::Tensor relu(torch::Tensor x);", source, functions=["relu"])
class ModelNew(nn.Module):
    def forward(self, x):
        return module.relu(x)
'''

SQUARE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x @ x)
def get_inputs():
    return [torch.randn(2048, 2048)]
def get_init_inputs():
    return []
"""
SQUARE_AND_RELU = (
    OWN_KERNEL.replace("torch::Tensor relu(", "torch::Tensor product(torch::Tensor x) { return torch::mm(x, x); }\n"
                       "torch::Tensor relu(", 1)
    .replace('"torch::Tensor relu(torch::Tensor x);"',
             '"torch::Tensor relu(torch::Tensor x); torch::Tensor product(torch::Tensor x);"')
    .replace('functions=["relu"]', 'functions=["relu", "product"]')
    .replace("module.relu(x)", "module.relu(CALL)")
)  # fmt: skip


@pytest.mark.parametrize("name", {**CONTROLS, **GPU_CONTROLS})
def test_control_passes(gpu_judge, name: str) -> None:
    verdict = gpu_judge(LARGE, {**CONTROLS, **GPU_CONTROLS}[name], dialect="load_inline")
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_fails(gpu_judge, name: str) -> None:
    check_attack(gpu_judge, name)


@pytest.mark.parametrize("name", GPU_ATTACKS)
def test_attack_on_the_gpu_fails(gpu_judge, name: str) -> None:
    verdict = gpu_judge(LARGE, GPU_ATTACKS[name], dialect="load_inline")
    assert verdict.outcome is Outcome.INCORRECT, (verdict.outcome, verdict.reason, verdict.message)


@pytest.mark.parametrize("name", STREAMS)
def test_work_on_another_stream_is_counted(gpu_judge, name: str) -> None:
    honest = gpu_judge(LARGE, HEAD + SLOW + "        return y\n", dialect="load_inline")
    verdict = gpu_judge(LARGE, STREAMS[name], dialect="load_inline")
    assert verdict.outcome in (Outcome.CORRECT, Outcome.INCORRECT, Outcome.QUARANTINED), verdict.message
    if verdict.outcome is Outcome.CORRECT:
        assert verdict.speedup < 2 * honest.speedup


def test_ignored_bias_is_found_out(gpu_judge) -> None:
    check_ignored_bias(gpu_judge)


def test_tf32_switched_on_is_found_out(gpu_judge) -> None:
    """(12, 30) global flags of the candidate's process: less precision than PyTorch's default."""
    source = f"import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n{LINEAR_HONEST}"
    assert gpu_judge(LINEAR, source, dialect="load_inline").outcome is Outcome.INCORRECT


@pytest.mark.slow
def test_own_kernels_are_proven_and_a_decoy_is_refused(gpu_judge) -> None:
    """(41) a kernel of its own that is built and never launched; the control uses AT_DISPATCH."""
    rules = ("torch_compute",)
    honest = gpu_judge(LARGE, OWN_KERNEL, dialect="load_inline", rules=rules)
    assert honest.outcome is Outcome.CORRECT, (honest.reason, honest.message)
    assert honest.details["own_kernel_share"] > 0.9
    decoy = OWN_KERNEL.replace("return module.relu(x)", "return getattr(torch, 'relu')(x)")
    verdict = gpu_judge(LARGE, decoy, dialect="load_inline", rules=rules)
    assert verdict.outcome is Outcome.REFUSED, (verdict.reason, verdict.message)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["getattr(torch, 'matmul')(x, x)", "module.product(x)"])
def test_a_kernel_for_the_look_of_it_beside_a_librarys_product_is_refused(gpu_judge, call: str) -> None:
    """(42) in Python, hidden from a look at the source, and in C++."""
    kernel = SQUARE_AND_RELU.replace("CALL", call)
    verdict = gpu_judge(SQUARE, kernel, dialect="load_inline", rules=("torch_compute",))
    assert (verdict.outcome, verdict.reason) == (Outcome.REFUSED, "library_kernels"), verdict.message
    measured = gpu_judge(SQUARE, kernel, dialect="load_inline", rules=())
    assert measured.outcome is Outcome.CORRECT, measured.message
    assert "torch_compute" in measured.flags and 0 < measured.details["own_kernel_share"] < 0.5


@pytest.mark.slow
def test_launch_bounds_do_not_hide_whose_a_kernel_is(gpu_judge) -> None:
    source = OWN_KERNEL.replace("__global__ void", "__global__ void __launch_bounds__(256)")
    assert source != OWN_KERNEL
    verdict = gpu_judge(LARGE, source, dialect="load_inline", rules=("torch_compute",))
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)
