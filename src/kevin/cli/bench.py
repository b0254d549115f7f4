"""`kevin bench`: the pace of the judge, PyTorch's on every task, what attacks get."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer

from kevin.cli.gpus import claim_gpus
from kevin.cli.options import ConfigOption, DeviceOption, checkout, file, folder, load_config, print_lines
from kevin.core.errors import TaskError, UsageError

if TYPE_CHECKING:
    from kevin.api.batch import Pair
    from kevin.core.protocol import JudgeProtocol
    from kevin.core.types import Task

log = logging.getLogger(__name__)

app = typer.Typer(
    help="Measure the judge itself, attacks on it, its errors, and PyTorch's baselines.",
    no_args_is_help=True,
)

FolderOption = Annotated[Path, folder("Folder for the results.", "--out")]
CheckoutOption = Annotated[Path | None, checkout("A checkout whose harness is asked about modules too; needs a GPU.")]
OwnStoreOption = Annotated[Path | None, folder("Verdicts that are not formed again. Default: OUT/store.", "--store")]


LevelsOption = Annotated[
    list[int] | None, typer.Option(min=1, max=4, help="A level of KernelBench; repeatable. Default: 1 and 2.")
]
_LEVELS = (1, 2)


@app.command("judge")
def bench_judge(
    batch: Annotated[Path, file("Lines of {id, reference, kernel}, as for `kevin judge`.")],
    out: FolderOption,
    device: DeviceOption = None,
    in_flight: Annotated[
        int, typer.Option("--kernels-in-flight", help="Sandboxes open at once on a GPU, one of them measured.", min=1)
    ] = 8,
    copies: Annotated[int, typer.Option(help="How often each kernel is asked for in the warm run.", min=1)] = 4,
    rules: Annotated[str, typer.Option(help="default, none, or names separated by commas.")] = "none",
    trials: Annotated[int | None, typer.Option(help="Correctness trials.")] = None,
    kernelbench: Annotated[Path | None, checkout("A checkout whose harness judges them too.")] = None,
    timed: Annotated[
        int,
        typer.Option("--kernelbench-timed", help="So many it times, as its scripts do; the others it checks.", min=1),
    ] = 16,
    check_others: Annotated[
        bool, typer.Option(help="Have KernelBench's check also say what it thinks of those that it does not time.")
    ] = True,
    config: ConfigOption = None,
) -> None:
    """Kernels a minute cold and warm, where the time goes, how busy the GPU is; beside KernelBench's own harness.

    Files are written with every result, so that a run which is stopped keeps what it has.
    """
    from kevin.api.batch import read_pairs
    from kevin.api.pairs import make_protocol
    from kevin.core.candidate import make_kernel
    from kevin.core.config import JudgePoolConfig
    from kevin.judge.benchmarks import throughput

    protocol = make_protocol(_protocol(config), rules=rules, tolerance=None, device=device, num_trials=trials)
    lines = _usable(read_pairs(batch))
    summary = throughput.bench_judge(
        [str(line.id) for line, _ in lines],
        [(task, make_kernel(line.kernel, "", "auto", protocol)) for line, task in lines],
        protocol,
        JudgePoolConfig(kernels_in_flight=in_flight),
        out,
        _record(protocol, None, kernels_in_flight=in_flight),
        copies=copies,
        checkout=kernelbench,
        num_timed=timed,
        check_others=check_others,
    )
    print_lines(throughput.told(summary))


def _usable(lines: list[Pair]) -> list[tuple[Pair, Task]]:
    """Pairs with their task, looked into; those whose reference is no task module are told and left out."""
    from kevin.api.pairs import make_task
    from kevin.tasks.format import inspect_task

    known: dict[str, Task | TaskError] = {}
    for line in lines:
        if line.reference not in known:
            try:
                spec = inspect_task(line.reference, line.place)
                known[line.reference] = make_task(line.reference, line.place).model_copy(update={"spec": spec})
            except TaskError as e:
                known[line.reference] = e
                log.error("kevin: id %s: %s", line.id, e)
    return [(line, task) for line in lines if not isinstance(task := known[line.reference], TaskError)]


@app.command("baselines")
def bench_baselines(
    out: FolderOption,
    device: DeviceOption = None,
    kernelbench: Annotated[Path | None, checkout("Tasks of a checkout; else the own catalog.")] = None,
    levels: LevelsOption = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--baselines", help="eager, compile, max_autotune or cuda_graph; repeatable. Default: as usual."),
    ] = None,
    fused: Annotated[int, typer.Option(help="Generated fused tasks beside the own single operators.")] = 40,
    processes: Annotated[
        int, typer.Option("--compile-processes", help="Compile all tasks ahead in so many processes.", min=0)
    ] = 0,
    only: Annotated[list[str] | None, typer.Option(help="A task's id; repeatable.")] = None,
    config: ConfigOption = None,
) -> None:
    """Time PyTorch on every task and write tables that others can use, KernelBench's baseline JSON among them.

    Files are written every few tasks; a run that was stopped goes on from them.
    """
    from kevin.api.pairs import make_protocol
    from kevin.judge.benchmarks.baselines import BASELINES, Baseline
    from kevin.judge.benchmarks.stored_results import measure_stored, medians

    protocol = make_protocol(_protocol(config), rules="default", tolerance=None, device=device)
    tasks = _tasks(kernelbench, levels, fused, protocol)
    if only:
        if unknown := set(only) - {t.id for t in tasks}:
            raise UsageError(f"--only: no such task: {', '.join(sorted(unknown))}")
        tasks = [t for t in tasks if t.id in only]
    if wrong := set(names or ()) - set(get_args(Baseline)):
        raise UsageError(f"--baselines: {min(wrong)!r} is none of {', '.join(get_args(Baseline))}")
    wanted = tuple(cast("Baseline", name) for name in names or BASELINES[protocol.device])
    processes = processes or (min(8, os.cpu_count() or 1) if protocol.device == "cuda" else 0)
    frame, paths = measure_stored(
        out, tasks, protocol, wanted, _record(protocol, kernelbench), compile_processes=processes
    )
    print_lines([*paths, *medians(frame)])


@app.command("attacks")
def bench_attacks(
    out: FolderOption,
    device: DeviceOption = None,
    kernelbench: CheckoutOption = None,
    store: OwnStoreOption = None,
    only: Annotated[str, typer.Option(help="Attacks whose name holds this.")] = "",
) -> None:
    """Judge every attack that was tried on the judge beside an honest kernel, and say what KernelBench says of both.

    Writes attacks.csv, attacks.md and attacks.tex. A run that was stopped goes on from the verdicts that it has.
    """
    import pandas as pd

    from kevin.core.files import write_csv, write_text
    from kevin.core.provenance import device_name, record_tables
    from kevin.judge.benchmarks.attack_table import all_tried, attack_protocol, attack_rows, summary
    from kevin.report.captions import captions
    from kevin.report.forms import latex, markdown
    from kevin.report.show import attacks

    kind = device or "cpu"
    tried = [each for each in all_tried(kind) if only in each.name]
    _begin(tried, only, kind, kernelbench, f"attack on {kind}")
    protocol = attack_protocol(kind)
    rows = attack_rows(tried, protocol, store or out / "store", checkout=kernelbench)
    record = _record(protocol, kernelbench, device_name=device_name(kind))
    frame, caption = pd.DataFrame(rows), captions()["tables/attacks"]
    table, said = attacks(frame), f"{caption.text} {caption.reading}"
    paths = [out / f"attacks.{ending}" for ending in ("csv", "md", "tex")]
    write_csv(paths[0], frame)
    write_text(paths[1], markdown(table, caption.title, f"{said} On {record['device_name']}."))
    write_text(paths[2], latex(table, "attacks", caption.title, said))
    print_lines([*paths, record_tables(out, [paths[0].name], record), *summary(rows)])


@app.command("errors")
def bench_errors(
    out: FolderOption,
    mutants: Annotated[Path, folder("Kernels that say in their first lines what they are.")] = Path("tests/mutants"),
    config: ConfigOption = None,
    device: DeviceOption = None,
    kernelbench: CheckoutOption = None,
    store: OwnStoreOption = None,
    only: Annotated[str, typer.Option(help="Kernels whose file's name holds this.")] = "",
) -> None:
    """Judge wrong kernels and odd right ones, and count what the judge would pay and refuse by mistake.

    Judged by the configuration's protocol, without rules; a flag of a rule that it enforces counts as refused. What is
    paid is judged once more at two other sizes, and on a GPU with compute-sanitizer, where that is installed. Writes
    judge_errors.csv and judge_errors_rows.csv. A run that was stopped goes on from the verdicts that it has.
    """
    from kevin.core.provenance import device_name
    from kevin.judge.benchmarks.judge_errors import error_rows, read_mutants, stricter_protocols, summary, write_errors
    from kevin.judge.device.tools import has_sanitizer

    study = load_config(config)
    kind = device or study.judge.device
    found = [m for m in read_mutants(mutants) if m.device == kind and only in m.name]
    _begin(found, only, kind, kernelbench, f"kernel of {mutants} for {kind}")
    protocol = study.judge.model_copy(update={"device": kind, "rules": ()})
    before = mutants / f"before_{kind}.csv"
    rows = error_rows(
        found,
        protocol,
        store or out / "store",
        pool=study.pool,
        refused_by=study.judge.rules,
        stricter=stricter_protocols(protocol, has_sanitizer=has_sanitizer()),
        checkout=kernelbench,
        before=before if before.exists() else None,
    )
    known_of = {"refused_by": list(study.judge.rules), "device_name": device_name(kind)}
    print_lines([*write_errors(out, rows, _record(protocol, kernelbench, **known_of)), *summary(rows)])


@app.command("import-baselines")
def import_baselines(
    source: Annotated[Path, typer.Argument(metavar="JSON", help="KernelBench's baseline_time_torch.json.")],
    kernelbench: Annotated[Path, checkout("The checkout that it is of.")],
    out: Annotated[Path, file("The CSV that is written.")],
    levels: LevelsOption = None,
) -> None:
    """Turn KernelBench's baseline JSON into a table with our task ids and microseconds."""
    from kevin.core.files import write_text
    from kevin.judge.benchmarks.stored_results import import_kernelbench
    from kevin.tasks.kernelbench import load_folder

    frame = import_kernelbench(source, load_folder(kernelbench, tuple(levels or _LEVELS)))
    write_text(out, frame.to_csv(index=False))
    typer.echo(f"{out}: {len(frame)} tasks")


def _record(protocol: JudgeProtocol, checkout: Path | None, **more: Any) -> dict[str, Any]:
    """Provenance of results, and the checkout of KernelBench that was asked."""
    from kevin.core.provenance import provenance

    named = {"kernelbench": checkout.name} if checkout else {}
    return provenance(protocol=protocol.model_dump(mode="json"), **more, **named)


def _protocol(config: list[Path] | None) -> JudgeProtocol | None:
    return load_config(config).judge if config else None


def _tasks(kernelbench: Path | None, levels: list[int] | None, fused: int, protocol: JudgeProtocol) -> list[Task]:
    if kernelbench is not None:
        from kevin.tasks.kernelbench import load_folder

        return load_folder(kernelbench, tuple(levels or _LEVELS))
    from kevin.tasks.build import composed_tasks
    from kevin.tasks.catalog import catalog

    size: Literal["cpu", "gpu"] = "gpu" if protocol.device == "cuda" else "cpu"
    return [*catalog(size), *(composed_tasks(fused, 1, size) if fused else [])]


def _begin(chosen: Sequence[object], only: str, device: str, checkout: Path | None, what: str) -> None:
    """Claim a GPU for those whose name holds ``only``. Raises UsageError where nothing can be asked."""
    claim_gpus(int(device == "cuda"))
    if checkout is not None and device != "cuda":
        raise UsageError("--kernelbench: its harness needs a GPU; give --device cuda, or leave it out")
    if not chosen:
        raise UsageError(f"--only: no {what} has {only!r} in its name")
