"""Catalog, operators and renderer: the shapes worked out without torch are those that PyTorch gives."""

import pytest

from kevin.core import abi
from kevin.tasks.catalog import catalog
from kevin.tasks.format import inspect_task
from kevin.tasks.ops import call, render_module, trace_task


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


def test_trace_of_a_task_names_what_each_step_reads():
    task = next(t for t in catalog("cpu") if t.id == "l1/linear")
    (step,) = trace_task(task).steps
    assert step.parameters == ("linear_weight", "linear_bias")
    task = next(t for t in catalog("cpu") if t.id == "l1/mse_loss")
    assert trace_task(task).steps[0].second == "target"


def test_attributes_reach_the_text():
    source = render_module([call("leaky_relu", slope=0.25), call("softmax", dim=1)], {"batch_size": 2, "dim": 3})
    assert "negative_slope=0.25" in source
    assert "dim=1" in source
