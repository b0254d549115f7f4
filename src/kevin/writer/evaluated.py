"""What no conversation of a pretraining is about: tasks that the study evaluates, and compositions of KernelBench's.

Compositions are told by their operators' families in their order, at any size and with any arguments. A single operator
is told with the sizes of what it reads and gives: the operator at other sizes stands in the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kevin.core.types import Task, TensorSpec
from kevin.tasks.kernelbench_ops import kernelbench_sequences, operators_of
from kevin.tasks.ops import sequence

_FAMILIES = {
    "conv": r"(depthwise_)?conv\d?d?(_pointwise)?",
    "conv_transpose": r"conv_?transpose\d?d?",
    "linear": r"linear|gemm|bmm|mat(mul|vec)(_\w+)?",
    "max_pool": r"max_?pool(\dd)?",
    "avg_pool": r"avg_?pool(\dd)?",
    "global_avg_pool": r"global_?avg_?pool(ing)?|adaptive_avg_pool",
    "add": r"add(_\w+)?|bias_?add|residual_?add",
    "subtract": r"subtract|sub_\w+|residual_sub",
    "scale": r"scale|scaling|multiply|divide|(mul|div)_\w+",
    "clamp": r"clamp(_\w+)?|hardtanh",
    **{word: rf"{word}(_(dim|scalar|param))?" for word in ("min", "max", "sum", "mean")},
}
_PATTERNS = {family: re.compile(pattern) for family, pattern in _FAMILIES.items()}


def family(operator: str) -> str:
    """Of an operator, by our name or by its word in a KernelBench name, in lower case; itself where it is alone."""
    return next((name for name, pattern in _PATTERNS.items() if pattern.fullmatch(operator)), operator)


def families(operators: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(family, operators))


class Computation(NamedTuple):
    """A single operator's, whatever its constants; sizes of one are left out, as a reduction may keep or drop them."""

    family: str
    read: tuple[int, ...]
    given: tuple[int, ...]


def computation(task: Task) -> Computation | None:
    """None of a composition, or where the operators are not known."""
    operators = operators_of(task)
    if task.spec is None or len(operators) != 1:
        return None
    return Computation(family(operators[0].name), _sizes(task.spec.inputs[0]), _sizes(task.spec.outputs[0]))


def _sizes(tensor: TensorSpec) -> tuple[int, ...]:
    return tuple(size for size in tensor.shape if size != 1)


class Evaluated:
    """What is left out. Of no tasks it is KernelBench's compositions alone."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        """``tasks``: the study's own, or KernelBench's."""
        tasks = list(tasks)
        self._compositions = {families(operators) for operators in kernelbench_sequences() if len(operators) > 1}
        self._compositions |= {families(sequence(t.ops)) for t in tasks if len(t.ops) > 1}
        self._single = {found for task in tasks if (found := computation(task))}

    def holds(self, task: Task) -> bool:
        """Whether ``task``, one of our own, is like one of these."""
        if len(task.ops) > 1:
            return families(sequence(task.ops)) in self._compositions
        return computation(task) in self._single
