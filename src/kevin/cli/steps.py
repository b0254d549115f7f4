"""The study's steps: files in, files out, each written in one piece. Snakemake calls them; a person may too."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kevin.cli.options import (
    BaselinesOption,
    ConfigOption,
    ManyTurnsOption,
    OutOption,
    PolicyOption,
    ScoresOption,
    SplitOption,
    StoreOption,
    SummariesOption,
    TasksOption,
    device_config,
    file,
    folder,
    given_to,
    load_config,
    report_config,
    school_config,
    study_provenance,
)
from kevin.core.errors import UsageError

log = logging.getLogger(__name__)

SearchOption = Annotated[
    list[Path] | None, file("turns.parquet of a strategy, or answers.csv of `kevin publish`; repeatable.", "--search")
]

RunsOption = Annotated[list[Path] | None, folder("Folder of a training run; repeatable.", "--run-dir")]
MadeTasksOption = Annotated[Path | None, file("tasks.parquet of `kevin tasks build`.", "--tasks")]

FLOOR_US = 100.0
"""Below this a call's overhead hides what a kernel gains; the paper's tasks take longer than that too."""


def base_model(
    out: Annotated[Path, folder("Folder for model and tokenizer.")],
    weights: Annotated[Path | None, folder("What `kevin unpack-weights` made of base_model.init.")] = None,
    past_tasks: Annotated[Path | None, file("What `kevin past tasks` wrote.")] = None,
    past: Annotated[list[Path] | None, file("turns.parquet of `kevin past written`; repeatable.")] = None,
    config: ConfigOption = None,
) -> None:
    """Train the study's own base language model, from scratch or from `base_model.init`."""
    study = school_config(config)
    if (past_tasks is not None) != bool(past):
        raise UsageError("--past-tasks and --past come together")
    if study.base_model.init is None and (weights is not None or past):
        raise UsageError("base_model.init is null: a base model from scratch has no --weights, --past-tasks and --past")
    if study.base_model.has_past and not past:
        raise UsageError(
            f"base_model.pretraining.later_share is {study.base_model.pretraining.later_share:g}: later turns go on "
            f"from --past-tasks and --past; with 0 there are none"
        )
    from kevin.core.files import writing
    from kevin.train.base_model import train_base_model
    from kevin.train.school import train_school
    from kevin.writer.corpus import NO_PASTS, Writers, school_tasks, scratch_corpus
    from kevin.writer.past_files import read_pasts

    with writing(out):
        if study.base_model.init is None:
            train_base_model(study, scratch_corpus(study), out)
            return
        lessons = school_tasks(study)
        pasts = NO_PASTS if past_tasks is None else read_pasts(study, past_tasks, past or [], lessons)
        with Writers(study, lessons, pasts) as corpus:
            train_school(study, corpus, out, weights)


def unpack_weights(
    out: Annotated[Path, folder("Folder for model and tokenizer.")],
    config: ConfigOption = None,
) -> None:
    """Read the pretrained weights of `base_model.init` into a folder that loads at once."""
    study = load_config(config)
    if study.base_model.init is None:
        raise UsageError(
            "base_model.init is null: the base model is trained from scratch, and has no weights to unpack"
        )
    from kevin.core.files import writing
    from kevin.train.pretrained import unpack_weights as unpack

    with writing(out):
        unpack(study.base_model.init, out)


def check_base_model(
    model: Annotated[Path, folder("The base model's folder.")],
    tasks: TasksOption,
    store: StoreOption,
    out: Annotated[Path, file("What was found (JSON).")],
    config: ConfigOption = None,
) -> None:
    """Stop the study when the base model has not learned what is expected of it."""
    study = device_config(config)
    from kevin.rollout.run import open_judge
    from kevin.train.base_model_check import check_base_model as check

    with open_judge(study, store, show_progress=True) as judge:
        check(study, model, tasks, judge, out)


def baselines(tasks: TasksOption, out: OutOption, config: ConfigOption = None) -> None:
    """Time every held-out task in eager and compiled PyTorch."""
    study = device_config(config)
    from kevin.core.files import read_held_out, write_parquet
    from kevin.core.progress import Progress
    from kevin.judge.benchmarks.baselines import measure_baselines

    every = read_held_out(tasks)
    with Progress(len(every), "baselines", "tasks") as bar:
        frame = measure_baselines(every, study.judge, on_task=lambda task: bar.update())
    fast = frame[(frame["baseline"] == "eager") & (frame["median_us"] < FLOOR_US)]["task_id"]
    if len(fast):
        log.warning("PyTorch takes less than %g us here, near what a call costs, for: %s", FLOOR_US, ", ".join(fast))
    write_parquet(out, frame, "baselines", study_provenance(study, protocol_digest=study.judge.digest))


def rollout(
    tasks: TasksOption,
    split: Annotated[
        list[str], typer.Option(metavar="NAME", help="train, level1, level2, ... or unseen; repeatable, with --out.")
    ],
    policy: Annotated[str, typer.Option(metavar="KEY", help="A key of `policies`.")],
    store: StoreOption,
    out: Annotated[list[Path], file("What is written of a split, in one piece or not at all.")],
    strategy: Annotated[
        str | None, typer.Option(metavar="NAME", help="A key of `search.strategies`. Default: none.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Let a policy write kernels over several turns, each judged; resumes where a killed run stopped."""
    if len(split) != len(out) or len({path.resolve().parent for path in out}) != len(out):
        raise UsageError(
            f"{len(split)} times --split and {len(out)} times --out: each split needs a file of its own, in a folder "
            "of its own, in the same order"
        )
    study = device_config(config)
    from kevin.rollout.run import run_rollouts

    run_rollouts(study, policy, list(zip(split, out, strict=True)), tasks, strategy=strategy, store=store)


def ceiling(
    tasks: TasksOption,
    split: SplitOption,
    store: StoreOption,
    out: OutOption,
    config: ConfigOption = None,
) -> None:
    """Judge the best that the kernel writer knows: what a policy can reach."""
    study = device_config(config)
    from kevin.rollout.written import run_ceiling
    from kevin.writer.ceiling import ceiling_kernels

    run_ceiling(study, split, tasks, out, ceiling_kernels, limit=study.ceiling_kernels, store=store)


@given_to("kevin.report.scores:score_rollouts", load_config)
def score(
    turns: Annotated[Path, file("turns.parquet of a rollout.")],
    tasks: TasksOption,
    policy: PolicyOption,
    split: SplitOption,
    out: OutOption,
    config: ConfigOption = None,
) -> None:
    """Turn the verdicts of a rollout into scores and returns."""


@given_to("kevin.report.published:publish", load_config)
def publish(
    out: Annotated[Path, folder("The folder to publish; written in one piece.")],
    scores: ScoresOption,
    turns: ManyTurnsOption,
    tasks: TasksOption,
    store: StoreOption,
    baselines: BaselinesOption = None,
    search: SearchOption = None,
    summaries: SummariesOption = None,
    tables: Annotated[list[Path] | None, file("A table; repeatable.")] = None,
    models: Annotated[
        list[Path] | None, folder("A trained model, of which the adapter is taken; repeatable.", "--model")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write answers, kernels, tasks and all else of which `kevin tables` makes the tables again, and others can judge
    the kernels again (`kevin judge --published`); with trained models and a model card. It uploads nothing.
    """


def replicates(
    out: OutOption,
    published: Annotated[
        list[Path] | None, folder("What `kevin publish` wrote of one seed of one arm; repeatable.")
    ] = None,
    figures: Annotated[Path | None, folder("Gets by_task.png, .pdf and .csv: what each task adds.")] = None,
) -> None:
    """Write the table of a comparison that was declared before it was run, over all its replicates."""
    from kevin.core.files import read_tasks, write_csv
    from kevin.report.published import Published
    from kevin.report.replicates import Found, read_replicates, replicates_table

    folders = published or []
    found = Found(*read_replicates(folders))
    write_csv(out, replicates_table(found))
    if figures is not None:
        from kevin.report.figures.replicates import write_by_task

        write_by_task(found, read_tasks(Published(folders[0]).tasks), figures)


@given_to("kevin.report.pooled:pool")
def pool(
    folders: Annotated[list[Path], folder("What `kevin publish` wrote of one seed; repeatable.", "--published")],
    out: Annotated[Path, folder("Gets what `kevin publish` writes, of all of them; for `kevin tables`.")],
) -> None:
    """Put studies of one recipe, each by a seed of its own, together as seeds of one study."""


def tables(
    published: Annotated[Path, folder("A folder of `kevin publish`.")],
    out_dir: Annotated[Path, folder("Gets each table's .csv, .md and .tex.")],
) -> None:
    """Make every table of a published study again, from its folder alone."""
    from kevin.report.published import Published, make_published_tables

    made = make_published_tables(published, out_dir, report_config([Published(published).config]))
    log.info("%s: %s", out_dir, ", ".join(path.name for path in made))


@given_to("kevin.report.catalogue:make_table", report_config)
def table(
    name: Annotated[str, typer.Argument(metavar="NAME", help="primary, claims, table1, turns, field, audit, ...")],
    out: OutOption,
    scores: ScoresOption = None,
    turns: ManyTurnsOption = None,
    search: SearchOption = None,
    runs: RunsOption = None,
    kernels: Annotated[list[Path] | None, file("What `kevin audit kernels` wrote; repeatable.")] = None,
    tasks: MadeTasksOption = None,
    baselines: BaselinesOption = None,
    summaries: SummariesOption = None,
    config: ConfigOption = None,
) -> None:
    """Write one table as CSV, and beside it as Markdown (.md) and LaTeX (.tex). It says which files it needs."""


@given_to("kevin.report.catalogue:make_figure", report_config)
def figure(
    name: Annotated[str, typer.Argument(metavar="NAME", help="serial_scaling, fast_p, training, search, ...")],
    out_dir: Annotated[Path, folder("Gets NAME.png, .pdf and .csv.")],
    scores: ScoresOption = None,
    turns: ManyTurnsOption = None,
    runs: RunsOption = None,
    tasks: MadeTasksOption = None,
    baselines: BaselinesOption = None,
    store: Annotated[Path | None, folder("Verdict store: roofline, and the case study's bound.")] = None,
    table: Annotated[Path | None, file("A figure of a table's name: that table.")] = None,
    summaries: SummariesOption = None,
    config: ConfigOption = None,
) -> None:
    """Draw one figure, with a CSV of exactly what is plotted. It says which files it needs."""


@given_to("kevin.report.html:make_report", load_config)
def report(
    tasks: TasksOption,
    out: OutOption,
    tables: Annotated[list[Path] | None, file("A table; repeatable.")] = None,
    figures: Annotated[list[Path] | None, file("A figure's .png; repeatable.")] = None,
    scores: ScoresOption = None,
    turns: ManyTurnsOption = None,
    baselines: BaselinesOption = None,
    summaries: SummariesOption = None,
    config: ConfigOption = None,
) -> None:
    """Put everything on one self-contained page."""


def summary(
    config: ConfigOption = None,
    provenance: Annotated[
        Path | None,
        typer.Option("--provenance", metavar="FILE", help="Also write where the study comes from, and its minutes."),
    ] = None,
) -> None:
    """Print the numbers that matter in a few lines, from the study's written tables."""
    study = report_config(config)
    from kevin.report.summary import study_record, summary_text

    typer.echo(summary_text(study), nl=False)
    if provenance is not None:
        from kevin.core.files import write_text
        from kevin.core.texts import strict_json
        from kevin.judge.sandbox.isolation import detect_isolation

        here = {"cores": len(os.sched_getaffinity(0)), "isolation": str(detect_isolation())}
        write_text(provenance, strict_json(study_record(study) | here, indent=1) + "\n")


COMMANDS: dict[str, Callable[..., None]] = {
    "base-model": base_model,
    "check-base-model": check_base_model,
    "unpack-weights": unpack_weights,
    "baselines": baselines,
    "rollout": rollout,
    "ceiling": ceiling,
    "score": score,
    "publish": publish,
    "pool": pool,
    "replicates": replicates,
    "tables": tables,
    "table": table,
    "figure": figure,
    "report": report,
    "summary": summary,
}
