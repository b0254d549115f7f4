"""KernelBench's tasks as the writer knows them, at small sizes: right under the module's own names."""

import pytest

from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task
from kevin.judge.evaluate import judge_kernel
from kevin.tasks.format import inspect_task
from kevin.writer.ceiling import ceiling_kernels, counterpart

ITS_OWN_MODULE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features, groups):
        super().__init__()
        self.first = nn.Linear(features, features)
        self.normed = nn.GroupNorm(groups, features)
        self.factor = nn.Parameter(torch.randn(features))

    def forward(self, rows):
        rows = self.normed(self.first(rows))
        return nn.functional.silu(nn.functional.silu(rows) * self.factor)

def get_inputs():
    return [torch.randn(16, 2048)]

def get_init_inputs():
    return [2048, 256]
"""
"""Written anew: what kernelbench_ops.yaml says of the task with this id. Three of its parameters have one shape."""


def task(source: str, number: int) -> Task:
    found = Task(id=f"kb/2/{number}", level=2, name="module", source=source, origin="kernelbench")
    return found.model_copy(update={"spec": inspect_task(source, found.id)})


def test_parameters_of_one_shape_are_told_apart() -> None:
    known = counterpart(task(ITS_OWN_MODULE, 88))
    assert known is not None
    real = task(ITS_OWN_MODULE, 88).spec
    assert list(known.names.values()) == [s.name for s in (*real.inputs, *real.parameters, *real.outputs)]
    assert known.names["scale"] == "factor" and known.names["group_norm_weight"] == "normed_weight"


@pytest.mark.slow
def test_its_kernels_are_right() -> None:
    theirs = task(ITS_OWN_MODULE, 88)
    (kernel,) = ceiling_kernels(theirs, "cpp", 1)
    assert judge_kernel(theirs, kernel, JudgeProtocol(num_trials=1)).outcome is Outcome.CORRECT
    swapped = kernel.source.replace("factor[", "normed_weight[")
    assert swapped != kernel.source
    wrong = Kernel(dialect="c_abi", language="cpp", source=swapped)
    assert judge_kernel(theirs, wrong, JudgeProtocol(num_trials=1)).outcome is Outcome.INCORRECT


@pytest.mark.parametrize("number", [83, 5])
def test_what_the_writer_does_not_know_has_no_kernel(number: int) -> None:
    """One that the inventory does not hold, and one whose shapes are others than the module's."""
    assert ceiling_kernels(task(ITS_OWN_MODULE, number), "cpp", 1) == []
