"""What several commands share: options, the configuration behind `--config`, and what to install for them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kevin.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from kevin.core.config import Study

STEPS_PANEL = "Study steps (called by Snakemake)"
HAND_PANEL = "With a kernel in hand"
JUDGING_PANEL = "How to judge"
DEFAULT_CONFIG = Path("config/config.yaml")


def file(text: str, *names: str, panel: str | None = None) -> Any:
    """An option that names a file; ``text`` is its help, ``names`` are others than the parameter's own."""
    return typer.Option(*names, metavar="FILE", help=text, rich_help_panel=panel)


def folder(text: str, *names: str, panel: str | None = None) -> Any:
    """The same of a folder; refused where it is a file."""
    return typer.Option(*names, metavar="DIR", help=text, rich_help_panel=panel, callback=_not_a_file)


def _not_a_file(option: typer.CallbackParam, given: Any) -> Any:
    """Of an option that may be given again all of its folders."""
    for path in given if isinstance(given, list) else [given]:
        if path is not None and (file := next((p for p in (path, *path.parents) if p.is_file()), None)):
            raise UsageError(f"{file} is a file; {option.opts[0]} names a folder")
    return given


def checkout(text: str, *, panel: str | None = None) -> Any:
    """``--kernelbench``; refused where there is no such folder."""
    return typer.Option("--kernelbench", metavar="DIR", help=text, rich_help_panel=panel, callback=_existing_checkout)


def _existing_checkout(path: Path | None) -> Path | None:
    if path is not None and not path.is_dir():
        raise UsageError(f"{path}: no such folder; --kernelbench names a checkout of KernelBench")
    return path


def configuration(text: str, *, panel: str | None = None) -> Any:
    return file(text, "--config", "-c", panel=panel)


judging = functools.partial(typer.Option, rich_help_panel=JUDGING_PANEL)
"""An option on how to judge."""

ConfigOption = Annotated[
    list[Path] | None,
    configuration("Configuration file; give it again to lay further files over it. Default: config/config.yaml."),
]
DeviceOption = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option(
        "--device", help="Where kernels run; cpu unless a configuration says otherwise.", rich_help_panel=JUDGING_PANEL
    ),
]
TasksOption = Annotated[Path, file("tasks.parquet of `kevin tasks build`.", "--tasks")]
OutOption = Annotated[Path, file("What is written, in one piece or not at all.", "--out")]
SplitOption = Annotated[str, typer.Option("--split", metavar="NAME", help="train, level1, level2, ... or unseen.")]
StoreOption = Annotated[Path, folder("Verdict store; what stands in it is never judged again.", "--store")]
PolicyOption = Annotated[str, typer.Option("--policy", metavar="KEY", help="A key of `policies`, or ceiling.")]
ScoresOption = Annotated[
    list[Path] | None, file("Scores of a policy, or answers.csv of `kevin publish`; repeatable.", "--scores")
]
ManyTurnsOption = Annotated[list[Path] | None, file("turns.parquet of a rollout; repeatable.", "--turns")]
SummariesOption = Annotated[
    list[Path] | None, file("summary.json of a training behind these numbers, if there; repeatable.", "--summaries")
]
BaselinesOption = Annotated[Path | None, file("What `kevin baselines` measured.", "--baselines")]


def load_config(paths: list[Path] | None, *, judges: bool = True, plays: bool = True) -> Study:
    """The validated configuration; ``judges`` and ``plays``: see `load_study`. Raises ConfigError."""
    from kevin.core.config import load_study

    if not paths and not DEFAULT_CONFIG.exists():
        raise ConfigError(
            f"{DEFAULT_CONFIG}: no such configuration file here; name one with -c, or work in this project's folder"
        )
    return load_study(list(paths) if paths else [DEFAULT_CONFIG], judges=judges, plays=plays)


def report_config(paths: list[Path] | None) -> Study:
    """As `load_config`, for a command that judges nothing: another version of the judge's protocol will do."""
    return load_config(paths, judges=False)


def device_config(paths: list[Path] | None) -> Study:
    """As `load_config`, for a command that uses a GPU: of several it sees one that no other job of the workflow has."""
    from kevin.cli.gpus import claim_gpus

    study = load_config(paths)
    claim_gpus(1)
    return study


def school_config(paths: list[Path] | None) -> Study:
    """As `device_config`, with as many GPUs as the school asks for."""
    from kevin.cli.gpus import claim_school_gpus

    study = load_config(paths)
    claim_school_gpus(study)
    return study


def given_to(
    target: str, configured: Callable[[list[Path] | None], Study] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that is a declaration alone: what it is given goes under the same names to one function of a room.

    Args:
        target: the function, ``module:name``; imported when the command runs, for it may be heavy.
        configured: reads the study from ``config``, which the function gets in its place.
    """

    def declared(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(config: list[Path] | None = None, **options: Any) -> None:
            study = {"study": configured(config)} if configured is not None else {}
            module, _, name = target.partition(":")
            given = {option: value for option, value in options.items() if value is not None}
            getattr(import_module(module), name)(**study, **given)

        run.__dict__["target"] = target
        return run

    return declared


_MARKED = re.compile(r"([\w.-]+).*;.*\bextra == ['\"](\w+)['\"]")


@functools.cache
def extras() -> dict[str, list[str]]:
    """Those of pyproject.toml, each with the modules that come with it alone; none where kevin runs uninstalled."""
    from importlib.metadata import PackageNotFoundError, requires  # it takes longer than all else of a start

    found: dict[str, list[str]] = {}
    with suppress(PackageNotFoundError):
        for line in requires("kevin-study") or ():
            if marked := _MARKED.match(line):
                found.setdefault(marked[2], []).append(marked[1].replace("-", "_"))
    return found


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The sentence for a module that an extra brings; None for any other."""
    module = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in extras().items() if module in modules), None)
    return _sentence("this command", module, extra) if extra else None


def require_extra(extra: str, what: str, *modules: str) -> None:
    """Raises UsageError when one of the modules that ``what`` needs is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise UsageError(_sentence(what, module, extra))


def step(command: Callable[..., None]) -> Callable[..., None]:
    """A command of the study, which says at once that the study is not installed rather than after some work."""

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> None:
        require_extra("study", "this command", *extras().get("study", ()))
        command(*args, **options)

    return checked


def _sentence(what: str, module: str, extra: str) -> str:
    return f"{what} needs {module}, which is not installed: pip install 'kevin-study[{extra}]'"


def study_provenance(study: Study, **extra: Any) -> dict[str, Any]:
    """Provenance of a file that this study makes."""
    from kevin.core.provenance import provenance

    return provenance(config_digest=study.digest, scale=study.scale, seed=study.seed, **extra)


def print_lines(lines: Iterable[object]) -> None:
    for line in lines:
        typer.echo(str(line))


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print_lines("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
