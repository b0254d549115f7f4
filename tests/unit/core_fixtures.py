"""Tasks, turns and verdicts of which a test says only what it is about."""

from __future__ import annotations

from typing import Any

from kevin.core.types import Kernel, Outcome, Task, TaskSpec, TensorSpec, Timing, Turn, Verdict

X = TensorSpec(name="x", shape=(4,), dtype="float32")
SPEC = TaskSpec(inputs=(X,), outputs=(X.model_copy(update={"name": "out"}),))


def make_task(task_id: str = "l1/a", **changes: Any) -> Task:
    """Its name is what stands behind the level."""
    fields = {"level": 1, "name": task_id.rpartition("/")[2], "source": f"# {task_id}\n", "origin": "catalog"}
    return Task(id=task_id, **fields | changes)


MODULE = """\
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


def make_module(body: str, inputs: str, init: str = "pass") -> str:
    """A reference in KernelBench's format, of one line in each of its functions."""
    return MODULE.format(body=body, inputs=inputs, init=init)


def make_kernel(source: str) -> Kernel:
    return Kernel(dialect="c_abi", language="cpp", source=source)


def make_turn(**changes: Any) -> Turn:
    """The first of a trajectory: correct, and a quarter faster."""
    fields: dict[str, Any] = {"task_id": "l1/a", "trajectory": 0, "turn": 1, "completion": "hi"}
    fields |= {"kernel": make_kernel("int a;\n"), "outcome": Outcome.CORRECT, "speedup": 1.25}
    fields |= {"num_prompt_tokens": 3, "num_completion_tokens": 4, "finish_reason": "stop"}
    return Turn(**fields | changes)


def make_timing(us: float) -> Timing:
    return Timing(median_us=us, iqr_us=1, min_us=us, num_samples=30)


def make_verdict(
    outcome: Outcome = Outcome.INCORRECT, *, kernel_us: float | None = None, eager_us: float = 100.0, **changes: Any
) -> Verdict:
    """With times where ``kernel_us`` is given."""
    names = {"key": "k", "task_digest": "t", "kernel_digest": "c", "protocol_digest": "p", "device_name": "A CPU"}
    times = {"timing": make_timing(kernel_us), "reference_timing": make_timing(eager_us)} if kernel_us else {}
    return Verdict(**names | times | changes, outcome=outcome)
