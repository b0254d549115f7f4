"""`kevin config`: what is set, where it was set, and what every key means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kevin.cli.options import DEFAULT_CONFIG, ConfigOption, file, load_config
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
    origins = _origins(list(config) if config else [DEFAULT_CONFIG])
    rows = [(key, _origin(key, origins), strict_json(value)) for key, value in _flatten(resolved).items()]
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    for key, origin, value in rows:
        typer.echo(f"{key:<{widths[0]}}  {origin:<{widths[1]}}  {value}")


@app.command()
def schema(out: OptionalOut = None) -> None:
    """Print the JSON schema of the configuration (config/schema.json)."""
    from kevin.cli.config_docs import json_schema

    _emit(strict_json(json_schema(), indent=2) + "\n", out)


@app.command()
def docs(out: OptionalOut = None) -> None:
    """Print the meaning of every key (config/README.md)."""
    from kevin.cli.config_docs import markdown

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


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Leaves by dotted key; an empty dictionary is a leaf."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            flat.update(_flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def _origins(paths: list[Path]) -> dict[str, str]:
    """Dotted key -> the last file that sets it."""
    from kevin.core.config.layers import read_layer

    origins: dict[str, str] = {}
    for path in paths:
        origins.update(dict.fromkeys(_flatten(read_layer(path)), str(path)))
    return origins


def _origin(key: str, origins: dict[str, str]) -> str:
    """The file that set a key or the mapping that it stands in."""
    parts = key.split(".")
    names = (".".join(parts[:i]) for i in range(len(parts), 0, -1))
    return next((origins[name] for name in names if name in origins), "default")
