"""Catalog, operators and renderer: the shapes worked out without torch are those that PyTorch gives."""

import subprocess
import sys

import pytest

from kevin.core import abi
from kevin.core.errors import TaskError
from kevin.tasks.catalog import catalog
from kevin.tasks.format import init_model, inspect_task, load_module, make_inputs, run_model
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import call, sizes_of, trace
from kevin.tasks.render import render, trace_task


@pytest.mark.parametrize("size", ["cpu", "gpu"])
def test_specs_worked_out_are_those_of_the_modules(size):
    tasks = catalog(size)
    assert len(tasks) >= 36
    assert len({t.id for t in tasks}) == len(tasks)
    for task in tasks:
        assert inspect_task(task.source, task.id) == task.spec, task.id


def test_every_task_fits_the_c_abi_and_64_mb_on_a_cpu():
    width = {"float32": 4, "int64": 8}
    for task in catalog("cpu"):
        assert abi.signature(task.spec, "cpp").startswith('extern "C" void launch(const float* x')
        tensors = (*task.spec.inputs, *task.spec.parameters, *task.spec.outputs)
        assert sum(t.num_elements * width[t.dtype] for t in tensors) < 64e6, task.id


def test_layer_norm_is_the_case_study():
    gpu = next(t for t in catalog("gpu") if t.id == "l1/layer_norm")
    assert gpu.spec.inputs[0].shape == (16, 64, 256, 256)
    assert gpu.spec.parameters[0].shape == (64, 256, 256)


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        (
            ["linear", "relu", "bias_add", "add_input", "mul_input", "layer_norm", "max_dim"],
            {"batch_size": 4, "in_features": 5, "out_features": 6},
        ),
        (
            ["conv2d", "gelu", "bias_add", "add_input", "global_avg_pool", "softmax"],
            {"batch_size": 4, "in_channels": 5, "height": 8, "width": 9, "out_channels": 7},
        ),
        (
            ["conv2d", "max_pool2d"],
            {"batch_size": 1, "in_channels": 2, "height": 8, "width": 8, "out_channels": 3},
        ),
        (["matmul_batched", "clamp", "add_input"], {"batch_size": 2, "rows": 3, "inner": 4, "cols": 5}),
        (
            ["conv1d", "bias_add", "sum_dim"],
            {"batch_size": 2, "in_channels": 3, "length": 9, "out_channels": 4},
        ),
    ],
)
def test_sequences(names, sizes):
    ops = [call(n) for n in names]
    source = render(ops, sizes)
    traced = trace(ops, sizes)
    assert inspect_task(source, "sequence") == traced.spec
    assert trace(ops, sizes_of(source)).spec == traced.spec
    assert [s.op.name for s in traced.steps] == names
    module = load_module(source, "sequence")
    out = run_model(module, init_model(module, 1), make_inputs(module, 2))
    assert tuple(out[0].shape) == traced.steps[-1].out_shape


def test_trace_of_a_task_names_what_each_step_reads():
    task = next(t for t in catalog("cpu") if t.id == "l1/linear")
    (step,) = trace_task(task).steps
    assert step.parameters == ("linear_weight", "linear_bias")
    task = next(t for t in catalog("cpu") if t.id == "l1/mse_loss")
    assert trace_task(task).steps[0].second == "target"


def test_attributes_reach_the_text():
    source = render([call("leaky_relu", slope=0.25), call("softmax", dim=1)], {"batch_size": 2, "dim": 3})
    assert "negative_slope=0.25" in source
    assert "dim=1" in source


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: call("conv9d"), "no operator 'conv9d'"),
        (lambda: call("relu", slope=1), "relu has no attribute slope"),
        (lambda: trace([], {"dim": 3}), "at least one"),
        (lambda: trace([call("conv2d")], {"batch_size": 2, "dim": 3}), "rank"),
    ],
)
def test_errors(make, message):
    with pytest.raises(TaskError, match=message):
        make()


def test_the_catalogs_operators_are_some_of_the_inventory():
    alone = {t.name for t in catalog("cpu")}
    assert alone < set(OPERATORS)


def test_the_catalog_needs_no_torch():
    code = "import sys, kevin.tasks.catalog as c; c.catalog('cpu'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
