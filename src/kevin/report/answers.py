"""All scored answers of a study as one CSV, without what was written: small enough to publish, and whoever has it makes
the tables again, the same to the last digit, without a GPU.

Scores and returns are not in it: they follow from outcomes and speedups by the configuration's ``reward``.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from kevin.core.errors import DataError
from kevin.core.files import read_parquet, write_csv, write_text
from kevin.core.reward import configured_returns, score
from kevin.core.types import Outcome

if TYPE_CHECKING:
    from kevin.core.config import RewardConfig, Study

_DERIVED = ("score", "return", "verdict_key")
_KERNEL_DIGITS = 12
"""Of a kernel's digest: they tell a task's kernels apart."""
_NEEDED = ("policy", "split", "task_id", "trajectory", "turn", "outcome", "speedup", "num_completion_tokens")
_NUMBER = {"int64": "whole number", "float64": "number"}
_PROVENANCE = "provenance.json"


def write_answers(scores: pd.DataFrame, out: Path, hardware: str, study: Study, baselines: Path | None = None) -> None:
    """Write ``out`` (CSV), beside it what the kernels ran on, under its name as ``.json``, and ``baselines.csv``.

    Args:
        scores, hardware: as `kevin.report.scores.read_scores` and `kevin.report.scores.hardware` give them.
    """
    frame = scores.drop(columns=list(_DERIVED))
    write_csv(out, frame.assign(kernel_digest=frame["kernel_digest"].str[:_KERNEL_DIGITS]))
    told = {"hardware": hardware, "config_digest": study.digest, "seed": study.seed}
    write_text(out.with_suffix(".json"), json.dumps(told, indent=1) + "\n")
    if baselines is not None:
        write_csv(out.with_name("baselines.csv"), read_parquet(baselines, "baselines")[0])


def read_answers(path: Path, columns: dict[str, str], config: RewardConfig) -> list[pd.DataFrame]:
    """Scores of each policy and split of a file that `write_answers` made, in its order.

    Args:
        columns: of scores, with their types. What the file lacks is absent from every row, but for the level, which
            the split tells; an older one tells nothing of flawed tasks.

    Raises:
        DataError: the file cannot be read, or lacks what scores follow from.
    """
    text = {"policy", "split", *(name for name, kind in columns.items() if kind == "str")}
    frame = read_numbers(path, "answers", text)
    if lacking := [name for name in _NEEDED if name not in frame]:
        raise DataError(f"{path}: these are no answers of `kevin answers`: no column {', '.join(lacking)}")
    for name, kind in columns.items():
        allowed = {"int64": ("int64",), "float64": ("float64", "int64")}.get(kind)
        if allowed and name in frame and len(frame) and str(frame[name].dtype) not in allowed:
            raise DataError(f"{path}: column {name} holds something that is no {_NUMBER[kind]}")
    known = {o.value for o in Outcome}
    if strange := sorted(set(frame["outcome"].dropna()) - known):
        raise DataError(f"{path}: unknown outcome {strange[0]!r}; there are {', '.join(sorted(known))}")
    if "level" not in frame:
        frame["level"] = frame["split"].map(_level)
    frame = frame.assign(**{name: _absent(kind) for name, kind in columns.items() if name not in frame})
    parts = []
    for _, part in frame.groupby(["policy", "split"], sort=False):
        scored = _scored(part, config, path)
        parts.append(scored[["policy", "split", *columns]].astype(columns).reset_index(drop=True))
    return parts


def read_numbers(path: Path, what: str, text: Collection[str]) -> pd.DataFrame:
    """A CSV with every number exactly as it was written, which pandas' own reader does not promise.

    Args:
        text: columns that stay as they are; of the others those are numbers, or true and false, that hold nothing else.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        frame = pd.read_csv(path, dtype="str", keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as e:
        raise DataError(f"{path}: {what} cannot be read: {e}") from None
    for name in frame.columns.difference(list(text)):
        given = frame[name]
        said = set(given.dropna())
        if said and said <= {"True", "False"}:
            frame[name] = given == "True"
            continue
        try:
            numbers = [float("nan") if pd.isna(value) else float(value) for value in given]
        except ValueError:
            continue
        is_whole = bool(said) and all(value.lstrip("-").isdigit() for value in said) and not given.isna().any()
        frame[name] = pd.Series(numbers, index=frame.index, dtype="float64").astype("int64" if is_whole else "float64")
    return frame


def told_hardware(path: Path, device: str) -> list[str]:
    """What `write_answers` wrote beside answers, or what a ``provenance.json`` there names."""
    if "hardware" in (told := _read_json(path.with_suffix(".json"))):
        return [str(told["hardware"])]
    told = _read_json(path.with_name(_PROVENANCE))
    gpus = [str(gpu.get("name")) for gpu in told.get("gpus") or ()] if device == "cuda" else []
    return gpus or [str(name) for name in [told.get("cpu")] if name]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _level(split: str) -> int:
    return int(split[5:]) if split.startswith("level") and split[5:].isdigit() else 2


def _absent(kind: str) -> Any:
    return False if kind == "bool" else 0 if kind == "int64" else None


def _scored(part: pd.DataFrame, config: RewardConfig, path: Path) -> pd.DataFrame:
    scores: list[float | None] = []
    returns: list[float | None] = []
    rows: list[dict[Any, Any]] = part.to_dict("records")
    for (task_id, trajectory), group in groupby(rows, key=lambda row: (row["task_id"], row["trajectory"])):
        turns = list(group)
        numbers = [row["turn"] for row in turns]
        if numbers != sorted(set(numbers)):
            raise DataError(f"{path}: turns of {task_id}, trajectory {trajectory}, are not in order, each once")
        try:
            own = [_score(row, config) for row in turns]
        except ValueError as e:
            raise DataError(f"{path}: {task_id}, trajectory {trajectory}: {e}") from None
        scores += own
        returns += configured_returns(own, [int(row["num_completion_tokens"]) for row in turns], config)
    part = part.copy()
    part["score"], part["return"] = scores, returns
    return part


def _score(row: dict[Any, Any], config: RewardConfig) -> float | None:
    if not isinstance(row["outcome"], str):
        return None
    speedup = None if pd.isna(row["speedup"]) else float(row["speedup"])
    weight, cap = config.correctness_weight, config.speedup_cap
    return score(Outcome(row["outcome"]), speedup, correctness_weight=weight, speedup_cap=cap)
