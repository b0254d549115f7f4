"""Pooling and convolutions, one result at a time: loops over the window, with a look at the borders."""

from __future__ import annotations

from contextlib import ExitStack

from kevin.tasks.operators import along
from kevin.writer.code import Code
from kevin.writer.general.dims import Dims, product, read_at, wrapped
from kevin.writer.general.mode import Mode, loop, store, zero
from kevin.writer.general.stages import Stage

_OUT = "dhq"
"""No w: that is the second factor of a product."""
_IN = "abc"
_TAP = "jkl"


def _letters(num: int, letters: str) -> str:
    return letters[-num:]


def add_place(code: Code, dims: Dims, spatial: int) -> None:
    """Coordinates of result ``i``: ``b``, ``m`` (channel) and one letter a spatial dimension."""
    names = ["m"] if spatial == len(dims.names) - 1 else ["r", "m"]
    names += list(_letters(spatial, _OUT))
    parts = [f"{name} = {dims.coordinate(axis)}" for axis, name in enumerate(names)]
    swapped = [*parts[:-2], f"{names[-2]} = {dims.coordinate(len(names) - 1)}"]
    swapped.append(f"{names[-1]} = {dims.coordinate(len(names) - 2)}")
    code.add(f"idx {', '.join(parts)};", wrong_axis=f"idx {', '.join(swapped)};")


def offset(stage: Stage, row: str, places: list[str]) -> str:
    """Flat index into the source: the row of batch and channel, then spatial places."""
    text = row
    names = stage.in_dims.names[-len(places) :]
    for name, place in zip(names, places, strict=True):
        text = f"{text if _is_bracketed(text) or ' ' not in text else f'({text})'} * {name} + {place}"
    return text


def _enter(code: Code, stack: ExitStack, stage: Stage, axis: int, num: int) -> str:
    """The loop over one axis of the window; gives the place in the input."""
    assert stage.main is not None
    attrs = stage.main.op.attrs
    kernel, padding = along(attrs, "kernel", axis), along(attrs, "padding", axis)
    stride = along(attrs, "stride", axis, 1)
    out, tap, place = (_letters(num, s)[axis] for s in (_OUT, _TAP, _IN))
    size = stage.in_dims.names[-num:][axis]
    looks = padding > 0 or stage.name.startswith("conv_transpose")
    if kernel > 1 or looks:  # what looks at the borders needs a loop to go on with
        stack.enter_context(loop(code, tap, str(kernel)))
    text = read_at(stage.main, axis, out, tap)
    if stage.name.startswith("conv_transpose"):
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


def pool(code: Code, stage: Stage, mode: Mode) -> None:
    assert stage.main is not None
    num = 1 if len(stage.in_dims.names) == 2 else len(stage.in_dims.names) - 2
    dims, top = stage.out_dims, stage.name.startswith("max")
    adaptive = stage.name == "adaptive_avg_pool"
    with mode.results(code, dims.total):
        add_place(code, dims, num)
        code.add(f"real acc = {'-3e38f' if top else '0'};", uninitialised="real acc;")
        row = "m" if num == len(dims.names) - 1 else f"(r * {dims.names[1]} + m)"
        with ExitStack() as taps:
            places = [
                _adaptive(code, taps, stage, axis, num) if adaptive else _enter(code, taps, stage, axis, num)
                for axis in range(num)
            ]
            at = offset(stage, row, places)
            code.add(f"real e = {stage.source}[{at}];")
            code.add("acc = e > acc ? e : acc;" if top else "acc += e;", wrong_formula="acc = e;")
        if top:
            store(code, stage, "acc")
        elif adaptive:
            spans = " * ".join(f"({e} - {s})" for s, e in (_span(stage, axis, num) for axis in range(num)))
            store(code, stage, f"acc / ({spans})", op_left_out="acc")
        else:
            volume = product([str(along(stage.main.op.attrs, "kernel", axis)) for axis in range(num)])
            store(code, stage, f"acc / {wrapped(volume)}", op_left_out="acc")


def _span(stage: Stage, axis: int, num: int) -> tuple[str, str]:
    """First and one past the last place that an adaptive pool's result looks at."""
    assert stage.main is not None
    size, out = stage.in_dims.names[-num:][axis], int(stage.main.op.attrs["size"])
    if out == 1:
        return "0", size
    letter = _letters(num, _OUT)[axis]
    return f"{letter} * {size} / {out}", f"(({letter} + 1) * {size} + {out - 1}) / {out}"


def _adaptive(code: Code, taps: ExitStack, stage: Stage, axis: int, num: int) -> str:
    start, end = _span(stage, axis, num)
    tap = _letters(num, _TAP)[axis]
    head = f"for (idx {tap} = {start}; {tap} < {{}}; {tap}++)"
    taps.enter_context(code.block(head.format(end), off_by_one=head.format(f"{end} - 1")))
    return tap


def conv(code: Code, stage: Stage, mode: Mode) -> None:
    """A convolution, transposed or not."""
    assert stage.main is not None
    dims, attrs = stage.out_dims, stage.main.op.attrs
    num = len(dims.names) - 2
    weight, *bias = stage.main.parameters
    depthwise = stage.name == "depthwise_conv2d"
    groups = int(attrs.get("groups", 1))
    with mode.results(code, dims.total):
        add_place(code, dims, num)
        if bias:
            code.add(f"real sum = {bias[0]}[m];", op_left_out="real sum = 0;")
        else:
            zero(code, "sum")
        row = f"(r * {stage.in_dims.names[1]} + m)" if depthwise else None
        with ExitStack() as taps:
            if row is None:
                row = _over_channels(code, taps, stage, groups, mode.unrolled)
            places = [_enter(code, taps, stage, axis, num) for axis in range(num)]
            at = offset(stage, row, places)
            tap = _tap(stage, groups, depthwise, num)
            line = f"sum += {stage.source}[{at}] * {weight}[{tap}];"
            code.add(line, wrong_formula=line.replace("] * ", "] + "))
        store(code, stage, "sum")


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
    assert stage.main is not None
    channels, out = stage.in_dims.names[1], stage.out_dims.names[1]
    if depthwise:
        text = "m"
    elif not stage.name.startswith("conv_transpose"):
        text = f"(m * {channels} + s)" if groups == 1 else f"(m * ({channels} / {groups}) + s)"
    elif groups == 1:
        text = f"(s * {out} + m)"
    else:
        part = f"({out} / {groups})"
        text = f"((m / {part} * ({channels} / {groups}) + s) * {part} + m % {part})"
    for axis in range(num):
        kernel = along(stage.main.op.attrs, "kernel", axis)
        if kernel > 1:
            text = f"{wrapped(text) if '+' in text and not text.startswith('(') else text} * {kernel}"
            text = f"({text} + {_letters(num, _TAP)[axis]})"
    return text.removeprefix("(").removesuffix(")") if _is_bracketed(text) else text


def _is_bracketed(text: str) -> bool:
    """Whether the first bracket is closed by the last one."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return i == len(text) - 1 and text.startswith("(")
    return False
