"""`kevin judge`: one kernel for a person, or many pairs from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kevin.cli.options import load_config
from kevin.core.errors import UsageError

if TYPE_CHECKING:
    from kevin.core.protocol import JudgeProtocol
    from kevin.core.types import Dialect, Kernel, Language, Task, Verdict

DialectChoice = Literal["auto", "c_abi", "load_inline"]
_ONE, _MANY, _PROTOCOL = "One kernel", "Many kernels", "How to judge"


def judge(
    task_file: Annotated[
        Path | None,
        typer.Option(
            "--task-file",
            metavar="FILE",
            help="The reference: a Python module with Model, get_inputs() and get_init_inputs(), as in KernelBench.",
            rich_help_panel=_ONE,
        ),
    ] = None,
    kernel: Annotated[
        Path | None,
        typer.Option(
            "--kernel",
            metavar="FILE",
            help='The candidate: a .py with ModelNew (load_inline), or a .cpp/.cu with extern "C" launch(...) (c_abi).',
            rich_help_panel=_ONE,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole verdict as JSON.", rich_help_panel=_ONE)
    ] = False,
    batch: Annotated[
        Path | None,
        typer.Option(
            "--batch",
            metavar="FILE",
            help='Lines of {"id", "reference", "kernel"}, sources inline.',
            rich_help_panel=_MANY,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Verdicts, one line each, in the order of --batch. Ids that already stand in it are skipped.",
            rich_help_panel=_MANY,
        ),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option("--device", help="Where the kernel runs; cpu when nothing is said.", rich_help_panel=_PROTOCOL),
    ] = None,
    dialect: Annotated[
        DialectChoice,
        typer.Option("--dialect", help="auto tells them apart by file name and content.", rich_help_panel=_PROTOCOL),
    ] = "auto",
    rules: Annotated[
        str,
        typer.Option(
            "--rules",
            metavar="LIST",
            help="Rules to enforce: default, none, or names with commas. Hits of the others are reported as flags.",
            rich_help_panel=_PROTOCOL,
        ),
    ] = "default",
    precision: Annotated[
        Literal["float32", "float16", "bfloat16"] | None,
        typer.Option("--precision", help="Of inputs and weights; float32 alone is judged.", rich_help_panel=_PROTOCOL),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Correctness trials.", rich_help_panel=_PROTOCOL)
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Both atol and rtol.", rich_help_panel=_PROTOCOL)
    ] = None,
    build_timeout: Annotated[
        float | None,
        typer.Option("--build-timeout", metavar="SECONDS", help="For compiling.", rich_help_panel=_PROTOCOL),
    ] = None,
    run_timeout: Annotated[
        float | None,
        typer.Option(
            "--run-timeout", metavar="SECONDS", help="For all trials, and again for timing.", rich_help_panel=_PROTOCOL
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="DIR",
            help="Keep verdicts here and reuse those that stand in it.",
            rich_help_panel=_PROTOCOL,
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Judge as this configuration's judge section says; the options above win over it.",
            rich_help_panel=_PROTOCOL,
        ),
    ] = None,
) -> None:
    """Compile, check and time a kernel against its PyTorch reference.

    The kernel runs in a process of its own, without network. A kernel that is refused, does not compile, crashes or is
    wrong still has a verdict, and the exit code is 0.
    """
    protocol = make_protocol(
        load_config(config).judge if config else None,
        device=device,
        rules=rules,
        precision=precision,
        num_trials=trials,
        tolerance=tolerance,
        build_timeout_s=build_timeout,
        run_timeout_s=run_timeout,
    )
    if batch is not None:
        if task_file or kernel or as_json or out is None:
            raise UsageError("--batch FILE goes with --out FILE, and without --task-file, --kernel and --json")
        from kevin.cli.judge_batch import judge_batch

        raise typer.Exit(judge_batch(batch, out, protocol=protocol, dialect=dialect, store=store))
    if task_file is None or kernel is None or out is not None:
        raise UsageError("give --task-file FILE and --kernel FILE, or --batch FILE and --out FILE")
    candidate = read_kernel(kernel, dialect, protocol)
    verdict = _judge_one(_read_task(task_file), candidate, protocol, store)
    if as_json:
        from kevin.cli.verdict_view import verdict_record

        typer.echo(json.dumps(verdict_record(verdict), indent=2))
    else:
        from kevin.cli.verdict_view import print_verdict

        print_verdict(verdict, candidate, title=f"{kernel} as {task_file}")


def make_protocol(
    base: JudgeProtocol | None, *, rules: str, tolerance: float | None, **settings: object
) -> JudgeProtocol:
    """The judging protocol that the options describe. Raises UsageError with the offending option."""
    from pydantic import ValidationError

    from kevin.core.protocol import JudgeProtocol

    raw = (base or JudgeProtocol()).model_dump()
    raw.update({name: value for name, value in settings.items() if value is not None})
    if rules != "default":
        raw["rules"] = () if rules == "none" else tuple(rule.strip() for rule in rules.split(","))
    if tolerance is not None:
        raw["atol"] = raw["rtol"] = tolerance
    try:
        return JudgeProtocol.model_validate(raw)
    except ValidationError as e:
        first = e.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"judging protocol, {key}: {first['msg']} (got {first['input']!r})") from None


def guess_dialect(source: str, name: str, choice: DialectChoice) -> Dialect:
    """The dialect of a candidate by its file's ending, else by what it holds. ``name`` may be without an ending."""
    if choice != "auto":
        return choice
    ending = Path(name).suffix
    if ending == ".py":
        return "load_inline"
    if ending in (".cpp", ".cc", ".cxx", ".cu"):
        return "c_abi"
    is_python = "class ModelNew" in source or "import torch" in source
    return "load_inline" if is_python else "c_abi"


def make_kernel(source: str, name: str, dialect: DialectChoice, protocol: JudgeProtocol) -> Kernel:
    """The candidate in the device's language. Raises UsageError for CUDA sources on a CPU."""
    from kevin.core.types import Kernel

    if protocol.device == "cpu" and Path(name).suffix == ".cu":
        raise UsageError(f"{name}: a CUDA kernel needs --device cuda")
    language: Language = "cuda" if protocol.device == "cuda" else "cpp"
    return Kernel(dialect=guess_dialect(source, name, dialect), language=language, source=source)


def read_kernel(path: Path, dialect: DialectChoice, protocol: JudgeProtocol) -> Kernel:
    return make_kernel(_read(path), str(path), dialect, protocol)


def _read_task(path: Path) -> Task:
    from kevin.tasks.format import task_from_file

    _read(path)
    return task_from_file(path)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file") from None


def _judge_one(task: Task, kernel: Kernel, protocol: JudgeProtocol, store: Path | None) -> Verdict:
    from kevin.judge.evaluate import judge_kernel

    if store is None:
        return judge_kernel(task, kernel, protocol)
    from kevin.core.config import JudgePoolConfig
    from kevin.core.errors import HarnessError
    from kevin.judge.pool import JudgePool

    with JudgePool(protocol, store, JudgePoolConfig(build_workers=1)) as pool:
        [verdict] = pool.judge([(task, kernel)])
    if isinstance(verdict, HarnessError):
        raise verdict
    return verdict
