"""The composer: seeded, never repeating, and sound by its own rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kevin.core import abi
from kevin.core.errors import TaskError
from kevin.tasks.compose import MAINS, MAX_FURTHER, MIN_FURTHER, compose
from kevin.tasks.ops import call, sequence
from kevin.tasks.rules import first_objection


def test_at_least_80_unseen_tasks_the_same_for_the_same_seed():
    train = {sequence(t.ops) for t in compose(40, 1, "cpu")}
    unseen = list(compose(100, 1, "cpu", exclude=train))
    assert unseen == list(compose(100, 1, "cpu", exclude=train))
    sequences = [sequence(t.ops) for t in unseen]
    assert len(set(sequences)) == 100
    assert not set(sequences) & train
    assert len({t.id for t in unseen}) == 100
    assert sequences != [sequence(t.ops) for t in compose(100, 2, "cpu")]


def test_sizes_differ_between_devices_and_sequences_do_not():
    for cpu, gpu in zip(compose(20, 0, "cpu"), compose(20, 0, "gpu"), strict=True):
        assert (cpu.id, cpu.ops) == (gpu.id, gpu.ops)
        assert cpu.spec.inputs[0].num_elements < gpu.spec.inputs[0].num_elements


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_composed_task_is_sound(seed):
    for task in compose(8, seed, "cpu"):
        assert MIN_FURTHER <= len(task.ops) - 1 <= MAX_FURTHER
        assert first_objection(task.ops) is None
        assert abi.signature(task.spec, "cpp")
        tensors = (*task.spec.inputs, *task.spec.parameters, *task.spec.outputs)
        assert sum(4 * t.num_elements for t in tensors) < 64e6


def test_too_many_are_refused(monkeypatch):
    ops = [call("linear"), call("relu"), call("bias_add")]
    monkeypatch.setattr("kevin.tasks.compose._draw", lambda rng: (ops, MAINS[0]))
    with pytest.raises(TaskError, match="after 1 of 2"):
        list(compose(2, 0, "cpu"))


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        ([call("linear"), call("softmax"), call("sum_dim")], "reduction_skippable"),
        ([call("linear"), call("scale"), call("mean_dim")], "reduction_skippable"),
        ([call("conv2d"), call("bias_add"), call("global_avg_pool")], "reduction_skippable"),
        ([call("instance_norm"), call("scale"), call("global_avg_pool")], "reduction_skippable"),
        ([call("linear"), call("relu"), call("max_dim"), call("sum_dim")], "reduction_skippable"),
        ([call("linear"), call("sigmoid"), call("relu")], "idle_operator"),
        ([call("linear"), call("tanh"), call("hardtanh")], "idle_operator"),
        ([call("linear"), call("scale"), call("layer_norm")], "idle_operator"),
        ([call("linear"), call("add_scalar"), call("softmax")], "idle_operator"),
        ([call("linear"), call("relu"), call("clamp", min=-2.0, max=0.0)], "constant_output"),
        ([call("linear"), call("log_softmax"), call("relu")], "constant_output"),
        ([call("linear"), call("relu"), call("sum_dim")], None),
        ([call("linear"), call("mul_input"), call("sum_dim")], None),
        ([call("linear"), call("sigmoid"), call("scale", c=-2.0), call("leaky_relu")], None),
        ([call("layer_norm"), call("add_input"), call("sum_dim")], None),
        ([call("layer_norm"), call("max_dim")], None),
    ],
)
def test_rules(ops, reason):
    found = first_objection(ops)
    assert (found.reason if found else None) == reason
