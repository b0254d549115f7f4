"""What differs between C++ and CUDA inside a kernel's body: who walks over results, rows and their elements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from kevin.core.types import Language
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.stages import Stage
from kevin.writer.slots import Slots, parallel, simd

_THREAD = "idx i = blockIdx.x * (idx)blockDim.x + threadIdx.x;"


@dataclass(frozen=True)
class Mode:
    """Language and decisions as one stage sees them."""

    language: Language
    slots: Slots

    @property
    def rows(self) -> str:
        """Who owns a row: in C++ always a thread."""
        return self.slots.get("rows", "thread") if self.language == "cuda" else "thread"

    def inner(self, reduction: str | None = None) -> str | None:
        """What stands before an inner loop."""
        return simd(reduction) if self.language == "cpp" else self.unrolled

    @property
    def unrolled(self) -> str | None:
        """What stands before an inner loop in CUDA."""
        return "#pragma unroll 4" if self.language == "cuda" and self.slots.get("loop") == "unroll" else None

    def owned_by(self, rows: str) -> Mode:
        return replace(self, slots={**self.slots, "rows": rows})

    @contextmanager
    def results(self, code: Code, total: str, *, innermost: bool = False) -> Iterator[None]:
        """Flat index ``i`` of a result: one a thread, or a loop, which may be the ``innermost``."""
        if self.language == "cpp":
            with loop(code, "i", total, simd() if innermost else parallel()):
                yield
            return
        code.add(_THREAD)
        if self.slots.get("grid") == "stride":
            head = f"for (; i < {total}; i += gridDim.x * (idx)blockDim.x)"
            with code.block(head, off_by_one=head.replace(total, f"{total} - 1", 1)):
                yield
            return
        text = f"if (i >= {total}) return;"
        code.add(text, missing_bounds=None, undeclared_name="if (i >= num) return;")
        yield

    @contextmanager
    def each_row(self, code: Code, num: str, reduction: str | None = None) -> Iterator[None]:
        """Row ``r``, and ``lane`` of ``lanes`` where threads share it."""
        if self.language == "cpp":
            with loop(code, "r", num, parallel(reduction)):
                yield
            return
        if self.rows in ("thread", "warp"):
            code.add(_THREAD)
        owner = {"thread": "i", "warp": "i / 32", "split": "blockIdx.x / 64"}.get(self.rows, "blockIdx.x")
        code.add(f"idx r = {owner};")
        if self.rows != "thread":
            lane, lanes = {
                "warp": ("i % 32", "32"),
                "split": ("blockIdx.x % 64 * blockDim.x + threadIdx.x", "64 * blockDim.x"),
            }.get(self.rows, ("threadIdx.x", "blockDim.x"))
            code.add(f"idx lane = {lane}, lanes = {lanes};")
        if self.rows in ("thread", "warp"):
            code.add(f"if (r >= {num}) return;", missing_bounds=None)
        yield

    @contextmanager
    def each(self, code: Code, length: str, reduction: str | None = None) -> Iterator[None]:
        """Element ``n`` of a row: all of them, or every ``lanes``-th. Empty ``reduction``: one needs the last."""
        if self.rows == "thread":
            with loop(code, "n", length, self.unrolled if reduction == "" else self.inner(reduction)):
                yield
            return
        if self.unrolled:
            code.add(self.unrolled)
        head = "for (idx n = lane; n < {}; n += lanes)"
        wrong = {"off_by_one": head.format(f"{length} - 1"), "undeclared_name": head.format("num")}
        with code.block(head.format(length), **wrong):
            yield

    def join(self, code: Code, *names: str, how: str = "sum_of") -> None:
        """Every thread's part becomes the value of the whole row."""
        if self.rows != "thread":
            for name in names:
                code.add(f"{name} = {how}({name});", op_left_out=None)

    @contextmanager
    def first_lane(self, code: Code) -> Iterator[None]:
        with nullcontext() if self.rows == "thread" else code.block("if (lane == 0)"):
            yield


@contextmanager
def loop(code: Code, var: str, bound: str, pragma: str | None = None) -> Iterator[None]:
    """A counting loop that is the same in both languages."""
    if pragma:
        code.add(pragma)
    head = f"for (idx {var} = 0; {var} < {{}}; {var}++)"
    wrong = {"undeclared_name": head.format("num"), "off_by_one": head.format(f"{bound} - 1")}
    with code.block(head.format(bound), **wrong):
        yield


def store(code: Code, stage: Stage, value: str, index: str = "i", **wrong: str) -> None:
    """Store ``value``, run through the stage's chain; ``wrong``: by mistake, what stands in its place."""
    place = f"{stage.target}[{index}]"
    texts = {m: f"{place} = {stage.applied(v, index)};" for m, v in wrong.items()}
    right = f"{place} = {stage.applied(value, index)}"
    code.add(f"{right};", **texts, missing_semicolon=right)


def zero(code: Code, *names: str) -> None:
    for name in names:
        code.add(f"real {name} = 0;", uninitialised=f"real {name};")
