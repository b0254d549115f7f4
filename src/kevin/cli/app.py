"""The command tree. Every command lives in a module of its group; nothing heavy is imported here."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kevin import __version__
from kevin.cli import (
    bench,
    config,
    diff,
    judge,
    serve,
    steps,
    tasks,
    train,
    write,
)
from kevin.cli.options import HAND_PANEL, STEPS_PANEL, file, step
from kevin.cli.supervisor import note
from kevin.core.errors import UsageError

_HELP = """Judge GPU and CPU kernels, and run the study of multi-turn reinforcement learning that writes them.

Judge one kernel:      kevin judge --task-file task.py --kernel kernel.cpp

The whole study:       make study   (or: snakemake)

Every configuration key is explained in config/README.md.
"""
_EPILOG = (
    "Exit codes: 0 done (a verdict was formed, whatever it says) · 2 bad usage · 3 the harness failed · "
    "4 nothing that was written is right · 130 interrupted · 143 terminated."
)

app = typer.Typer(
    name="kevin",
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class LogFile(logging.FileHandler):
    """Goes quiet when it cannot be written: the work may still succeed, and if it does not, it says why itself."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"kevin {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug messages.")] = False,
    log_file: Annotated[Path | None, file("Write all messages to this file too.", "--log")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    logger = logging.getLogger("kevin")
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    logger.propagate = False
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers = [console]
    if log_file:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        handler = LogFile(log_file, mode="w")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        note("log", log_file)


@app.command(hidden=True)
def answer(fd: Annotated[int, typer.Option(help="An open socket: see kevin.api.answering.")]) -> None:
    """Judge what comes in over a socket. The process behind `kevin.Judge` and `kevin serve`, not for people."""
    from kevin.api.answering import answer as answer_socket

    answer_socket(fd)


_ENDED = "the experiment that it was made for has ended"
REPLACED = {
    "rl-gain": "use kevin table rl_gain",
    "step-time": "use kevin table step_time",
    "training-figure": "use kevin figure NAME --run-dir DIR",
    "search-table": "use kevin table search --search FILE",
    "search-figure": "use kevin figure search",
    "field": "use kevin table field",
    "answers": "use kevin publish",
    "audit table": "use kevin table audit --kernels FILE",
    "audit figure": "use kevin figure audit --table FILE",
    "past own": "later turns of a pretraining go on from kernels of the kernel writer, see kevin past written",
    "bench report": _ENDED,
    "bench reading": _ENDED,
    "bench products": _ENDED,
}
"""Commands of earlier versions, and what does their work now."""
_GROUPS = {"audit": train.audits, "bench": bench.app, "past": train.pasts}


def _replaced(name: str) -> Callable[..., None]:
    def command(rest: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise UsageError(f"there is no `kevin {name}` any more: {REPLACED[name]}")

    return command


app.command("judge", rich_help_panel=HAND_PANEL)(judge.judge)
app.command("serve", rich_help_panel=HAND_PANEL)(serve.serve)
app.command("write", rich_help_panel=HAND_PANEL)(step(write.write))
app.command("plan", rich_help_panel=HAND_PANEL)(train.plan)
app.command("diff", rich_help_panel=HAND_PANEL)(step(diff.diff))
app.command("forecast", rich_help_panel=HAND_PANEL)(train.forecast)
app.command("random-model", rich_help_panel=HAND_PANEL)(step(train.random_model))
app.add_typer(bench.app, name="bench", rich_help_panel=HAND_PANEL)
app.add_typer(tasks.app, name="tasks", rich_help_panel=HAND_PANEL)
app.add_typer(config.app, name="config", rich_help_panel=HAND_PANEL)
app.add_typer(train.pasts, name="past", rich_help_panel=STEPS_PANEL)
app.add_typer(train.audits, name="audit", rich_help_panel=STEPS_PANEL)
for words in REPLACED:
    *group, name = words.split()
    among = _GROUPS[group[0]] if group else app
    among.command(name, hidden=True, context_settings={"ignore_unknown_options": True})(_replaced(words))
for name, command in {**steps.COMMANDS, **train.COMMANDS}.items():
    app.command(name, rich_help_panel=STEPS_PANEL)(step(command))
