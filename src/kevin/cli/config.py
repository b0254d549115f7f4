"""`kevin config`: what is set, where it was set, and what every key means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kevin.cli.options import DEFAULT_CONFIG, ConfigOption, file, load_config, print_columns
from kevin.core.texts import strict_json

app = typer.Typer(help="Show the configuration, its schema and the meaning of every key.", no_args_is_help=True)

OptionalOut = Annotated[Path | None, file("Write here instead of printing.", "--out")]


@app.command()
def show(
    config: ConfigOption = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print the resolved configuration as one YAML file.")] = False,
) -> None:
    """Print every key with its value and the file that set it."""
    study = load_config(config)
    resolved = study.model_dump(mode="json")
    if as_yaml:
        import yaml

        typer.echo(yaml.safe_dump(resolved, sort_keys=False), nl=False)
        return
    from kevin.core.config.layers import leaves, origins

    origin = origins(list(config) if config else [DEFAULT_CONFIG])
    print_columns([(key, origin(key), strict_json(value)) for key, value in leaves(resolved).items()])


@app.command()
def schema(out: OptionalOut = None) -> None:
    """Print the JSON schema of the configuration (config/schema.json)."""
    from kevin.core.config.docs import json_schema

    _emit(strict_json(json_schema(), indent=2) + "\n", out)


@app.command()
def docs(out: OptionalOut = None) -> None:
    """Print the meaning of every key (config/README.md)."""
    from kevin.core.config.docs import markdown

    _emit(markdown(), out)


@app.command()
def targets(out: OptionalOut = None) -> None:
    """Print every file that the workflow makes, with its command (docs/targets.md); in a checkout."""
    from kevin.report.captions import targets_page

    _emit(targets_page(Path("config")), out)


def _emit(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text, nl=False)
        return
    from kevin.core.files import write_text

    write_text(out, text)
