"""From YAML files, laid over each other, to a validated study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from kevin.core.config.layers import merge, read_layer
from kevin.core.config.removed import without_removed
from kevin.core.config.study import Study
from kevin.core.errors import ConfigError
from kevin.core.problems import problem
from kevin.core.types import canonical_json, digest


def section_digest(section: BaseModel) -> str:
    """Short digest of a part of the configuration, for a rule's ``params``."""
    return digest("section", canonical_json(section.model_dump(mode="json")))[:16]


def validate_study(raw: dict[str, Any], origin: str) -> Study:
    """Check a raw tree; every problem becomes one line that names ``origin``, the key and what is wrong with it.

    Args:
        raw: with ``over`` where one of its files is laid over another, and says nothing without it.
        origin: the files, with `` + `` between them.
    """
    raw = dict(raw)
    over = raw.pop("over", None)
    files = origin.split(" + ")
    if over is not None and Path(str(over)).name not in [Path(file).name for file in files]:
        last = Path(files[-1])
        raise ConfigError(f"{last} is laid over {over}: --configfile {last.with_name(Path(str(over)).name)} {last}")
    raw, problems = without_removed(raw)
    try:
        study = Study.model_validate(raw)
    except ValidationError as e:
        problems += [problem(err, section=Study) for err in e.errors()]
    if problems:
        lines = "".join(f"  {text}\n" for text in problems)
        raise ConfigError(f"{origin}: the configuration is not valid:\n{lines}Every key: config/README.md")
    return study


def load_study(paths: list[Path], *, judges: bool = True) -> Study:
    """Read YAML files in order, each laid over the one before.

    Args:
        judges: False where no verdict is asked for: then files may come from code that judges by another version, and
            has keys that there are no more.

    Raises:
        ConfigError: see `validate_study`.
    """
    raw: dict[str, Any] = {}
    for path in paths:
        raw = merge(raw, read_layer(path))
    if not judges:
        raw, _ = without_removed(raw)
        if isinstance(raw.get("judge"), dict):
            raw["judge"].pop("version", None)
    return validate_study(raw, " + ".join(str(p) for p in paths))
