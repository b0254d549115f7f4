"""Trees of keys, as files hold them, laid over each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kevin.core.errors import ConfigError, UsageError
from kevin.core.texts import read_text


def read_layer(path: Path) -> dict[str, Any]:
    """The keys of a YAML or JSON file. Raises ConfigError naming a file that is not there or holds none."""
    try:
        text = read_text(path, "configuration file")
        layer = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)  # JSON may have tabs
    except json.JSONDecodeError as e:
        raise ConfigError(f"{path}: not valid JSON: {e}") from None
    except yaml.YAMLError as e:
        raise ConfigError(f"{path}: not valid YAML: {e}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its values stand too deep within each other") from None
    except ValueError as e:  # a number of thousands of digits, a date that there is not
        raise ConfigError(f"{path}: {e}") from None
    except UsageError as e:
        raise ConfigError(str(e)) from None
    if not isinstance(layer, dict):
        raise ConfigError(f"{path}: expected a mapping of keys at the top level")
    return layer


def plain(tree: Any) -> Any:
    """Mappings and sequences of any kind as sorted dictionaries and lists; keys that are no text stay what they are."""
    if isinstance(tree, Mapping):
        return {key: plain(tree[key]) for key in sorted(tree, key=str)}
    return [plain(value) for value in tree] if isinstance(tree, list | tuple) else tree


def merge(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Overlay wins; dictionaries are merged, lists and values replaced."""
    result = dict(base)
    for key, value in overlay.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result
