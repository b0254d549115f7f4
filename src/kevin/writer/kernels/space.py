"""Slots of kernels, and the values that a sequence allows."""

from __future__ import annotations

from collections.abc import Sequence

from kevin.core.types import Language
from kevin.tasks.ops import Step
from kevin.writer.kernels.norms import MOMENTS, SOFTMAX, can_be_split
from kevin.writer.kernels.orders import orders
from kevin.writer.kernels.rows import LONGEST_FOR_ONE_THREAD, SHORTEST_TO_SHARE, is_over_rows, is_shared, rows_of
from kevin.writer.kernels.stages import Program, Stage, cut
from kevin.writer.kernels.tensor import ways
from kevin.writer.slots import Slots

Space = dict[str, tuple[str, ...]]


def space(steps: Sequence[Step], language: Language) -> Space:
    """Every slot with its values; the first is the plainest."""
    program = cut(steps, fused=True)
    values: Space = {"math": ("strict", "fast")}
    if language == "cpp":
        values |= {"loop": ("plain", "simd", "unroll"), "threads": ("one", "openmp"), "real": ("float", "double")}
        if found := next((o for s in program.stages if len(o := orders(s)) > 1), ()):
            values["order"] = found
    else:
        values |= {"real": ("float", "double"), "block_size": ("256", "64", "128", "512")}
        values |= _cuda(program)
    if passes := _passes(program):
        values["passes"] = passes
    if any(s.main and s.chain for s in program.stages):
        values["fusion"] = ("pass", "store")
    return values


def _cuda(program: Program) -> Space:
    values: Space = {}
    if any(is_over_rows(s) or is_product(s) for s in program.stages):
        values["loop"] = ("plain", "unroll")
    if (found := max((ways(s) for s in program.stages if is_product(s)), key=len, default=())) and len(found) > 1:
        values["product"] = found
    if rows := _row_values(program):
        values["rows"] = rows
    if any(not is_over_rows(s) or s.chain or s.name == "frobenius_norm" for s in program.stages):
        separate = cut(program.steps, fused=False)
        vectors = any(can_be_vectors(s) for s in separate.stages)
        values["grid"] = ("one", "stride", "vector") if vectors else ("one", "stride")
    return values


def can_be_vectors(stage: Stage) -> bool:
    """Whether a pass over a tensor can read four floats at once."""
    return stage.main is None and stage.in_dims.sizes == stage.out_dims.sizes and stage.out_dims.num % 4 == 0


def is_product(stage: Stage) -> bool:
    """Whether tiles are a way to compute it."""
    return stage.kind == "contract" and stage.name != "matmul_diagonal" and not is_over_rows(stage)


def _passes(program: Program) -> tuple[str, ...]:
    """Of the first stage that can be computed in different passes: the choice is the plan's."""
    for stage in program.stages:
        if stage.name in SOFTMAX and stage.name != "log_softmax":
            return ("three", "stored")
        if stage.name in MOMENTS:  # of few elements the variance is lost between squares and their mean
            return ("two_pass", "one_pass") if rows_of(stage).num_elements >= SHORTEST_TO_SHARE else ()
    return ()


def own_slots(stage: Stage, slots: Slots) -> Slots:
    """The plan's slots as a stage sees them: what it does not know takes its plainest value."""
    own = dict(slots)
    allowed = ("three", "stored") if stage.name in SOFTMAX else ("two_pass", "one_pass")
    if own.get("passes") not in allowed:
        own["passes"] = allowed[0]
    if "order" in own and own["order"] not in (known := orders(stage) or ("",)):
        own["order"] = known[0]
    return own


def _row_values(program: Program) -> tuple[str, ...]:
    """How threads may share rows: what every stage over rows can do."""
    stages = [s for s in program.stages if is_over_rows(s) and s.name != "frobenius_norm"]
    shared = [s for s in stages if is_shared(s)]
    if not shared:
        return ()
    longest = max(rows_of(s).num_elements for s in shared)
    values = ("thread",) if longest <= LONGEST_FOR_ONE_THREAD else ()
    if any(s.kind == "scan" for s in shared):
        return (*values, "warp")
    split = ("split",) if any(can_be_split(s) for s in shared) else ()
    return (*values, "tree", "shuffle", "warp", *split)
