"""KernelBench's module format: what is accepted, what is read off, and what the errors say."""

import dataclasses
import inspect
import signal
from pathlib import Path

import pytest
import torch

from kevin.core.errors import TaskError
from kevin.core.types import TensorSpec
from kevin.tasks.format import init_model, inspect_task, load_module, make_inputs, run_model, task_from_file

LINEAR = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super(Model, self).__init__()
        self.fc = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)

    def forward(self, x, scale, index):
        return self.norm(self.fc(x))[index] * scale

batch_size = 4
in_features = 3

def get_inputs():
    return [torch.rand(batch_size, in_features), 2.5, torch.randint(0, batch_size, (6,))]

def get_init_inputs():
    return [in_features, 5]
"""

MINIMAL = """
import torch
class Model(torch.nn.Module):
    def forward(self, {args}):
        {body}
def get_inputs():
    return {inputs}
"""


def minimal(body: str, args: str = "x", inputs: str = "[torch.rand(2, 3)]") -> str:
    return MINIMAL.format(args=args, body=body, inputs=inputs)


def test_inputs_parameters_and_outputs():
    spec = inspect_task(LINEAR, "linear.py")
    assert spec.inputs == (
        TensorSpec(name="x", shape=(4, 3), dtype="float32"),
        TensorSpec(name="scale", shape=(), dtype="float64", kind="scalar"),
        TensorSpec(name="index", shape=(6,), dtype="int64"),
    )
    assert [p.name for p in spec.parameters] == [
        "fc_weight", "fc_bias", "norm_weight", "norm_bias", "norm_running_mean", "norm_running_var",
    ]  # fmt: skip
    assert spec.outputs == (TensorSpec(name="out", shape=(6, 5), dtype="float32"),)


def test_tuple_outputs_and_names_that_c_does_not_allow():
    spec = inspect_task(minimal("return out, [out.argmax(-1)]", args="out"), "t")
    assert [o.name for o in spec.outputs] == ["out0", "out1"]
    assert spec.outputs[1].dtype == "int64"
    spec = inspect_task(minimal("return float + out", "float, out", "[torch.rand(2), torch.rand(2)]"), "t")
    assert [i.name for i in spec.inputs] == ["float_", "out"]
    assert spec.outputs[0].name == "out_"


def test_variable_arguments_are_numbered():
    spec = inspect_task(minimal("return xs[0] + xs[1]", "*xs", "[torch.rand(2), torch.rand(2)]"), "t")
    assert [i.name for i in spec.inputs] == ["xs0", "xs1"]


def test_huge_inputs_cost_nothing_and_value_dependent_forwards_run_for_real():
    huge = inspect_task(minimal("return x * 2", inputs="[torch.rand(1 << 20, 1 << 20)]"), "t")
    assert huge.outputs[0].shape == (1 << 20, 1 << 20)
    real = inspect_task(minimal("return x[x > -1.0]", inputs="[torch.rand(2, 3)]"), "t")
    assert real.outputs[0].shape == (6,)


@pytest.mark.parametrize(
    ("inputs", "work", "is_real"),
    [
        ("[torch.rand(8, 4)]", "x + 1", True),
        ("[torch.rand(1 << 12, 1 << 11)]", "x + 1", False),
        ("[torch.rand(1 << 10, 1 << 10)]", "[x + i for i in range(9)]", False),
        ("[torch.rand(8, 4).expand(1 << 20, 8, 4)]", "x[0]", False),
    ],
)
def test_only_what_stays_small_runs_for_real(inputs: str, work: str, is_real: bool):
    body = f"{work}; return x[:1] if type(x) is torch.Tensor else x[:2]"
    spec = inspect_task(minimal(body, inputs=inputs), "t")
    assert spec.outputs[0].shape[0] == (1 if is_real else 2)


def test_seeds_decide_weights_and_inputs():
    module = load_module(LINEAR, "linear.py")
    first, again, other = (init_model(module, s).fc.weight for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(make_inputs(module, 7)[0], make_inputs(module, 7)[0])
    assert not torch.equal(make_inputs(module, 7)[0], make_inputs(module, 8)[0])
    assert not run_model(module, init_model(module, 1), make_inputs(module, 7))[0].requires_grad


def test_inspect_and_dataclasses_work_on_a_loaded_module_and_modules_do_not_meet():
    config = "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    n: int = {n}\n"
    one, two = (load_module(config.format(n=n) + minimal("return x"), "same name") for n in (1, 2))
    assert (one.Config().n, two.Config().n) == (1, 2)
    assert dataclasses.asdict(one.Config(5)) == {"n": 5}
    assert "return x" in inspect.getsource(one.Model.forward)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:\n", r"bad\.py: line 1: .*fix the syntax"),
        ("import torch\nx = 1 / 0\n", r"bad\.py: line 2: ZeroDivisionError"),
        ("raise SystemExit(0)\n", r"bad\.py: line 1: SystemExit"),
        ("import torch\ndef get_inputs():\n    return []\n", r"bad\.py: defines no class Model"),
        ("import torch\nclass Model(torch.nn.Module):\n    pass\n", r"bad\.py: defines no get_inputs"),
        (
            minimal("return x", inputs="torch.rand(2)"),
            r"bad\.py: get_inputs\(\) returned a \w*Tensor; return a list",
        ),
        (minimal("return x @ x"), r"bad\.py: line 5: RuntimeError.* in Model\.forward"),
        (minimal("return 3"), r"bad\.py: forward returned a int; return tensors"),
        (minimal("return ()"), r"bad\.py: forward returned no tensor"),
        (minimal("return x", inputs="[torch.rand(2), torch.rand(2)]"), r"bad\.py: .*"),
        (minimal("return x", "x, how", "[torch.rand(2), 'up']"), r"bad\.py: input how is a str"),
        (minimal("return x.to(torch.complex64)"), r"bad\.py: out has dtype complex64"),
        (
            minimal("return x", inputs="[torch.rand(2, missing)]"),
            r"bad\.py: line 7: NameError.* in get_inputs",
        ),
        (minimal("return x") + "\nget_init_inputs = 3\n", r"bad\.py: get_init_inputs is not a function"),
        (
            minimal("return x") + "\ndef get_init_inputs():\n    return [1]\n",
            r"bad\.py: .*Model\(\*get_init_inputs",
        ),
    ],
)
def test_errors_name_the_file_and_the_fix(source, message):
    with pytest.raises(TaskError, match=message):
        inspect_task(source, "bad.py")


HANGS = "while True:\n        try:\n            time.sleep(60)\n        except {caught}:\n            pass"


@pytest.mark.parametrize("caught", ["Exception", "ZeroDivisionError"])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("import torch\n", "importing the reference did not end"),
        ("def get_inputs():\n    ", r"get_inputs\(\) did not end"),
        ("def get_init_inputs():\n    ", r"get_init_inputs\(\) did not end"),
        (
            "    def __init__(self):\n        super().__init__()\n        ",
            r"Model\(\*get_init_inputs\(\)\) did not end",
        ),
    ],
)
def test_a_reference_that_does_not_end_is_named(monkeypatch, place, words, caught):
    monkeypatch.setattr("kevin.tasks.format.LIMIT_S", 0.3)
    source = minimal("return x").replace("import torch\n", "import time\nimport torch\n", 1)
    source = source.replace(
        "    def forward", "    def __init__(self):\n        super().__init__()\n        pass\n    def forward"
    )
    source += "def get_init_inputs():\n    return []\n"
    indent = " " * (len(place) - len(place.rstrip(" ")))
    endless = HANGS.format(caught=caught).replace("\n    ", f"\n{indent}")
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TaskError, match=rf"^bad\.py: {words} within 0.3 s: look for"):
        inspect_task(source.replace(place, f"{place}{endless}\n{indent}", 1), "bad.py")
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    monkeypatch.undo()
    assert inspect_task(source, "good.py").outputs


def test_task_from_file(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(LINEAR)
    task = task_from_file(path)
    assert (task.id, task.origin, task.spec.outputs[0].shape) == ("user/mine", "user", (6, 5))
    with pytest.raises(TaskError, match="no such file"):
        task_from_file(tmp_path / "absent.py")
