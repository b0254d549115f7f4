"""A study of the shipped configurations, with some of its keys changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kevin.core.config import Study, load_study
from kevin.core.config.study import merge

CONFIGS = Path(__file__).parents[2] / "config"
CONFIG = CONFIGS / "config.yaml"


def study_of(*names: str, **sections: Any) -> Study:
    """``names`` of files laid over config.yaml."""
    study = load_study([CONFIGS / f"{name}.yaml" for name in ("config", *names)])
    return Study.model_validate(merge(study.model_dump(mode="json"), sections))
