"""Replicates of a comparison that was declared before it was run (``config/replicates.yaml``): one seed of one arm at a
time, each from pretrained weights on, in a folder of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kevin.core.errors import ConfigError

FOLDER = Path("results/replicates")


def of_arm(raw: Mapping[str, Any], arm: Any) -> dict[str, Any]:
    """A raw tree with one arm: of its runs this one alone is evaluated, beside what is not trained, in a folder by arm
    and seed.

    Args:
        arm: the run, as ``--config arm=...`` has it; None without, which leaves the tree as it is.

    Raises:
        ConfigError: there is no such run; or none is asked for, of a comparison that is made arm by arm.
    """
    results, runs = str(raw.get("results", "")), raw.get("runs") or {}
    if arm is None and Path(results) != FOLDER:
        return dict(raw)
    if arm not in runs:
        told = "" if arm is None else f"there is no run {arm}; "
        raise ConfigError(f"{told}this is made arm by arm: --config seed=1 arm=NAME, of {', '.join(runs)}")
    evaluated = [name for name in raw.get("evaluate") or () if name not in runs or name == arm]
    return {**raw, "results": str(Path(results, f"{arm}-{raw.get('seed', 0)}")), "evaluate": evaluated}


def finished() -> list[str]:
    """What replicates have published here, in the order of their names."""
    return sorted(map(str, FOLDER.glob("*/published")))
