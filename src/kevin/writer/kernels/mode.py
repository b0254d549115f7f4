"""What differs between C++ and CUDA inside a kernel's body: who walks over results, rows and their elements; and how
CUDA's threads that share a row come together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from kevin.core.types import Language
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.stages import Stage
from kevin.writer.slots import Slots, parallel, simd

BARRIER = "__syncthreads();"
THREAD = "idx i = blockIdx.x * (idx)blockDim.x + threadIdx.x;"


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
        code.add(THREAD)
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
            code.add(THREAD)
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

    def join(self, code: Code, *names: str) -> None:
        """Every thread's part becomes the value of the whole row."""
        if self.rows != "thread":
            for name in names:
                code.add(f"{name} = sum_of({name});", op_left_out=None)

    @contextmanager
    def first_lane(self, code: Code) -> Iterator[None]:
        with nullcontext() if self.rows == "thread" else code.block("if (lane == 0)"):
            yield


@contextmanager
def loop(code: Code, var: str, bound: str, pragma: str | None = None, *, step: int = 1) -> Iterator[None]:
    """A counting loop that is the same in both languages."""
    if pragma:
        code.add(pragma)
    head = f"for (idx {var} = 0; {var} < {{}}; {var}{'++' if step == 1 else f' += {step}'})"
    wrong = {"undeclared_name": head.format("num")}
    if step == 1:
        wrong["off_by_one"] = head.format(f"{bound} - 1")
    with code.block(head.format(bound), **wrong):
        yield


@contextmanager
def unrolled(code: Code, var: str, num: int, times: int = 0) -> Iterator[None]:
    """A loop over what a thread keeps in registers, where no loop must be left; or one that is unrolled ``times``."""
    code.add(f"#pragma unroll{f' {times}' if times else ''}")
    with code.block(f"for (int {var} = 0; {var} < {num}; {var}++)"):
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


# --- CUDA -------------------------------------------------------------------------------------------------------


def launch_shape(rows: str, num_rows: str) -> str:
    """``<<<...>>>`` of a kernel over rows, by who owns them."""
    grids = {
        "thread": f"({num_rows} + B - 1) / B",
        "warp": f"({num_rows} * 32 + B - 1) / B",
        "split": f"{num_rows} * 64",
    }
    return f"<<<{grids.get(rows, num_rows)}, B, 0, stream>>>"


def add_helper(code: Code, slots: Slots, name: str) -> None:
    """``sum_of`` or ``top_of``: one value per thread to the value of all threads that share a row."""
    join = "v += {}" if name == "sum_of" else "v = max(v, {})"
    with code.block(f"__device__ real {name}(real v)"):
        if slots["rows"] == "tree":
            code.add("__shared__ real s[B];")
            code.add("s[threadIdx.x] = v;")
            code.add(BARRIER, missing_barrier=None)
            with code.block("for (int h = blockDim.x / 2; h > 0; h /= 2)"):
                code.add(f"if (threadIdx.x < h) {join.format('s[threadIdx.x + h]')};")
                code.add("s[threadIdx.x] = v;")
                code.add(BARRIER, missing_barrier=None)
            code.add("v = s[0];")
            code.add(BARRIER, missing_barrier=None)
        else:
            shuffle = join.format("__shfl_xor_sync(0xffffffff, v, o)") + ";"
            wrong = shuffle.replace("xor", "down")
            code.add(
                f"for (int o = 16; o > 0; o /= 2) {shuffle}", wrong_formula=f"for (int o = 8; o > 0; o /= 2) {wrong}"
            )
            if slots["rows"] in ("shuffle", "split"):
                code.add("__shared__ real s[32];")
                code.add("if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;")
                code.add(BARRIER, missing_barrier=None)
                code.add("v = s[0];")
                with code.block("for (int w = 1; w < blockDim.x / 32; w++)"):
                    code.add(f"{join.format('s[w]')};")
                code.add(BARRIER, missing_barrier=None)
        code.add("return v;")
