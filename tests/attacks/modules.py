"""Hostile and honest `ModelNew` modules, written in plain PyTorch so that they cost no compiler: used on CPU and GPU.

Each attack is (source, expected outcome, expected reasons or None); the rules are off, so that the measurement alone
has to catch it. Numbers in brackets are those of the attack catalogue.
"""

from __future__ import annotations

from collections.abc import Callable

from kevin.core.types import Outcome, Verdict

RELU = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(512, 2048)]
def get_init_inputs():
    return []
"""

LINEAR = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.randn(256, 1024)]
def get_init_inputs():
    return [1024, 1024]
"""

HEAD = "import torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
STATEFUL = (
    "import torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.memo = {}\n        self.calls = 0\n"
    "    def forward(self, x):\n"
)


def _body(*lines: str) -> str:
    return "".join(f"        {line}\n" for line in lines)


CONTROLS = {
    "plain": HEAD + _body("return torch.relu(x)"),
    "slow_but_right": HEAD + _body("for _ in range(5): y = torch.relu(x)", "return y"),
    "in_place_on_own_buffer": HEAD + _body("y = x.clone()", "y.relu_()", "return y"),
    "tuple_of_one": HEAD + _body("return (torch.relu(x),)"),
    "parameters_under_other_names": HEAD.replace(
        "    def forward", "    def __init__(self):\n        super().__init__()\n        self.zero = nn.Parameter("
        "torch.zeros(1))\n    def forward"
    )
    + _body("return torch.maximum(x, self.zero)"),
}  # fmt: skip

ATTACKS: dict[str, tuple[str, Outcome, tuple[str, ...] | None]] = {
    "memo_by_data_ptr (14)": (
        STATEFUL
        + _body("k = x.data_ptr()", "if k not in self.memo: self.memo[k] = torch.relu(x)", "return self.memo[k]"),
        Outcome.INCORRECT,
        ("wrong_after_timing", "input_mutated"),
    ),
    "memo_by_shape (14)": (
        STATEFUL + _body("k = x.shape", "if k not in self.memo: self.memo[k] = torch.relu(x)", "return self.memo[k]"),
        Outcome.INCORRECT,
        None,
    ),
    "cheap_after_call_k (10)": (
        STATEFUL + _body("self.calls += 1", "return torch.relu(x) if self.calls < 6 else torch.empty_like(x)"),
        Outcome.INCORRECT,
        ("wrong_after_timing",),
    ),
    "static_buffer (24)": (
        STATEFUL
        + _body(
            "if 'b' not in self.memo: self.memo['b'] = torch.empty_like(x)",
            "torch.maximum(x, torch.zeros_like(x), out=self.memo['b'])",
            "return self.memo['b']",
        ),
        Outcome.INCORRECT,
        ("wrong_aliasing",),
    ),
    "empty_output (19)": (HEAD + _body("return torch.empty_like(x)"), Outcome.INCORRECT, None),
    "input_returned (24)": (HEAD + _body("return x"), Outcome.INCORRECT, None),
    "input_mutated (23)": (HEAD + _body("return x.relu_()"), Outcome.INCORRECT, ("input_mutated",)),
    "lazy_subclass (5)": (
        "import torch\nimport torch.nn as nn\nclass Lazy(torch.Tensor):\n    pass\n"
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x).as_subclass(Lazy)\n",
        Outcome.INCORRECT,
        ("wrong_type",),
    ),
    "overloaded_object (37)": (
        "import torch\nimport torch.nn as nn\nclass Yes:\n    shape = (512, 2048)\n    dtype = torch.float32\n"
        "    def __eq__(self, other): return True\n"
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        return Yes()\n",
        Outcome.INCORRECT,
        ("wrong_type",),
    ),
    "wrong_dtype (37)": (HEAD + _body("return torch.relu(x).half()"), Outcome.INCORRECT, ("wrong_dtype",)),
    "wrong_shape (37)": (HEAD + _body("return torch.relu(x)[:1]"), Outcome.INCORRECT, ("wrong_shape",)),
    "expanded_view (37)": (
        HEAD + _body("return torch.relu(x)[:1].expand(512, 2048)"),
        Outcome.INCORRECT,
        ("wrong_strides",),
    ),
    "half_precision_inside (30)": (HEAD + _body("return torch.relu(x.half()).float()"), Outcome.INCORRECT, None),
    "nan (36)": (HEAD + _body("return torch.relu(x) * float('nan')"), Outcome.INCORRECT, None),
    "sys_exit (45)": ("import sys\n" + HEAD + _body("sys.exit(0)"), Outcome.RUNTIME_ERROR, ("early_exit",)),
    "os_exit (45)": ("import os\n" + HEAD + _body("os._exit(0)"), Outcome.RUNTIME_ERROR, ("early_exit",)),
    "exit_at_import (45)": (
        "import os\nos._exit(0)\n" + HEAD + _body("return x"),
        Outcome.RUNTIME_ERROR,
        ("early_exit",),
    ),
    "clock_rebound (6)": (
        "import time\ntime.perf_counter_ns = lambda: 0\nimport torch\ntorch.cuda.synchronize = lambda *a: None\n"
        + STATEFUL
        + _body("self.calls += 1", "return torch.relu(x) if self.calls < 6 else torch.empty_like(x)"),
        Outcome.INCORRECT,
        None,
    ),
    "harness_redefined (25)": (
        "import sys\nsys.modules['candidate'].Model.store = lambda *a: None\n" + HEAD + _body("return None"),
        Outcome.RUNTIME_ERROR,
        ("exception",),
    ),
    "harness_and_its_checks_redefined (25)": (
        "import sys\nsys.modules['candidate'].Model.store = sys.modules['calls']._aliasing = lambda *a: None\n"
        + HEAD
        + _body("return None"),
        Outcome.INCORRECT,
        ("not_written",),
    ),
    "frame_walk (20)": (
        "import gc\n"
        + HEAD
        + _body(
            "same = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.shape == x.shape and t is not x]",
            "return same[-1] if same else torch.empty_like(x)",
        ),
        Outcome.INCORRECT,
        None,
    ),
    "exception": (HEAD + _body("raise ValueError('no')"), Outcome.RUNTIME_ERROR, ("exception",)),
    "endless_loop": (HEAD + _body("while True: y = 1"), Outcome.TIMEOUT, ("run_timeout",)),
    "no_model_new": ("import torch\n", Outcome.RUNTIME_ERROR, ("import_error",)),
    "syntax_error": ("def f(:\n", Outcome.COMPILE_ERROR, ("import_error",)),
}

LINEAR_IGNORES_BIAS = """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
    def forward(self, x):
        return x @ self.linear.weight.T
"""

LINEAR_HONEST = LINEAR_IGNORES_BIAS.replace("linear.weight.T", "linear.weight.T + self.linear.bias")


def check_attack(judge: Callable[..., Verdict], name: str) -> None:
    source, outcome, reasons = ATTACKS[name]
    verdict = judge(RELU, source, dialect="load_inline")
    assert verdict.outcome is outcome, (verdict.reason, verdict.message)
    assert reasons is None or verdict.reason in reasons, verdict.message


def check_ignored_bias(judge: Callable[..., Verdict]) -> None:
    """(33) parameters with the reference's names are given other values in some trials."""
    assert judge(LINEAR, LINEAR_HONEST, dialect="load_inline").outcome is Outcome.CORRECT
    assert judge(LINEAR, LINEAR_IGNORES_BIAS, dialect="load_inline").outcome is Outcome.INCORRECT
