"""Where a model's weights are looked for."""

from __future__ import annotations

from pathlib import Path


def must_be_local(model: str) -> bool:
    """A hub id is ``name`` or ``owner/name``; ``results/base_model`` is a path where there is a folder ``results``."""
    path = Path(model)
    return (
        path.is_absolute()
        or model.startswith(".")
        or len(path.parts) > 2
        or (len(path.parts) == 2 and path.parent.is_dir())
    )
