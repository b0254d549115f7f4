"""Who walks over rows and their elements: loops in C++; in CUDA the threads of a row, whose parts come together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from kevin.core.types import Language
from kevin.writer.code import Code
from kevin.writer.slots import Slots, parallel, simd
from kevin.writer.special.stage import Rows, Stage

THREAD = "int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;"


@dataclass(frozen=True)
class Walk:
    """Language and decisions as one stage sees them."""

    language: Language
    slots: Slots

    @contextmanager
    def row(self, code: Code, stage: Stage, rows: Rows, *, output: bool = True) -> Iterator[None]:
        """Row ``r``, with ``p`` where it is read and ``q`` where it is written; in CUDA ``lane`` of ``lanes``, too."""
        if self.language == "cuda":
            self._add_owner(code, rows)
        with nullcontext() if self.language == "cuda" else code.loop("r", rows.num, pragma=parallel()):
            code.add(f"const float* p = {stage.source} + {rows.start()};")
            if output:
                code.add(f"float* q = {stage.target} + {rows.start()};")
            yield

    def _add_owner(self, code: Code, rows: Rows) -> None:
        """Which row and which of its elements are this thread's."""
        code.add(THREAD)
        row, lane, lanes = {
            "thread": ("i", "0", "1"),
            "warp": ("i / 32", "i % 32", "32"),
            "split": ("blockIdx.x / 64", "i % (64 * blockDim.x)", "64 * blockDim.x"),
        }.get(self.slots["rows"], ("blockIdx.x", "threadIdx.x", "blockDim.x"))
        code.add(f"int64_t r = {row};")
        code.add(f"int64_t lane = {lane}, lanes = {lanes};")
        if self.slots["rows"] in ("thread", "warp"):
            code.add(f"if (r >= {rows.num}) return;", missing_bounds=None)

    @contextmanager
    def each(self, code: Code, length: str, reduction: str | None = None) -> Iterator[None]:
        """Element ``n`` of a row: all of them, or every ``lanes``-th. Empty ``reduction``: one needs the last."""
        if self.language == "cpp":
            with code.loop("n", length, pragma=None if reduction == "" else simd(reduction)):
                yield
            return
        head = "for (int64_t n = lane; n < {}; n += lanes)"
        wrong = {"off_by_one": head.format(f"{length} - 1"), "undeclared_name": head.format("num")}
        with code.block(head.format(length), **wrong):
            yield

    @property
    def _is_shared(self) -> bool:
        return self.language == "cuda" and self.slots["rows"] != "thread"

    def join(self, code: Code, *names: str, how: str = "sum_of") -> None:
        """Every thread's part becomes the value of the whole row."""
        if self._is_shared:
            for name in names:
                code.add(f"{name} = {how}({name});", op_left_out=None)

    @contextmanager
    def first_lane(self, code: Code) -> Iterator[None]:
        """Only one thread of those that share a row goes on."""
        with code.block("if (lane == 0)") if self._is_shared else nullcontext():
            yield

    def top(self, code: Code, length: str, *, is_result: bool = False) -> None:
        """The largest of a row. Where it only keeps exponentials small (not ``is_result``), any other would do."""
        kind = "real" if self.language == "cuda" else "float"
        code.add(f"{kind} top = p[0];", uninitialised=f"{kind} top;")
        with self.each(code, length, "max:top"):
            wrong = {"wrong_formula": "top = p[n] < top ? p[n] : top;"} if is_result else {}
            code.add("top = p[n] > top ? p[n] : top;", **wrong)
        self.join(code, "top", how="top_of")


def zeros(code: Code, *names: str) -> None:
    for name in names:
        code.add(f"real {name} = 0;", uninitialised=f"real {name};")
