"""Replicates of a comparison that was declared before it was run (``config/replicates.yaml``): one seed at a time, from
pretrained weights on, in a folder of its own. Arms that are asked for together start from one base model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kevin.core.errors import ConfigError

FOLDER = Path("results/replicates")
STORED = Path("results/reference/nvidia-h200/replicates")


def arms_of(arm: Any) -> list[str]:
    """Runs as ``--config arm=...`` has them, ``NAME`` or ``NAME,NAME``; none without."""
    return [] if arm is None else [name.strip() for name in str(arm).split(",")]


def of_arms(raw: Mapping[str, Any], arms: Sequence[str]) -> dict[str, Any]:
    """A raw tree with these arms: of its runs they alone are evaluated, beside what is not trained, in a folder by arms
    and seed. Without any it stays as it is.

    Raises:
        ConfigError: there is no such run; or none is asked for, of a comparison that is made arm by arm; or the seed of
            one was not declared, so that no table would take it.
    """
    results, runs = str(raw.get("results", "")), raw.get("runs") or {}
    if not arms and Path(results) != FOLDER:
        return dict(raw)
    if not arms or (unknown := [arm for arm in arms if arm not in runs]):
        told = f"there is no run {unknown[0]}; " if arms else ""
        raise ConfigError(f"{told}this is made arm by arm: --config seed=1 arm=NAME[,NAME], of {', '.join(runs)}")
    from kevin.report.replicates import is_declared  # takes longer than the rest of this module

    seed = raw.get("seed", 0)
    for arm in arms if Path(results) == FOLDER else ():
        if not is_declared(arm, seed):
            told = "was not declared (docs/replicates.md), and no table takes it; apart: --config results=DIR"
            raise ConfigError(f"seed {seed} of {arm} {told}")
    evaluated = [name for name in raw.get("evaluate") or () if name not in runs or name in arms]
    return {**raw, "results": str(Path(results, "-".join([*arms, str(seed)]))), "evaluate": evaluated}


def finished() -> list[str]:
    """What replicates have published here, in the order of their names; until one has, those that are stored."""
    return sorted(map(str, FOLDER.glob("*/published"))) or sorted(map(str, STORED.glob("*/published")))
