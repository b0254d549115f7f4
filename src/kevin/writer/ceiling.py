"""What a policy could reach with the writer's own means: its mistake-free kernels, the best-known schedules first.

KernelBench's tasks are written for as the own ones that compute the same, under the names of their tensors.
"""

from __future__ import annotations

from kevin.core.errors import TaskError
from kevin.core.types import Kernel, Language, Task, TaskSpec, TensorSpec
from kevin.tasks.kernelbench_ops import kernelbench_row, sizes_like
from kevin.tasks.ops import Trace, render_module, trace
from kevin.writer.modules.styled import Styled, as_it_is
from kevin.writer.plan import Plan, enumerate_plans, render


def counterpart(task: Task) -> Styled | None:
    """``task`` as the restyled form of an own one (``plain``), which one of our own is of itself; None for one that
    the inventory does not hold.

    Parameters are told apart by shape and by the last part of their names; the module's own come first in both.
    """
    if task.origin in ("catalog", "composed") and task.spec is not None:
        return as_it_is(task)
    row = kernelbench_row(task)
    if row is None or row.outside is not None or task.spec is None:
        return None
    try:
        sizes = sizes_like(row.ops, task.spec)
        traced = trace(row.ops, sizes)
        names = _names(traced, task.spec)
    except TaskError:
        return None
    plain = task.model_copy(
        update={"source": render_module(row.ops, sizes), "ops": row.ops, "origin": "composed", "spec": traced.spec}
    )
    return Styled(plain, names)


def _names(traced: Trace, real: TaskSpec) -> dict[str, str]:
    """By the plain names the real ones, in the real order. Raises TaskError where a parameter has no like."""
    plain = traced.spec
    own = {name for c in traced.constructors if c and c.is_parameter for name, _ in c.parameters}
    names = {p.name: r.name for p, r in zip(plain.inputs, real.inputs, strict=True)}
    left = list(plain.parameters)
    for wanted in real.parameters:
        alike = [p for p in left if p.shape == wanted.shape]
        if not alike:
            raise TaskError(f"nothing is like the parameter {wanted.name}")
        alike.sort(key=lambda p: (p.name not in own, _last(p) != _last(wanted)))
        left.remove(alike[0])
        names[alike[0].name] = wanted.name
    return {**names, plain.outputs[0].name: real.outputs[0].name}


def _last(spec: TensorSpec) -> str:
    """``weight`` of ``conv_weight``."""
    return spec.name.rpartition("_")[2]


_LIKELY_FAST: dict[str, tuple[str, ...]] = {
    "math": ("fast",),
    "loop": ("simd",),
    "threads": ("one",),
    "real": ("float",),
    "block_size": ("256", "128"),
    "grid": ("vector", "stride"),
}
"""Values that rarely lose; of all other slots every value is tried before these are left."""


def _departures(plan: Plan) -> int:
    return sum(value not in _LIKELY_FAST.get(slot, (value,)) for slot, value in plan.slots)


def ceiling_kernels(task: Task, language: Language, limit: int) -> list[Kernel]:
    """Up to ``limit`` distinct mistake-free kernels in a fixed order; none for a task that the writer does not know:
    our own, and those of KernelBench that the inventory of operators holds.

    Loop orders, passes and fusions come first under the settings that rarely lose, then under all others.
    """
    known = counterpart(task)
    if known is None:
        return []
    task, names = known
    plans = list(enumerate_plans(task, language))[::-1]  # the plainest values come first there
    plans.sort(key=_departures)
    kernels: dict[str, Kernel] = {}
    for plan in plans:
        if len(kernels) >= limit:
            break
        kernel = Kernel(dialect="c_abi", language=language, source=render(task, plan, names))
        kernels.setdefault(kernel.digest, kernel)
    return list(kernels.values())
