"""Pooling and convolutions, one result or a line of them at a time: loops over the window, which look at borders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from kevin.tasks.operators import along
from kevin.writer.kernels.code import Code
from kevin.writer.kernels.dims import Dims, product, read_at, wrapped
from kevin.writer.kernels.mode import Mode, loop, store
from kevin.writer.kernels.stages import Stage
from kevin.writer.slots import parallel, simd

_OUT = "dhq"
"""No w: that is the second factor of a product."""
_IN = "abc"
_TAP = "jkl"
LONGEST_LINE = 1 << 14
"""Sums that may lie on the stack."""


def _add_place(code: Code, dims: Dims, names: str) -> None:
    """Coordinates of result, or line, ``i`` under these letters: ``r``, ``m`` (channel) and one a spatial dimension."""
    places = [dims.coordinate(axis) for axis in range(len(names))]
    parts = [f"{name} = {place}" for name, place in zip(names, places, strict=True)]
    swapped = [*places[:-2], *reversed(places[-2:])]
    wrong = [f"{name} = {place}" for name, place in zip(names, swapped, strict=True)]
    code.add(f"idx {', '.join(parts)};", wrong_axis=f"idx {', '.join(wrong)};")


def offset(stage: Stage, row: str, places: list[str]) -> str:
    """Flat index into the source: the row of batch and channel, a name or in brackets, then spatial places."""
    text = row
    for name, place in zip(stage.in_dims.names[-len(places) :], places, strict=True):
        text = f"{row if text == row else f'({text})'} * {name} + {place}"
    return text


def _enter(code: Code, stack: ExitStack, stage: Stage, axis: int, num: int) -> str:
    """The loop over one axis of the window; gives the place in the input."""
    kernel, stride, padding, *_ = along(stage.attrs, axis)
    out, tap, place, size = (names[axis - num] for names in (_OUT, _TAP, _IN, stage.in_dims.names))
    looks = padding > 0 or stage.is_transposed
    if kernel > 1 or looks:  # what looks at the borders needs a loop to go on with
        stack.enter_context(loop(code, tap, str(kernel)))
    text = read_at(stage.step, axis, out, tap)
    if stage.is_transposed:
        code.add(f"idx {place} = {text};")
        checks = f"{place} < 0" + (f" || {place} % {stride} != 0" if stride > 1 else "")
        last = f"{place} / {stride}" if stride > 1 else place
        code.add(f"if ({checks} || {last} >= {size}) continue;", missing_bounds=None)
        return last
    if not padding:
        return text
    code.add(f"idx {place} = {text};")
    code.add(f"if ({place} < 0 || {place} >= {size}) continue;", missing_bounds=None)
    return place


@dataclass(frozen=True)
class Sums:
    """One sum, or in C++ one of each place ``q`` of a line of results."""

    name: str
    length: str = ""
    """Of the line."""

    @property
    def value(self) -> str:
        return f"{self.name}[q]" if self.length else self.name

    @property
    def index(self) -> str:
        """Where its result lies, of line ``i``."""
        return f"i * {wrapped(self.length)} + q" if self.length else "i"

    @contextmanager
    def each(self, code: Code) -> Iterator[None]:
        with loop(code, "q", self.length, simd()) if self.length else nullcontext():
            yield

    def begin(self, code: Code, start: str, **wrong: str) -> None:
        """Declare it with a first value; ``wrong``: by mistake, what stands in its place."""
        if self.length:
            code.add(f"real {self.name}[{self.length}];")
        real = "" if self.length else "real "
        texts = {m: f"{real}{self.value} = {text};" for m, text in wrong.items()}
        with self.each(code):
            uninitialised = None if self.length else f"real {self.name};"
            code.add(f"{real}{self.value} = {start};", **texts, uninitialised=uninitialised)


@contextmanager
def _results(code: Code, dims: Dims, num: int, mode: Mode, name: str) -> Iterator[Sums]:
    """Results one by one, or by lines."""
    letters = "rm"[num - len(dims.names) :] + _OUT[-num:]
    if mode.slots.get("order") != "line":
        with mode.results(code, dims.total):
            _add_place(code, dims, letters)
            yield Sums(name)
        return
    lines = dims.part(0, -1)
    with loop(code, "i", lines.total, parallel()):
        _add_place(code, lines, letters[:-1])
        yield Sums(name, dims.names[-1])


def orders(stage: Stage) -> tuple[str, ...]:
    """How the loops of a pool or a convolution may be ordered."""
    axis = _num_axes(stage) - 1
    moved = stage.is_transposed or along(stage.attrs, axis).padding > 0
    if moved or stage.name.startswith("adaptive") or not 8 <= stage.out_dims.sizes[-1] <= LONGEST_LINE:
        return ("window",)
    return ("window", "line")


def _num_axes(stage: Stage) -> int:
    """Axes along which a window moves."""
    return max(1, len(stage.in_dims.names) - 2)


def pool(code: Code, stage: Stage, mode: Mode) -> None:
    num, dims, top = _num_axes(stage), stage.out_dims, stage.name.startswith("max")
    adaptive = stage.name == "adaptive_avg_pool"
    if num == len(dims.names) - 2:  # a channel of a sample is as any other
        dims = Dims((product(dims.names[:2]), *dims.names[2:]), (dims.sizes[0] * dims.sizes[1], *dims.sizes[2:]))
    with _results(code, dims, num, mode, "acc") as acc:
        acc.begin(code, "-3e38f" if top else "0")
        with ExitStack() as taps:
            places = [
                _adaptive(code, taps, stage, axis, num) if adaptive else _enter(code, taps, stage, axis, num)
                for axis in range(num)
            ]
            taps.enter_context(acc.each(code))
            code.add(f"real e = {stage.source}[{offset(stage, 'm', places)}];")
            add = f"{acc.value} = e > {acc.value} ? e : {acc.value};" if top else f"{acc.value} += e;"
            code.add(add, wrong_formula=f"{acc.value} = e;")
        with acc.each(code):
            if top:
                store(code, stage, acc.value, acc.index)
                return
            if adaptive:
                num_taps = " * ".join(f"({e} - {s})" for s, e in (_span(stage, axis, num) for axis in range(num)))
            else:
                num_taps = product([str(along(stage.attrs, axis).kernel) for axis in range(num)])
            divided = f"{acc.value} / {num_taps if num_taps.isdigit() else f'({num_taps})'}"
            store(code, stage, divided, acc.index, op_left_out=acc.value)


def _span(stage: Stage, axis: int, num: int) -> tuple[str, str]:
    """First and one past the last place that an adaptive pool's result looks at."""
    size, out, letter = stage.in_dims.names[axis - num], int(stage.attrs["size"]), _OUT[axis - num]
    return f"{letter} * {size} / {out}", f"(({letter} + 1) * {size} + {out - 1}) / {out}"


def _adaptive(code: Code, taps: ExitStack, stage: Stage, axis: int, num: int) -> str:
    start, end = _span(stage, axis, num)
    tap = _TAP[axis - num]
    head = f"for (idx {tap} = {start}; {tap} < {{}}; {tap}++)"
    taps.enter_context(code.block(head.format(end), off_by_one=head.format(f"{end} - 1")))
    return tap


def conv(code: Code, stage: Stage, mode: Mode) -> None:
    """A convolution, transposed or not."""
    attrs, num = stage.attrs, _num_axes(stage)
    weight, *bias = stage.step.parameters
    depthwise = stage.name == "depthwise_conv2d"
    groups = int(attrs.get("groups", 1))
    start, wrong = (f"{bias[0]}[m]", {"op_left_out": "0"}) if bias else ("0", {})
    with _results(code, stage.out_dims, num, mode, "sum") as sums:
        sums.begin(code, start, **wrong)
        row = f"(r * {stage.in_dims.names[1]} + m)" if depthwise else None
        with ExitStack() as taps:
            if row is None:
                row = _over_channels(code, taps, stage, groups, mode.unrolled)
            places = [_enter(code, taps, stage, axis, num) for axis in range(num)]
            taps.enter_context(sums.each(code))
            at = offset(stage, row, places)
            tap = _tap(stage, groups, depthwise, num)
            line = f"{sums.value} += {stage.source}[{at}] * {weight}[{tap}];"
            code.add(line, wrong_formula=line.replace("] * ", "] + "))
        with sums.each(code):
            store(code, stage, sums.value, sums.index)


def _over_channels(code: Code, taps: ExitStack, stage: Stage, groups: int, pragma: str | None) -> str:
    """The loop over the input channels that a result reads; gives the row of batch and channel."""
    channels = stage.in_dims.names[1]
    if groups == 1:
        taps.enter_context(loop(code, "s", channels, pragma))
        return f"(r * {channels} + s)"
    taps.enter_context(loop(code, "s", f"{channels} / {groups}", pragma))
    group = f"m / ({stage.out_dims.names[1]} / {groups})"
    return f"(r * {channels} + {group} * ({channels} / {groups}) + s)"


def _tap(stage: Stage, groups: int, depthwise: bool, num: int) -> str:
    """Index into the weights."""
    channels, out = stage.in_dims.names[1], stage.out_dims.names[1]
    if depthwise:
        text = "m"
    elif not stage.is_transposed:
        text = f"(m * {channels} + s)" if groups == 1 else f"(m * ({channels} / {groups}) + s)"
    elif groups == 1:
        text = f"(s * {out} + m)"
    else:
        part = f"({out} / {groups})"
        text = f"((m / {part} * ({channels} / {groups}) + s) * {part} + m % {part})"
    for axis in range(num):
        kernel = along(stage.attrs, axis).kernel
        if kernel > 1:
            text = f"({text} * {kernel} + {_TAP[axis - num]})"
    return text.removeprefix("(").removesuffix(")")
