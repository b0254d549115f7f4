"""Trees of keys laid over each other."""

from __future__ import annotations

from typing import Any


def merge(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Overlay wins; dictionaries are merged, lists and values replaced."""
    result = dict(base)
    for key, value in overlay.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result
