"""Trainings: their bill beforehand, what a pretraining goes on from, reinforcement learning, and its audit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kevin.cli.options import (
    ConfigOption,
    OutOption,
    StoreOption,
    TasksOption,
    device_config,
    file,
    folder,
    given_to,
    load_config,
    school_config,
    step,
)
from kevin.core.errors import UsageError

if TYPE_CHECKING:
    from kevin.core.config import Study

NUM_REHEARSED = 64
"""Answers recorded for each task of a rehearsal, where the kernel writer knows so many."""


def train(
    run: Annotated[str, typer.Option(metavar="NAME", help="A key of `runs`.")],
    tasks: TasksOption,
    out: Annotated[Path, folder("Folder of the run; a killed run goes on there.")],
    init: Annotated[Path | None, folder("Initial model, in place of that of `train.init`.")] = None,
    store: Annotated[Path | None, folder("Verdict store. Default: the study's own.")] = None,
    config: ConfigOption = None,
) -> None:
    """Train a policy on kernels that are judged for real.

    On several GPUs: accelerate launch --config_file config/accelerate/zero3-8.yaml $(command -v kevin) train ...
    """
    study = device_config(config)
    if init is not None:
        key = study.for_run(run).train.init
        study = _with_model(study, key, str(init))
    from kevin.train.run import leave_together, run_training

    run_training(study, run, tasks, out, store=store)
    leave_together()


@given_to("kevin.train.checkpoint:export_policy")
def export_policy(
    run_folder: Annotated[Path, folder("Folder of a training run.", "--run-dir")],
    out: Annotated[Path, folder("Gets model and tokenizer.")],
) -> None:
    """Copy the model of a run's last checkpoint: an ordinary policy for `kevin rollout`, vLLM or anything else."""


def plan(
    run: Annotated[
        str | None, typer.Option(metavar="NAME", help="A key of `runs`. Default: the section `train` alone.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Any causal language model in Hugging Face's format in place of that of `train.init`: a folder, a "
            "config.json, or a hub id that is in this machine's cache. Weights are not needed.",
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Devices that share the training. Default: the scale's.")
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="One of the assumptions printed, changed; repeatable."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Print what a training run will cost: GPU-hours, memory, tokens, kernels, disk."""
    study = load_config(config)
    study = study.for_run(run) if run else study
    if model is not None:
        study = _with_model(study, study.train.init, model)
    from kevin.train.bill import bill_text

    changes: dict[str, Any] = dict(_assumption(text) for text in assume or [])
    changes |= {} if gpus is None else {"num_devices": gpus}
    typer.echo(bill_text(study, run, changes), nl=False)
    if study.train.lora is not None:
        from kevin.train.fit import table

        typer.echo(
            f"\nKeys that fit a GPU of another size, and a step on one as fast as an H200:\n{table(study, changes)}",
            nl=False,
        )


def _assumption(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--assume {text}: give a name and a value, e.g. --assume response_share=1")
    return name.strip(), value.strip()


def _with_model(study: Study, policy: str, model: str) -> Study:
    changed = study.policies[policy].model_copy(update={"model": model})
    return study.model_copy(update={"policies": {**study.policies, policy: changed}})


def random_model(
    like: Annotated[Path, typer.Option(metavar="PATH", help="config.json of a causal language model, or its folder.")],
    out: Annotated[Path, folder("Gets model and tokenizer.")],
    tokenizer: Annotated[
        Path | None, folder("Of a model whose tokenizer is taken. Default: one made from --tasks.")
    ] = None,
    tasks: Annotated[
        Path | None, file("tasks.parquet: the kernel writer's answers to them are judged, not its own.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights.")] = 0,
    config: ConfigOption = None,
) -> None:
    """Write a model in the shapes of another, with random weights, to rehearse a training without its weights."""
    if tokenizer is None and tasks is None:
        raise UsageError("--tokenizer or --tasks: a tokenizer is taken from a model, or made from tasks")
    from kevin.core.files import read_tasks
    from kevin.train.random_model import write_random_model
    from kevin.writer.past_files import rehearsed_answers

    given = read_tasks(tasks) if tasks is not None else []
    language = load_config(config).language if tasks is not None else "cuda"
    answers = {t.id: rehearsed_answers(t, language, NUM_REHEARSED, seed) for t in given}
    count = write_random_model(like, tokenizer, out, seed, tasks=given, language=language, answers=answers)
    typer.echo(f"{out}: {count:,} parameters")


@given_to("kevin.train.checkpoint:merge_adapter")
def merge_adapter(
    base: Annotated[Path, folder("Folder of the model that it was trained on.")],
    adapter: Annotated[Path, folder("Folder of the adapter, as peft saves it.")],
    out: Annotated[Path, folder("Gets model and tokenizer.")],
) -> None:
    """Merge an adapter into its base: an ordinary policy for `kevin rollout`, vLLM or anything else."""


def forecast(config: ConfigOption = None) -> None:
    """Say how long each stage of the study will take on this machine; measures for some seconds."""
    study = load_config(config)
    from kevin.train.forecast import forecast_text
    from kevin.workflow.resources import Machine

    cores = len(os.sched_getaffinity(0))
    typer.echo(forecast_text(study, cores, Machine(study, cores, gpus=0).side_by_side), nl=False)


pasts = typer.Typer(help="Make the judged answers that later turns of a pretraining go on from.")


@pasts.command("tasks")
def past_tasks(out: OutOption, config: ConfigOption = None) -> None:
    """Draw the tasks that are answered: the pretraining's own, in its styles, sizes drawn anew.

    A folder or a hub's model that cannot be base_model.init is refused here, before anything is judged.
    """
    study = load_config(config)
    from kevin.policy.weights import is_packed
    from kevin.train.pretrained import check_pretrained
    from kevin.writer.past_files import write_past_tasks

    init = study.base_model.init
    if init is not None and not is_packed(init):
        check_pretrained(init)
    write_past_tasks(study, out)


@pasts.command("written")
def judge_past(
    tasks: Annotated[Path, file("What `kevin past tasks` wrote.")],
    store: StoreOption,
    out: OutOption,
    config: ConfigOption = None,
) -> None:
    """Let the kernel writer answer them, rightly and with mistakes, each kernel judged."""
    study = school_config(config)
    from kevin.rollout.written import judge_answers
    from kevin.writer.past_files import past_answers

    judge_answers(study, past_answers(study, tasks), tasks, out, store=store)


audits = typer.Typer(
    help="Audit trainings for reward hacking: what was seen, and what a judge without guards would have paid.",
    no_args_is_help=True,
)


@audits.command("kernels")
@step
@given_to("kevin.train.audit_turns:audit_run", device_config)
def audit_kernels(
    run: Annotated[str, typer.Option(metavar="NAME", help="A key of `runs`.")],
    folder: Annotated[Path, folder("Its folder.", "--run-dir")],
    tasks_path: TasksOption,
    store: StoreOption,
    out: OutOption,
    config: ConfigOption = None,
) -> None:
    """Write every turn of a training with the rules that it broke and what it would have been paid without guards.

    What this judge refused or found wrong is checked and timed as KernelBench does; a killed run goes on where it was.
    """


COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "export-policy": export_policy,
    "merge-adapter": merge_adapter,
}
