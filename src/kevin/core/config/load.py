"""From YAML files, laid over each other, to a validated study."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from kevin.core.config.layers import merge
from kevin.core.config.study import Study
from kevin.core.errors import ConfigError
from kevin.core.types import canonical_json, digest


def section_digest(section: BaseModel, without: Set[str] = frozenset()) -> str:
    """Short digest of a part of the configuration, but for the keys ``without``, for a rule's ``params``."""
    return digest("section", canonical_json(section.model_dump(mode="json", exclude=set(without))))[:16]


def validate_study(raw: dict[str, Any], origin: str) -> Study:
    """Check a raw tree; every problem becomes one line that names ``origin``, the key and what is wrong with it."""
    try:
        return Study.model_validate(raw)
    except ValidationError as e:
        lines = []
        for err in e.errors():
            key = ".".join(str(part) for part in err["loc"]) or "(top level)"
            what = "unknown key" if err["type"] == "extra_forbidden" else err["msg"]
            lines.append(f"  {key}: {what}")
        raise ConfigError(
            f"{origin}: the configuration is not valid:\n" + "\n".join(lines) + "\nEvery key: config/README.md"
        ) from None


def load_study(paths: list[Path]) -> Study:
    """Read YAML files in order, each laid over the one before."""
    raw: dict[str, Any] = {}
    for path in paths:
        try:
            layer = yaml.safe_load(path.read_text())
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such configuration file") from None
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"{path}: cannot be read: {e}") from None
        except yaml.YAMLError as e:
            raise ConfigError(f"{path}: not valid YAML: {e}") from None
        if not isinstance(layer, dict):
            raise ConfigError(f"{path}: expected a mapping of keys at the top level")
        raw = merge(raw, layer)
    return validate_study(raw, " + ".join(str(p) for p in paths))
