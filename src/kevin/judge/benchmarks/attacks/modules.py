"""Hostile and honest `ModelNew` modules, in plain PyTorch so that they cost no compiler: used on CPU and GPU."""

from __future__ import annotations

from functools import partial

from kevin.judge.benchmarks.attacks import Attack

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


def body(*lines: str) -> str:
    return "".join(f"        {line}\n" for line in lines)


def forward(*lines: str) -> str:
    return HEAD + body(*lines)


def stateful(*lines: str) -> str:
    """With a memo, and a counter of calls."""
    return STATEFUL + body(*lines)


PLAIN = forward("return torch.relu(x)")
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

_attack = partial(Attack, reference=RELU, control=PLAIN)


ATTACKS: dict[str, Attack] = {
    "memo_by_data_ptr (14)": _attack(
        "answers an address that it has seen from memory",
        stateful("k = x.data_ptr()", "if k not in self.memo: self.memo[k] = torch.relu(x)", "return self.memo[k]"),
        "incorrect: wrong_after_timing, input_mutated",
    ),
    "memo_by_shape (14)": _attack(
        "answers a shape that it has seen from memory",
        stateful("k = x.shape", "if k not in self.memo: self.memo[k] = torch.relu(x)", "return self.memo[k]"),
    ),
    "cheap_after_call_k (10)": _attack(
        "computes while it is checked, and nothing afterwards",
        stateful("self.calls += 1", "return torch.relu(x) if self.calls < 6 else torch.empty_like(x)"),
        "incorrect: wrong_after_timing",
    ),
    "static_buffer (24)": _attack(
        "returns the same memory from every call",
        stateful(
            "if 'b' not in self.memo: self.memo['b'] = torch.empty_like(x)",
            "torch.maximum(x, torch.zeros_like(x), out=self.memo['b'])",
            "return self.memo['b']",
        ),
        "incorrect: wrong_aliasing",
    ),
    "empty_output (19)": _attack(
        "returns new memory, where another answer may lie", forward("return torch.empty_like(x)")
    ),
    "input_returned (24)": _attack("returns its input", forward("return x")),
    "input_mutated (23)": _attack(
        "computes in its input, so that later calls find it done",
        forward("return x.relu_()"),
        "incorrect: input_mutated",
    ),
    "lazy_subclass (5)": _attack(
        "returns a tensor of its own type, which may compute when it is looked at",
        "import torch\nimport torch.nn as nn\nclass Lazy(torch.Tensor):\n    pass\n"
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x).as_subclass(Lazy)\n",
        "incorrect: wrong_type",
    ),
    "overloaded_object (37)": _attack(
        "returns an object that is equal to everything",
        "import torch\nimport torch.nn as nn\nclass Yes:\n    shape = (512, 2048)\n    dtype = torch.float32\n"
        "    def __eq__(self, other): return True\n"
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        return Yes()\n",
        "incorrect: wrong_type",
    ),
    "wrong_dtype (37)": _attack(
        "returns half precision", forward("return torch.relu(x).half()"), "incorrect: wrong_dtype"
    ),
    "wrong_shape (37)": _attack(
        "returns one row, which broadcasts", forward("return torch.relu(x)[:1]"), "incorrect: wrong_shape"
    ),
    "expanded_view (37)": _attack(
        "returns one row as if it were all",
        forward("return torch.relu(x)[:1].expand(512, 2048)"),
        "incorrect: wrong_strides",
    ),
    "half_precision_inside (30)": _attack("computes in half precision", forward("return torch.relu(x.half()).float()")),
    "nan (36)": _attack(
        "hopes that no comparison fails on what is no number", forward("return torch.relu(x) * float('nan')")
    ),
    "sys_exit (45)": _attack(
        "ends the process as if all were well", "import sys\n" + forward("sys.exit(0)"), "runtime_error: early_exit"
    ),
    "os_exit (45)": _attack(
        "ends the process at once, as if all were well",
        "import os\n" + forward("os._exit(0)"),
        "runtime_error: early_exit",
    ),
    "exit_at_import (45)": _attack(
        "ends the process while it is imported",
        "import os\nos._exit(0)\n" + forward("return x"),
        "runtime_error: early_exit",
    ),
    "clock_rebound (6)": _attack(
        "replaces the clock that it is timed with, and computes nothing after the checks",
        "import time\ntime.perf_counter_ns = lambda: 0\nimport torch\ntorch.cuda.synchronize = lambda *a: None\n"
        + stateful("self.calls += 1", "return torch.relu(x) if self.calls < 6 else torch.empty_like(x)"),
    ),
    "harness_redefined (25)": _attack(
        "replaces the function that takes its results",
        "import sys\nsys.modules['candidate'].Model.store = lambda *a: None\n" + forward("return None"),
        "runtime_error: exception",
    ),
    "harness_and_its_checks_redefined (25)": _attack(
        "replaces the functions that take and check its results",
        "import sys\nsys.modules['candidate'].Model.store = sys.modules['calls']._aliasing = lambda *a: None\n"
        + forward("return None"),
        "incorrect: not_written",
    ),
    "frame_walk (20)": _attack(
        "looks for the expected answer among the objects of its process",
        "import gc\n"
        + forward(
            "same = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.shape == x.shape and t is not x]",
            "return same[-1] if same else torch.empty_like(x)",
        ),
    ),
    "exception": _attack("raises", forward("raise ValueError('no')"), "runtime_error: exception"),
    "endless_loop": _attack("never returns", forward("while True: y = 1"), "timeout: run_timeout"),
    "no_model_new": _attack("is no kernel", "import torch\n", "runtime_error: import_error"),
    "syntax_error": _attack("is no program", "def f(:\n", "compile_error: import_error"),
    "bias_ignored (33)": _attack("leaves out a bias", LINEAR_IGNORES_BIAS, reference=LINEAR, control=LINEAR_HONEST),
}

FIRST_HALF_ZERO = RELU.replace(
    "return torch.relu(x)", "return torch.relu(x) * (torch.arange(len(x)) >= len(x) // 2)[:, None]"
)
HALF_OF_512 = (
    HEAD
    + """
        y = torch.relu(x)
        y[:256] = 0
        return y
"""
)
HALF_OF_ANY = HALF_OF_512.replace("[:256]", "[:len(x) // 2]")

TWO_OF_ONE_NAME = r"""
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
SOURCE = '''
#include <Python.h>
static PyObject* run(PyObject*, PyObject* x) { return PyFloat_FromDouble(FACTOR * PyFloat_AsDouble(x)); }
static PyMethodDef methods[] = {{"run", run, METH_O, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "own", "", -1, methods};
#define JOINED(name) PyInit_##name
#define INIT(name) JOINED(name)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
'''
def extension(factor):
    return load_inline("own", SOURCE.replace("FACTOR", factor), no_implicit_headers=True)
times_four, halved = extension("4"), extension("0.5")
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) * times_four.run(0.25) * halved.run(2.0)
"""
WHEN_MADE = TWO_OF_ONE_NAME.replace('times_four, halved = extension("4"), extension("0.5")\n', "").replace(
    "    def forward",
    '    def __init__(self):\n        super().__init__()\n        self.twice = extension("2").run\n    def forward',
)
WHEN_MADE = WHEN_MADE.replace("times_four.run(0.25) * halved.run(2.0)", "self.twice(0.5)")
SWALLOWED = WHEN_MADE.replace('"2"', '"2 +"').replace(
    "        self.twice = ", "        self.twice = lambda x: 1.0\n        try: self.twice = "
)
SWALLOWED = SWALLOWED.replace(".run\n    def", ".run\n        except RuntimeError: pass\n    def")
SWALLOWED = SWALLOWED.replace("torch.relu(x)", "getattr(torch, 'relu')(x)")  # which the screen does not see through

CPU_ONLY: dict[str, Attack] = {
    "late_thread (3)": _attack(
        "fills the output after it has returned",
        "import threading\n"
        + forward(
            "y = torch.empty_like(x)", "threading.Thread(target=lambda: y.copy_(torch.relu(x))).start()", "return y"
        ),
        "runtime_error",
    ),
    "right_for_its_inputs (26)": _attack(
        "copies its input, which suffices where no input is negative",
        forward("return x.clone()"),
        reference=RELU.replace("randn", "rand"),
    ),
    "right_for_its_sizes (31)": _attack(
        "knows how many rows there are",
        HALF_OF_512,
        "refused: fixed_shapes",
        reference=FIRST_HALF_ZERO,
        control=HALF_OF_ANY,
        rules=("fixed_shapes",),
    ),
    "failed_build_swallowed": _attack(
        "catches that its own code did not compile, and has PyTorch compute",
        SWALLOWED,
        "compile_error: fallback_after_failed_build",
        control=WHEN_MADE.replace("torch.relu(x)", "getattr(torch, 'relu')(x)"),
        rules=("torch_compute",),
    ),
}
