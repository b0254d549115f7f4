"""A verdict for people."""

from __future__ import annotations

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kevin.api.batch import speedup_interval
from kevin.core.texts import digits
from kevin.core.types import Kernel, Outcome, Timing, Verdict

_MEANING = {
    Outcome.PARSE_ERROR: "no kernel was found",
    Outcome.REFUSED: "a rule was broken",
    Outcome.COMPILE_ERROR: "it does not compile",
    Outcome.RUNTIME_ERROR: "it failed while running",
    Outcome.TIMEOUT: "it took too long",
    Outcome.INCORRECT: "its results are wrong",
    Outcome.QUARANTINED: "its results are right, its speed is not possible: to be looked at by a person",
    Outcome.CORRECT: "its results match the reference",
}
_MAX_MESSAGE_LINES = 40


def print_verdict(verdict: Verdict, kernel: Kernel, *, title: str, console: Console | None = None) -> None:
    """One screen with everything worth knowing."""
    console = console or Console(highlight=False)
    good = verdict.outcome is Outcome.CORRECT
    head = Text.assemble(
        (verdict.outcome.value, "bold green" if good else "bold red"), f"  {_MEANING[verdict.outcome]}"
    )
    if verdict.reason and verdict.reason != verdict.outcome.value:
        head.append(f" ({verdict.reason})")
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Outcome", head)
    for name, text in _rows(verdict, kernel):
        table.add_row(name, Text(text))
    console.print(Text(title, style="dim"))
    console.print(table)
    if verdict.message and not good:
        console.print(Panel(Text(_excerpt(verdict.message)), title="What its author is told", title_align="left"))


def _rows(verdict: Verdict, kernel: Kernel) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if verdict.speedup is not None:
        interval = speedup_interval(verdict.rounds)
        rounds = "1 round" if len(verdict.rounds) == 1 else f"{len(verdict.rounds)} rounds"
        ends = " to ".join(digits(end, 3) for end in interval or ())
        bounds = f"95 % interval over its {rounds}: {ends}" if ends else rounds
        rows.append(("Speedup", f"{digits(verdict.speedup, 3)}x over eager PyTorch ({bounds})"))
        if interval:
            rows.append(("", "Another run of it, on a busy machine or another day, may lie outside."))
    for name, timing in (("Kernel", verdict.timing), ("Reference", verdict.reference_timing)):
        if timing:
            rows.append((name, _timing(timing)))
    if verdict.num_trials and verdict.outcome.compiles:
        errors = [
            f"{value:.2g} {kind}"
            for kind, value in (("absolute", verdict.max_abs_error), ("relative", verdict.max_rel_error))
            if value is not None
        ]
        largest = f"; largest error {', '.join(errors)}" if errors else ""
        rows.append(("Checks", f"{verdict.trials_passed} of {verdict.num_trials} trials passed{largest}"))
    rows.append(("Dialect", f"{kernel.dialect}, {kernel.language}"))
    rows.append(("Device", verdict.device_name))
    rows += [_detail(name, value) for name, value in verdict.details.items()]
    rows.append(("Flags", ", ".join(verdict.flags) or "none"))
    if verdict.seconds:
        rows.append(("Judged in", ", ".join(f"{stage} {s:.2f} s" for stage, s in verdict.seconds.items())))
    return rows


def _detail(name: str, value: float | int | str | None) -> tuple[str, str]:
    """A measurement with the unit that its name ends in."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    if name.endswith("_share") and isinstance(value, float):
        text = f"{value:.1%}"
    stem, _, unit = name.rpartition("_")
    if unit in _UNITS:
        name, text = stem, f"{text} {unit}"
    return name.replace("_", " ").capitalize(), text


_UNITS = ("us", "ms", "s", "mb", "kb")


def _timing(timing: Timing) -> str:
    scale, unit = (1e-3, "ms") if timing.median_us >= 1000 else (1.0, "us")
    return (
        f"{timing.median_us * scale:.4g} {unit} median (IQR {digits(timing.iqr_us * scale, 2)} {unit}, "
        f"{timing.num_samples} calls)"
    )


def _excerpt(message: str) -> str:
    lines = message.strip().split("\n")
    if len(lines) <= _MAX_MESSAGE_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:_MAX_MESSAGE_LINES], f"[{len(lines) - _MAX_MESSAGE_LINES} more lines, see --json]"])
