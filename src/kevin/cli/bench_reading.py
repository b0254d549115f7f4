"""`kevin bench reading`: how much of what a base model gets wrong is misread."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kevin.cli.options import ConfigOption, load_config
from kevin.core.errors import UsageError


def bench_reading(
    model: Annotated[Path, typer.Option("--model", metavar="DIR", help="A base model that went to school.")],
    tasks: Annotated[Path, typer.Option("--tasks", metavar="FILE", help="tasks.parquet of a study.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The readings, a row a task (.csv).")],
    split: Annotated[str, typer.Option("--split", help="train, level1, level2, ...: which of its tasks.")] = "train",
    backend: Annotated[
        str | None, typer.Option("--backend", help="transformers or vllm, in place of the base policy's.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Share of modules that a model of `base_model.init` restates rightly before it writes a kernel.

    A kernel for another module than the one asked for is wrong, however well it is written. Nothing is judged here: a
    CPU will do, with --backend transformers.
    """
    study = load_config(config)
    import csv
    import io

    from kevin.core.files import read_tasks, write_text
    from kevin.core.progress import progress
    from kevin.policy.load import load_policy
    from kevin.train.past_answers import base_policy
    from kevin.train.reading import read_modules, restatement
    from kevin.writer.restate import NEARLY

    asked = read_tasks(tasks, split)
    known = [task for task in asked if restatement(task) is not None]
    if not known:
        raise UsageError(f"{tasks}: the kernel writer knows no task of split {split}; try --split level1")
    name = base_policy(study)
    policy = load_policy(
        name, study.policies[name].model_copy(update={"model": str(model), **({"backend": backend} if backend else {})})
    )
    with progress(len(known), "reading", "modules") as bar:
        found = read_modules(policy, known, study.language, lambda reading: bar.update())
    policy.close()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["task_id", "level", "split", "right", "said"])
    writer.writerows([r.task_id, r.level, split, r.right, r.said] for r in found)
    write_text(out, text.getvalue())
    for level in sorted({r.level for r in found}):
        of_level = [r for r in found if r.level == level]
        nearly = sum(r.said == NEARLY for r in of_level)
        typer.echo(
            f"level {level}: {sum(r.right for r in of_level)} of {len(of_level)} modules read right, "
            f"{nearly} but for a shape or a tensor"
        )
    if outside := len(asked) - len(known):
        typer.echo(f"{outside} of {len(asked)} tasks are left out: the kernel writer does not know them")
