"""Quality filters: planted bad tasks are turned down for the right reason, good ones are kept."""

import pytest

from kevin.core.types import Task
from kevin.tasks.catalog import catalog
from kevin.tasks.compose import compose
from kevin.tasks.filters import check_task
from kevin.tasks.ops import call, render_module

pytestmark = pytest.mark.usefixtures("one_thread")

MODULE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 32)
        self.unused = nn.Parameter(torch.ones(32))

    def forward(self, x, y):
        out = self.linear(x)
        return {result}

def get_inputs():
    return [torch.randn(16, 64), torch.randn(16, 32)]
"""
GOOD = "out * y + self.unused"


def planted(result: str) -> Task:
    return Task(id="planted", level=1, name="planted", source=MODULE.format(result=result), origin="user")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("torch.softmax(out, -1).sum(-1) + 0 * y.sum(-1)", "constant_output"),
        ("(out - out.mean(1, keepdim=True)).mean(1) + 0 * y.sum(-1)", "near_zero"),
        ("out * 1e-6 * y * self.unused", "near_zero"),
        ("torch.relu(out) * self.unused + 1e-7 * y", "ignores_input"),
        ("out * y", "ignores_parameter"),
        ("(out * y + self.unused) / (y - y)", "not_finite"),
        ("torch.dropout(out * y + self.unused, 0.5, True)", "not_deterministic"),
        (
            "torch.batch_norm(out, None, None, None, None, True, 0.1, 1e-5, False) * y * self.unused",
            "ignores_parameter",
        ),
    ],
)
def test_planted_flaws(result, reason):
    found = check_task(planted(result))
    assert found is not None
    assert (found.task_id, found.reason) == ("planted", reason)
    assert found.message


def test_a_good_module_passes_however_fast_it_is():
    assert check_task(planted(GOOD)) is None


def test_the_softmax_that_is_summed_away():
    ops = (call("linear"), call("softmax"), call("sum_dim"))
    source = render_module(ops, {"batch_size": 8, "in_features": 16, "out_features": 32})
    known = Task(id="l2/x", level=2, name="x", source=source, ops=ops, origin="composed")
    found = check_task(known)
    assert found is not None
    assert found.reason == "reduction_skippable"
    unknown = known.model_copy(update={"ops": ()})
    found = check_task(unknown)
    assert found is not None
    assert found.reason == "constant_output"


@pytest.mark.parametrize("one_in", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_the_catalog_passes(one_in):
    """All of it takes a while: every task is run on several inputs."""
    rejections = [r for t in catalog("cpu")[::one_in] if (r := check_task(t))]
    assert rejections == []


def test_a_check_leaves_the_thread_count_alone():
    import torch

    before = torch.get_num_threads()
    check_task(next(compose(1, 0, "cpu")), num_threads=1)
    assert torch.get_num_threads() == before
