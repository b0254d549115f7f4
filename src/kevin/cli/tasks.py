"""`kevin tasks`: build the study's tasks, list them, show one."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kevin.cli.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    OutOption,
    checkout,
    file,
    load_config,
    print_columns,
    study_provenance,
)
from kevin.core.errors import UsageError

if TYPE_CHECKING:
    from kevin.core.config import Study
    from kevin.core.types import Task

log = logging.getLogger(__name__)

app = typer.Typer(help="Build, list and show the tasks.", no_args_is_help=True)

DEFAULT_TASKS = Path("results/tasks.parquet")
FileOption = Annotated[Path, file("A file of `kevin tasks build`, or one Python module.", "--tasks")]


@app.command()
def build(
    out: OutOption,
    split_file: Annotated[Path | None, file("Gets the split in readable form, as YAML.")] = None,
    config: ConfigOption = None,
) -> None:
    """Make the training and evaluation tasks. A study step."""
    study = load_config(config)
    from kevin.core.files import write_tasks
    from kevin.tasks.build import build_tasks, write_split

    tasks = build_tasks(study)
    write_tasks(out, tasks, study_provenance(study))
    if split_file:
        write_split(split_file, tasks, study.seed)
    counts = Counter(split for _, split in tasks)
    log.info("%s: %s", out, ", ".join(f"{num} {split}" for split, num in counts.items()))


@app.command("list")
def list_tasks(
    tasks: FileOption = DEFAULT_TASKS,
    split: Annotated[str | None, typer.Option(metavar="NAME", help="Only this split, e.g. level2.")] = None,
) -> None:
    """List the tasks with their split, level and operators."""
    from kevin.core.files import read_parquet, read_tasks

    frame, _ = read_parquet(tasks, "tasks")
    splits = dict(zip(frame["task_id"], frame["split"], strict=True))
    rows = [
        (task.id, splits[task.id], str(task.level), ", ".join(op.name for op in task.ops), ", ".join(task.flaws))
        for task in read_tasks(tasks, split)
    ]
    print_columns([("task", "split", "level", "operators", "flaws"), *rows])


@app.command()
def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task's id, or a Python module's path.")],
    tasks: FileOption = DEFAULT_TASKS,
    prompt: Annotated[bool, typer.Option("--prompt", help="Print the prompt of the first turn instead.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show one task: its reference module, or the prompt that a policy gets. Catalog tasks need no file."""
    study = _study(config)
    found = _find(task, tasks, study.task_size)
    if not prompt:
        typer.echo(found.source.rstrip())
        return
    from kevin.core.dialogue import base_prompt

    typer.echo(base_prompt(found, study.dialect, study.language, with_example=True).rstrip())


def _study(config: list[Path] | None) -> Study:
    """The configuration; outside of a study's folder and with none named, the defaults of every key."""
    from kevin.core.config import load_study

    if config or DEFAULT_CONFIG.exists():
        return load_config(config)
    return load_study([], plays=False)


def _find(name: str, file: Path, size: Literal["cpu", "gpu"]) -> Task:
    """A Python module, a task of the file, or one of the catalog. Raises UsageError when it is none of them."""
    from kevin.core.files import read_tasks
    from kevin.tasks.catalog import catalog
    from kevin.tasks.format import task_from_file

    if name.endswith(".py"):
        if not Path(name).is_file():
            raise UsageError(f"{name}: no such file")
        return task_from_file(Path(name))
    known = {task.id: task for task in catalog(size)}
    if file.exists():
        known.update({task.id: task for task in read_tasks(file)})
    if name not in known:
        raise UsageError(f"no task {name!r} in {file} or in the catalog; `kevin tasks list` names those of the study")
    return known[name]


@app.command("coverage")
def show_coverage(
    kernelbench: Annotated[
        Path | None, checkout("A checkout of KernelBench: its modules' shapes are compared.")
    ] = None,
) -> None:
    """Say how much of KernelBench's levels 1 and 2 the operators' inventory holds."""
    from kevin.tasks.kernelbench_ops import coverage

    found = coverage(kernelbench)
    for name, problem in found.items():
        if problem:
            typer.echo(f"{name}: {problem}")
    for level in ("level1", "level2"):
        inside = [problem is None for name, problem in found.items() if name.startswith(level)]
        typer.echo(f"{level}: {sum(inside)} of {len(inside)} inside the inventory")
