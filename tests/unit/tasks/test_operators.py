"""Operators, catalogs and the renderer: the shapes worked out without torch are those that PyTorch gives."""

import itertools
import random

import pytest
from writer_fixtures import general_composed, general_drawn, task_of_text

from kevin.core import abi
from kevin.core.errors import TaskError
from kevin.tasks.catalog import NOT_ALONE, catalog, catalog_extended, draw
from kevin.tasks.compose import compose, compose_general
from kevin.tasks.format import init_model, inspect_task, load_module, make_inputs, run_model
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import call, parse_sequence, render_module, sequence, sizes_of, trace, trace_task

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", [n for n in OPERATORS if n not in NOT_ALONE])
def test_every_operators_spec_is_the_modules(name):
    rng = random.Random(name)
    for _ in range(6):
        op, sizes = draw(rng, name, 2000)
        source = render_module([op], sizes)
        traced = trace([op], sizes)
        assert inspect_task(source, name) == traced.spec, source
        assert trace([op], sizes_of(source)).spec == traced.spec


@pytest.mark.parametrize(
    "tasks",
    [
        *(pytest.param(lambda size=size: catalog(size), id=f"catalog {size}") for size in ("cpu", "gpu")),
        pytest.param(lambda: compose(30, 5, "cpu"), id="composed cpu"),
        pytest.param(lambda: compose(10, 5, "gpu"), id="composed gpu"),
    ],
)
def test_specs_of_the_studys_tasks_are_those_of_the_modules(tasks):
    """Composed ones for a GPU are the same sequences, larger."""
    made = list(tasks())
    assert len({t.id for t in made}) == len(made) >= 10
    for task in made:
        assert inspect_task(task.source, task.id) == task.spec, task.id


def test_every_task_of_the_catalog_fits_the_c_abi_and_64_mb_on_a_cpu():
    width = {"float32": 4, "int64": 8}
    tasks = catalog("cpu")
    assert len(tasks) >= 36
    for task in tasks:
        assert abi.signature(task.spec, "cpp").startswith('extern "C" void launch(const float* x')
        tensors = (*task.spec.inputs, *task.spec.parameters, *task.spec.outputs)
        assert sum(t.num_elements * width[t.dtype] for t in tensors) < 64e6, task.id


def test_layer_norm_is_the_case_study():
    gpu = next(t for t in catalog("gpu") if t.id == "l1/layer_norm")
    assert gpu.spec.inputs[0].shape == (16, 64, 256, 256)
    assert gpu.spec.parameters[0].shape == (64, 256, 256)


def test_trace_of_a_task_names_what_each_step_reads():
    tasks = {t.id: t for t in catalog("cpu")}
    (step,) = trace_task(tasks["l1/linear"]).steps
    assert step.parameters == ("linear_weight", "linear_bias")
    assert trace_task(tasks["l1/mse_loss"]).steps[0].second == "target"


def test_attributes_reach_the_text():
    source = render_module([call("leaky_relu", slope=0.25), call("softmax", dim=1)], {"batch_size": 2, "dim": 3})
    assert "negative_slope=0.25" in source
    assert "dim=1" in source


SEQUENCES = [
    ("conv3d | max_pool3d | max_pool3d | softmax dim=1 | sub_param view=1 | max_dim dim=1",
     {"batch_size": 2, "in_channels": 3, "depth": 15, "height": 17, "width": 19, "out_channels": 4}),
    ("conv_transpose2d stride=2 padding=1 output_padding=1 | batch_norm track=1 | mul_param | mul_param again=1"
     " | batch_norm track=1", {"batch_size": 2, "in_channels": 3, "height": 5, "width": 6, "out_channels": 4}),
    ("linear | relu | bias_add | add_input | mul_input | layer_norm | max_dim",
     {"batch_size": 4, "in_features": 5, "out_features": 6}),
    ("conv2d | gelu | bias_add | add_input | global_avg_pool | softmax",
     {"batch_size": 4, "in_channels": 5, "height": 8, "width": 9, "out_channels": 7}),
    ("conv2d | max_pool2d", {"batch_size": 1, "in_channels": 2, "height": 8, "width": 8, "out_channels": 3}),
    ("matmul_batched | clamp | add_input", {"batch_size": 2, "rows": 3, "inner": 4, "cols": 5}),
    ("conv1d | bias_add | sum_dim", {"batch_size": 2, "in_channels": 3, "length": 9, "out_channels": 4}),
]  # fmt: skip


@pytest.mark.parametrize(
    "task", [*general_composed(), *(task_of_text(*case) for case in SEQUENCES)], ids=lambda task: task.name
)
def test_sequences(task):
    assert inspect_task(task.source, task.id) == task.spec, task.source
    traced = trace(task.ops, sizes_of(task.source))
    assert traced.spec == task.spec
    assert [step.op for step in traced.steps] == list(task.ops)
    module = load_module(task.source, task.id)
    (out,) = run_model(module, init_model(module, 1), make_inputs(module, 2))
    assert tuple(out.shape) == traced.steps[-1].out_shape


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: call("conv9d"), "no operator 'conv9d'"),
        (lambda: call("relu", slope=1), "relu has no attribute slope"),
        (lambda: parse_sequence("scale c"), "write an operator as"),
        (lambda: trace([], {"dim": 3}), "at least one"),
        (lambda: trace([call("conv2d")], {"batch_size": 2, "dim": 3}), "rank"),
        (lambda: trace(parse_sequence("relu | add_residual of=4"), {"batch_size": 2, "dim": 3}), "only 2 are there"),
        (lambda: trace(parse_sequence("mul_input again=1"), {"batch_size": 2, "dim": 3}), "none before"),
        (lambda: trace(parse_sequence("add_param again=1"), {"batch_size": 2, "dim": 3}), "none before"),
    ],
)
def test_errors(make, message):
    with pytest.raises(TaskError, match=message):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("size", ["cpu", "gpu"])
def test_the_extended_catalog_is_reproducible(size):
    tasks = catalog_extended(size)
    assert tasks == catalog_extended(size)
    assert len({t.id for t in tasks}) == len(tasks) > 3 * 80
    for task in random.Random(0).sample(tasks, 30):
        assert inspect_task(task.source, task.id) == task.spec, task.source


@pytest.mark.slow
@pytest.mark.parametrize("size", ["cpu", "gpu"])
def test_general_sequences_are_new_reproducible_and_traced(size):
    tasks = list(compose_general(60, 1, size))
    names = {sequence(t.ops) for t in tasks}
    assert len(names) == 60 and {len(t.ops) for t in tasks} == {2, 3, 4, 5, 6}
    assert tasks == list(compose_general(60, 1, size))
    for task in tasks[:25]:
        assert inspect_task(task.source, task.id) == task.spec, task.source


def test_main_operators_stand_behind_others_too():
    """Pools and activations before a convolution, a second linear layer after something that is not linear."""
    before, twice = [], []
    for task in compose_general(300, 2, "cpu"):
        mains = [i for i, op in enumerate(task.ops) if OPERATORS[op.name].kind == "contract"]
        before += [task] if mains and mains[0] > 0 else []
        twice += [task] if len(mains) > 1 else []
        assert all(second - first > 1 for first, second in itertools.pairwise(mains))
    assert len(before) > 15 and len(twice) > 3
    assert any(OPERATORS[t.ops[0].name].kind == "pool" for t in before)
    for task in [*before[:8], *twice[:4]]:
        assert inspect_task(task.source, task.id) == task.spec, task.source


def test_some_general_sequences_have_an_operator_twice_in_a_row():
    tasks = general_drawn()
    twice = [a for t in tasks for a, b in zip(sequence(t.ops), sequence(t.ops)[1:], strict=False) if a == b]
    assert 0.03 * len(tasks) < len(twice) < 0.2 * len(tasks) and len(set(twice)) > 5
    assert {OPERATORS[name].kind for name in twice} <= {"pool", "elementwise"}
    assert not {"relu", "abs", "linear"} & set(twice)  # the second would change nothing


def test_what_a_reduction_made_smaller_may_be_subtracted_from_what_it_was():
    tasks = general_drawn()
    pairs = [(t, i) for t in tasks for i, op in enumerate(t.ops) if op.name == "residual_sub" and i]
    centred = [t for t, i in pairs if t.ops[i - 1].attrs.get("keepdim") and t.ops[i].attrs["of"] == i - 1]
    assert len(centred) > 5
    for task in centred:
        trace(task.ops, sizes_of(task.source))


def test_a_sequence_is_read_from_text():
    ops = parse_sequence("conv2d kernel=5 padding=1 | relu | scale c=0.5")
    assert ops == [call("conv2d", kernel=5, padding=1), call("relu"), call("scale", c=0.5)]
