"""A whole C++ kernel of general stages: sizes, scratch, one loop nest after the other."""

from __future__ import annotations

from collections.abc import Sequence

from kevin.core import abi
from kevin.core.types import TaskSpec
from kevin.tasks.ops import Step
from kevin.writer.code import Code
from kevin.writer.general import products, windows
from kevin.writer.general.cuda import add_sizes, flat, row_emitter
from kevin.writer.general.mode import Mode, store
from kevin.writer.general.pointwise import add_function
from kevin.writer.general.rows import is_over_rows
from kevin.writer.general.space import own_slots
from kevin.writer.general.stages import Stage, cut
from kevin.writer.slots import Slots, add_prelude, parallel, simd, uses_math


def program(spec: TaskSpec, steps: Sequence[Step], slots: Slots) -> Code:
    """The kernel of these steps, complete from the first pragma to the last brace."""
    plan = cut(steps, fused=slots.get("fusion") != "pass")
    body = Code()
    add_sizes(body, spec, plan)
    signature = abi.signature(spec, "cpp")
    with body.block(signature, wrong_type=signature.replace("float*", "double*", 1)):
        for name, dims in plan.scratch:
            body.add(f"static float {name}[{dims.total}];")
        for stage in plan.stages:
            add_function(body, stage, stage.out_dims)
            _add_stage(body, stage, Mode("cpp", own_slots(stage, slots)))
    code = Code()
    add_prelude(code, slots, uses_math=uses_math(body))
    code.extend(body)
    return code


def _add_stage(code: Code, stage: Stage, mode: Mode) -> None:
    if stage.name == "frobenius_norm":
        _whole_norm(code, stage)
    elif stage.main and stage.main.kind == "loss":
        code.add("double total = 0;", uninitialised="double total;")
        row_emitter(stage)(code, stage, mode)
        code.add("out[0] = total;")
    elif is_over_rows(stage):
        row_emitter(stage)(code, stage, mode)
    elif stage.name in ("", "matmul_diagonal"):
        flat(code, stage, mode)
    elif stage.main and stage.main.kind == "pool":
        windows.pool(code, stage, mode)
    elif products.is_window(stage):
        windows.conv(code, stage, mode)
    else:
        products.naive(code, stage, mode)


def _whole_norm(code: Code, stage: Stage) -> None:
    total = stage.in_dims.total
    code.add("double squares = 0;", uninitialised="double squares;")
    code.add(parallel("+:squares"))
    head = f"for (idx i = 0; i < {total}; i++)"
    line = f"squares += {stage.source}[i] * {stage.source}[i];"
    code.add(f"{head} {line}", wrong_formula=f"{head} squares += {stage.source}[i];")
    code.add("real inv = 1 / sqrt(squares);", wrong_formula="real inv = 1 / squares;")
    code.add(simd())
    with code.block(head):
        store(code, stage, f"{stage.source}[i] * inv")
