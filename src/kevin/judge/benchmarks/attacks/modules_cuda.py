"""Attacks and controls in the `ModelNew` dialect that need a GPU."""

from __future__ import annotations

from functools import partial

from kevin.judge.benchmarks.attacks import Attack
from kevin.judge.benchmarks.attacks.modules import HEAD, LINEAR, LINEAR_HONEST, PLAIN, RELU, body, forward, stateful

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
SLOW = ("for _ in range(100):", "    y = torch.relu(x)")
SLOW_ON_STREAM = ON_STREAM + body("with torch.cuda.stream(side):", *(f"    {line}" for line in SLOW))
SLOW_MODULE = forward(*SLOW, "return y")

_attack = partial(Attack, reference=LARGE, control=PLAIN)


ATTACKS: dict[str, Attack] = {
    "a thread that fills the output later (3)": _attack(
        "computes in a thread, after it has returned",
        "import threading, time\n"
        + forward(
            "y = torch.empty_like(x)",
            "def later():",
            "    time.sleep(0.002)",
            "    y.copy_(torch.relu(x))",
            "threading.Thread(target=later).start()",
            "return y",
        ),
    ),
    "a graph's own buffer returned (24)": _attack(
        "returns the same memory from every call", GRAPH.replace("self.y.clone()", "self.y"), control=GRAPH
    ),
    "a graph of the first input (14)": _attack(
        "replays what it computed of its first input", GRAPH.replace("        self.x.copy_(x)\n", ""), control=GRAPH
    ),
    "events rebound, cheap after call k (6, 10)": _attack(
        "replaces the clock that it is timed with, and computes nothing after the checks",
        "import torch\ntorch.cuda.Event.elapsed_time = lambda *a: 1e-6\n"
        "torch.cuda.synchronize = lambda *a: None\n"
        + stateful("self.calls += 1", "return torch.relu(x) if self.calls < 6 else torch.empty_like(x)"),
    ),
    "the cell's clock rebound, and a memo of the last call (6, 16)": _attack(
        "replaces the clock that it is timed with, and returns what the last call did where that had the same input",
        "import sys\nsys.modules['cuda'].Gpu._elapsed_us = lambda self: 100.0\n"
        + stateful(
            "if x.data_ptr() != self.calls:",
            *(f"    {line}" for line in SLOW),
            "    self.calls, self.y = x.data_ptr(), y",
            "return self.y",
        ),
        "incorrect, quarantined",
        control=SLOW_MODULE,
    ),
    # slow work on a stream of its own: either its result is wrong, or its time is counted
    "a stream: nobody waits for it (1)": _attack(
        "works on a stream that nobody waits for",
        SLOW_ON_STREAM + body("return y"),
        "correct, incorrect, quarantined",
        control=SLOW_MODULE,
    ),
    "a stream: it starts early and is joined (1)": _attack(
        "works before the clock starts",
        SLOW_ON_STREAM + body("torch.cuda.current_stream().wait_stream(side)", "return y"),
        "correct, incorrect, quarantined",
        control=SLOW_MODULE,
    ),
    "tf32 switched on (12, 30)": _attack(
        "has PyTorch multiply with less precision",
        f"import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n{LINEAR_HONEST}",
        reference=LINEAR,
        control=LINEAR_HONEST,
    ),
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
DECOY = OWN_KERNEL.replace("return module.relu(x)", "return getattr(torch, 'relu')(x)")
PRODUCTS = {
    "hidden in Python": SQUARE_AND_RELU.replace("CALL", "getattr(torch, 'matmul')(x, x)"),
    "called in C++": SQUARE_AND_RELU.replace("CALL", "module.product(x)"),
}
SQUARE_OWN = OWN_KERNEL.replace(
    "torch::Tensor relu(torch::Tensor x) {",
    """__global__ void product_kernel(const float* x, float* y, int n) {
    int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[(int64_t)row * n + i] * x[(int64_t)i * n + column];
    y[(int64_t)row * n + column] = sum > 0 ? sum : 0;
}
torch::Tensor relu(torch::Tensor x) {
    if (x.size(0) == x.size(1) && x.size(0) % 16 == 0) {
        auto product = torch::empty_like(x);
        product_kernel<<<dim3(x.size(0) / 16, x.size(0) / 16), dim3(16, 16)>>>(
            x.data_ptr<float>(), product.data_ptr<float>(), x.size(0));
        return product;
    }""",
    1,
)
"""An honest product of its own; its relu is in the same kernel."""

PROVEN: dict[str, Attack] = {
    "a decoy (41)": _attack(
        "builds a kernel of its own, and has PyTorch compute",
        DECOY,
        "refused",
        control=OWN_KERNEL,
        rules=("torch_compute",),
    ),
    **{
        f"a product of the library's, {how} (42)": _attack(
            "adds a kernel of its own to a library's product",
            source,
            "refused: library_kernels",
            reference=SQUARE,
            control=SQUARE_OWN,
            rules=("torch_compute",),
        )
        for how, source in PRODUCTS.items()
    },
}
"""On a GPU it is proven whose kernels ran."""
