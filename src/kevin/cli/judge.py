"""`kevin judge`: one kernel for a person, or many pairs from a file."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kevin.api.pairs import make_protocol, make_task
from kevin.cli.options import JUDGING_PANEL, DeviceOption, checkout, configuration, file, folder, judging, load_config
from kevin.core.candidate import DialectChoice, make_kernel
from kevin.core.errors import UsageError
from kevin.core.limits import require_limits
from kevin.core.texts import read_text, strict_json

if TYPE_CHECKING:
    from kevin.core.protocol import JudgeProtocol
    from kevin.core.types import Kernel, Verdict

log = logging.getLogger(__name__)

_ONE, _MANY, _RUNS, _PUBLISHED = "One kernel", "Many kernels", "A run of KernelBench", "Published kernels"
_of_one = functools.partial(file, panel=_ONE)
_of_many = functools.partial(file, panel=_MANY)
_of_runs = functools.partial(typer.Option, rich_help_panel=_RUNS)


def judge(
    task_file: Annotated[
        Path | None,
        _of_one("The reference: a Python module with Model, get_inputs() and get_init_inputs(), as in KernelBench."),
    ] = None,
    kernel: Annotated[
        Path | None,
        _of_one('The candidate: a .py with ModelNew (load_inline), or a .cpp/.cu with extern "C" launch(...) (c_abi).'),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole verdict as JSON.", rich_help_panel=_ONE)
    ] = False,
    batch: Annotated[Path | None, _of_many('Lines of {"id", "reference", "kernel"}, sources inline.')] = None,
    out: Annotated[
        Path | None,
        _of_many("Verdicts, one line each, in the order of --batch. Ids that already stand in it are skipped."),
    ] = None,
    runs: Annotated[
        Path | None,
        folder(
            "Kernels as its generate_samples.py left them, runs/<name>; eval_results.json is written beside them, "
            "or to --out.",
            panel=_RUNS,
        ),
    ] = None,
    level: Annotated[int | None, _of_runs(min=1, max=4, help="KernelBench's level of the run.")] = None,
    kernelbench: Annotated[
        Path | None, checkout("A checkout of KernelBench; the pinned commit is fetched otherwise.", panel=_RUNS)
    ] = None,
    like_kernelbench: Annotated[
        bool,
        _of_runs(
            "--like-kernelbench",
            help="Results by its protocol (five trials of the task's inputs, 1e-4, 100 timed calls, no rules), ours "
            "beside them.",
        ),
    ] = False,
    published: Annotated[
        Path | None,
        folder(
            "Judge what `kevin publish` wrote again, by its own configuration, and say what differs.", panel=_PUBLISHED
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1, help="So many of its kernels, drawn at random; all when absent.", rich_help_panel=_PUBLISHED
        ),
    ] = None,
    device: DeviceOption = None,
    dialect: Annotated[DialectChoice, judging(help="auto tells them apart by file name and content.")] = "auto",
    rules: Annotated[
        str | None,
        judging(
            metavar="LIST",
            help="Rules to enforce: default, as the study's rewards do, or names with commas; none unless --config "
            "has some. Hits of the others are reported as flags.",
        ),
    ] = None,
    precision: Annotated[
        Literal["float32", "float16", "bfloat16"] | None,
        judging(help="Data type of inputs and weights; only float32 is judged."),
    ] = None,
    trials: Annotated[int | None, judging(min=1, help="Correctness trials.")] = None,
    tolerance: Annotated[float | None, judging(help="Both atol and rtol.")] = None,
    memcheck: Annotated[
        bool,
        judging(
            "--memcheck", help="On a GPU: one more call under compute-sanitizer, which sees every access out of bounds."
        ),
    ] = False,
    build_timeout: Annotated[float | None, judging(metavar="SECONDS", help="For compiling.")] = None,
    run_timeout: Annotated[
        float | None, judging(metavar="SECONDS", help="For all trials, and again for timing.")
    ] = None,
    store: Annotated[
        Path | None, folder("Keep verdicts here and reuse those that stand in it.", panel=JUDGING_PANEL)
    ] = None,
    config: Annotated[
        list[Path] | None,
        configuration(
            "Judge as this configuration's judge section says; the options above win over it.", panel=JUDGING_PANEL
        ),
    ] = None,
) -> None:
    """Compile, check and time a kernel against its PyTorch reference.

    The kernel runs in a process of its own, without network. A kernel that is refused, does not compile, crashes or is
    wrong still has a verdict, and the exit code is 0.
    """
    require_limits()
    if published is not None:
        if task_file or kernel or as_json or batch or runs or config:
            raise UsageError("--published DIR has its own configuration; with it go --sample, --out and --store alone")
        from kevin.cli.judge_published import judge_published

        raise typer.Exit(judge_published(published, sample, out=out, store=store))
    if sample is not None:
        raise UsageError("--sample goes with --published DIR")
    study = load_config(config, plays=False) if config else None
    protocol = make_protocol(
        study.judge if study else None,
        device=device,
        rules=rules,
        precision=precision,
        num_trials=trials,
        memcheck=memcheck or None,
        tolerance=tolerance,
        build_timeout_s=build_timeout,
        run_timeout_s=run_timeout,
    )
    if runs is not None:
        if task_file or kernel or as_json or batch or level is None:
            raise UsageError("--runs DIR goes with --level N, and without --task-file, --kernel, --json and --batch")
        from kevin.api.kernelbench import judge_runs
        from kevin.core.config import KernelBenchSource

        tasks = study.tasks.kernelbench if study else KernelBenchSource()
        if kernelbench is not None:
            tasks = tasks.model_copy(update={"path": str(kernelbench)})
        raise typer.Exit(judge_runs(runs, level, out, tasks, protocol, like_kernelbench, store))
    if level is not None or kernelbench is not None or like_kernelbench:
        raise UsageError("--level, --kernelbench and --like-kernelbench go with --runs DIR")
    if batch is not None:
        if task_file or kernel or as_json or out is None:
            raise UsageError("--batch FILE goes with --out FILE, and without --task-file, --kernel and --json")
        from kevin.api.batch import judge_batch

        raise typer.Exit(judge_batch(batch, out, protocol=protocol, dialect=dialect, store=store))
    if task_file is None or kernel is None or out is not None:
        raise UsageError(
            "give --task-file FILE and --kernel FILE, or --batch FILE and --out FILE, or --runs DIR and --level N, or "
            "--published DIR"
        )
    candidate = make_kernel(read_text(kernel), str(kernel), dialect, protocol)
    verdict = _judge_one(task_file, candidate, protocol, store)
    from kevin.api.batch import verdict_record
    from kevin.cli.verdict_view import print_verdict

    if as_json:
        typer.echo(strict_json(verdict_record(verdict), indent=2))
    else:
        print_verdict(verdict, candidate, title=f"{kernel} as {task_file}")


def _judge_one(task_file: Path, kernel: Kernel, protocol: JudgeProtocol, store_dir: Path | None) -> Verdict:
    """What the store knows is answered without torch, whose import takes longer than judging most kernels."""
    task = make_task(read_text(task_file), str(task_file))
    if store_dir is None:
        return _judge_new(task_file, kernel, protocol)
    from kevin.core.provenance import device_name
    from kevin.judge.store import VerdictStore, verdict_key

    store, key = VerdictStore(store_dir), verdict_key(task, kernel, protocol, device_name(protocol.device))
    verdict = store.get(key)
    if verdict is None:
        verdict = _judge_new(task_file, kernel, protocol).model_copy(update={"key": key})
        store.put(verdict)
    return verdict


def _judge_new(task_file: Path, kernel: Kernel, protocol: JudgeProtocol) -> Verdict:
    from kevin.core.heavy import import_torch
    from kevin.judge.evaluate import judge_kernel, start_early
    from kevin.tasks.format import task_from_file

    if kernel.dialect == "load_inline":
        log.info("a module is built with PyTorch's headers, which takes ten seconds or more")
    start_early(protocol)
    import_torch()
    return judge_kernel(task_from_file(task_file), kernel, protocol)
