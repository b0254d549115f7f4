"""`kevin past`: what the later turns of a pretraining go on from. Study steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kevin.cli.options import ConfigOption, OutOption, StoreOption, load_config, school_config

app = typer.Typer(help="Make the judged answers that later turns of a pretraining go on from.")


@app.command()
def tasks(out: OutOption, config: ConfigOption = None) -> None:
    """Draw the tasks that are answered: the pretraining's own, in its styles, sizes drawn anew.

    A folder or a hub's model that cannot be base_model.init is refused here, before anything is judged.
    """
    study = load_config(config)
    from kevin.train.past import write_past_tasks
    from kevin.train.pretrained import check_pretrained
    from kevin.train.weights import is_packed

    init = study.base_model.init
    if init is not None and not is_packed(init):
        check_pretrained(init)
    write_past_tasks(study, out)


@app.command()
def written(
    tasks: Annotated[Path, typer.Option("--tasks", metavar="FILE", help="What `kevin past tasks` wrote.")],
    store: StoreOption,
    out: OutOption,
    config: ConfigOption = None,
) -> None:
    """Let the kernel writer answer them, rightly and with mistakes, each kernel judged."""
    study = school_config(config)
    from kevin.train.past_answers import judge_written

    judge_written(study, tasks, out, store=store)
