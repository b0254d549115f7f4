"""`kevin audit`: how often a training cheated, and what that would have paid. Study steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kevin.cli.extras import EXTRAS, require_extra
from kevin.cli.options import (
    ConfigOption,
    OutOption,
    StoreOption,
    TasksOption,
    device_config,
)

app = typer.Typer(
    help="Audit trainings for reward hacking: what was seen, and what a judge without guards would have paid.",
    no_args_is_help=True,
)


@app.callback()
def needs_the_study() -> None:
    require_extra("study", "this command", *EXTRAS["study"])


@app.command()
def kernels(
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="A key of `runs`.")],
    folder: Annotated[Path, typer.Option("--run-dir", metavar="DIR", help="Its folder.")],
    tasks: TasksOption,
    store: StoreOption,
    out: OutOption,
    config: ConfigOption = None,
) -> None:
    """Write every turn of a training with the rules that it broke and what it would have been paid without guards.

    What this judge refused or found wrong is checked and timed as KernelBench does; a killed run goes on where it was.
    """
    study = device_config(config)
    from kevin.train.audit_turns import audit_run

    audit_run(study, run, folder, tasks, store.resolve(), out)
