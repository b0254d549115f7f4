"""The study's steps: files in, files out, each written in one piece. Snakemake calls them; a person may too."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    TurnsOption,
    load_config,
    study_provenance,
)
from kevin.core.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from kevin.core.types import Kernel, Task, Turn, Verdict

log = logging.getLogger(__name__)

MAX_MISSING_SHARE = 0.05
"""Of a rollout's kernels that may end without a verdict."""


def base_model(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for model and tokenizer.")],
    config: ConfigOption = None,
) -> None:
    """Train the study's own base language model."""
    study = load_config(config)
    from kevin.train.base_model import train_base_model

    train_base_model(study, out)


def baselines(tasks: TasksOption, out: OutOption, config: ConfigOption = None) -> None:
    """Time every task in eager and compiled PyTorch."""
    study = load_config(config)
    from kevin.core.files import read_tasks, write_parquet
    from kevin.core.progress import Progress, progress
    from kevin.judge.baseline import measure_baselines

    every = read_tasks(tasks)
    bar: Progress[object] = progress(len(every), "baselines", "tasks")
    with bar:
        frame = measure_baselines(every, study.judge, on_task=lambda task: bar.update())
    write_parquet(out, frame, "baselines", study_provenance(study, protocol_digest=study.judge.digest))


def rollout(
    tasks: TasksOption,
    split: SplitOption,
    policy: PolicyOption,
    store: StoreOption,
    out: OutOption,
    config: ConfigOption = None,
) -> None:
    """Let a policy write kernels over several turns, each judged; resumes where a killed run stopped."""
    study = load_config(config)
    if policy not in study.policies:
        raise UsageError(f"--policy {policy}: the configuration defines {', '.join(study.policies)}")
    from kevin.core.files import read_tasks, write_turns
    from kevin.judge.pool import JudgePool
    from kevin.policy.load import load_policy, policy_fingerprint
    from kevin.rollout.refine import RolloutSettings, refine

    chosen = read_tasks(tasks, split)
    checkpoint = out.with_name("checkpoint")
    identity = {"policy": policy_fingerprint(study.policies[policy]), "protocol": study.judge.digest}
    loaded = load_policy(policy, study.policies[policy])
    try:
        with JudgePool(study.judge, store, study.pool) as pool:
            settings = RolloutSettings.from_study(study)
            turns = refine(chosen, loaded, pool.judge, settings, checkpoint, identity=identity)
    finally:
        loaded.close()
    _check_complete(turns)
    write_turns(out, turns, study_provenance(study, policy=policy, split=split))
    shutil.rmtree(checkpoint)


def _check_complete(turns: list[Turn]) -> None:
    """Few kernels without a verdict are left out of every number; many of them mean that the harness is broken."""
    missing = sum(turn.outcome is None for turn in turns)
    if missing > MAX_MISSING_SHARE * len(turns):
        raise HarnessError(f"the harness failed on {missing} of {len(turns)} kernels; start again to retry them")
    if missing:
        log.warning("the harness failed on %d of %d kernels; they are left out", missing, len(turns))


def ceiling(
    tasks: TasksOption,
    split: SplitOption,
    store: StoreOption,
    out: OutOption,
    config: ConfigOption = None,
) -> None:
    """Judge the best that the kernel writer knows: what a policy can reach."""
    study = load_config(config)
    from kevin.core.files import read_tasks, write_turns
    from kevin.core.progress import Progress, progress
    from kevin.judge.pool import JudgePool
    from kevin.writer.ceiling import ceiling_kernels

    chosen = read_tasks(tasks, split)
    pairs = [
        (task, kernel) for task in chosen for kernel in ceiling_kernels(task, study.language, study.ceiling_kernels)
    ]
    bar: Progress[object] = progress(len(pairs), "ceiling", "kernels")
    with JudgePool(study.judge, store, study.pool) as pool, bar:
        results = pool.judge(pairs, on_verdict=lambda index, result: bar.update())
    numbers: Counter[str] = Counter()
    turns = []
    for (task, kernel), result in zip(pairs, results, strict=True):
        turns.append(_written_turn(task, numbers[task.id], kernel, result))
        numbers[task.id] += 1
    _check_complete(turns)
    write_turns(out, turns, study_provenance(study, policy="ceiling", split=split))


def _written_turn(task: Task, trajectory: int, kernel: Kernel, result: Verdict | HarnessError) -> Turn:
    """A kernel that no policy wrote, as a trajectory of one turn."""
    from kevin.core.dialogue import verdict_feedback
    from kevin.core.types import Turn, Verdict

    verdict = result if isinstance(result, Verdict) else None
    return Turn(
        task_id=task.id,
        trajectory=trajectory,
        turn=1,
        completion="",
        kernel=kernel,
        outcome=verdict.outcome if verdict else None,
        reason=verdict.reason if verdict else type(result).__name__,
        feedback=verdict_feedback(verdict) if verdict else "",
        verdict_key=verdict.key if verdict else None,
        speedup=verdict.speedup if verdict else None,
        num_prompt_tokens=0,
        num_completion_tokens=0,
        finish_reason="stop",
    )


def score(
    turns: TurnsOption,
    tasks: TasksOption,
    policy: PolicyOption,
    split: SplitOption,
    out: OutOption,
    config: ConfigOption = None,
) -> None:
    """Turn the verdicts of a rollout into scores and returns."""
    study = load_config(config)
    from kevin.report.scores import score_rollouts

    score_rollouts(turns, tasks, out, study=study, policy=policy, split=split)


def table(
    name: Annotated[str, typer.Argument(metavar="NAME", help="level1, level2, serial_parallel or tasks.")],
    scores: ScoresOption,
    out: OutOption,
    baselines: BaselinesOption = None,
    summaries: SummariesOption = None,
    config: ConfigOption = None,
) -> None:
    """Write one table as CSV."""
    study = load_config(config)
    from kevin.report.tables import TABLES, make_table

    _check_name("table", name, TABLES)
    make_table(name, scores or [], out, study=study, baselines=baselines, summaries=summaries or [])


def figure(
    name: Annotated[str, typer.Argument(metavar="NAME", help="serial_scaling, parallel_scaling, fast_p, ...")],
    out_dir: Annotated[Path, typer.Option("--out-dir", metavar="DIR", help="Gets NAME.png, .pdf and .csv.")],
    scores: ScoresOption = None,
    turns: ManyTurnsOption = None,
    summaries: SummariesOption = None,
    config: ConfigOption = None,
) -> None:
    """Draw one figure, with a CSV of exactly what is plotted."""
    study = load_config(config)
    from kevin.report.figures import FIGURES, make_figure

    _check_name("figure", name, FIGURES)
    make_figure(name, out_dir, study=study, scores=scores or [], turns=turns or [], summaries=summaries or [])


def report(
    tasks: TasksOption,
    out: OutOption,
    tables: Annotated[list[Path] | None, typer.Option("--tables", metavar="FILE", help="A table; repeatable.")] = None,
    figures: Annotated[
        list[Path] | None, typer.Option("--figures", metavar="FILE", help="A figure's .png; repeatable.")
    ] = None,
    scores: ScoresOption = None,
    turns: ManyTurnsOption = None,
    baselines: BaselinesOption = None,
    summaries: SummariesOption = None,
    config: ConfigOption = None,
) -> None:
    """Put everything on one self-contained page."""
    study = load_config(config)
    from kevin.report.html import make_report

    make_report(
        out,
        study=study,
        tables=tables or [],
        figures=figures or [],
        scores=scores or [],
        turns=turns or [],
        tasks=tasks,
        baselines=baselines,
        summaries=summaries or [],
    )


def summary(config: ConfigOption = None) -> None:
    """Print the numbers that matter in a few lines, from the study's written tables."""
    study = load_config(config)
    from kevin.report.summary import summary_text

    typer.echo(summary_text(study), nl=False)


def _check_name(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UsageError(f"no {what} {name!r}; there are {', '.join(known)}")


COMMANDS: dict[str, Callable[..., None]] = {
    "base-model": base_model,
    "baselines": baselines,
    "rollout": rollout,
    "ceiling": ceiling,
    "score": score,
    "table": table,
    "figure": figure,
    "report": report,
    "summary": summary,
}
