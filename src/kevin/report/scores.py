"""Turns -> scores: one row a turn, with its score and return, and all that tables and figures need of its task.

All scored answers of a study are one CSV too, of which whoever has it makes the tables again, without a GPU. Those of
rollouts of ``search`` name their ``strategy``, which no others have. What was written stands beside them
(`kevin.report.published`), by its digest. Scores and returns are not in it: they follow from outcomes and speedups by
the configuration's ``reward``.
"""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError
from rapidfuzz.distance import Indel

from kevin.core.config import RewardConfig, Study
from kevin.core.dialogue import opening_is_expected
from kevin.core.errors import DataError
from kevin.core.files import (
    read_metadata,
    read_parquet,
    read_tasks,
    read_turns,
    turns_frame,
    verdict_path,
    write_csv,
    write_parquet,
    write_text,
)
from kevin.core.provenance import machine_names, provenance, read_provenance
from kevin.core.reward import configured_returns, configured_score
from kevin.core.texts import strict_json
from kevin.core.types import Outcome, Task, Turn, Verdict
from kevin.report.recipes import policy_order

logger = logging.getLogger(__name__)

KIND = "scores"
UNKNOWN_MACHINE = "unknown hardware"


def score_frame(
    turns: Sequence[Turn], tasks: Sequence[Task], config: RewardConfig, *, policy: str, split: str
) -> pd.DataFrame:
    """One row a turn, sorted by task (in the order of ``tasks``), trajectory and turn.

    ``similarity``: of the kernel to that of the turn before, see `similarity`; none where one is missing.
    A turn without a verdict has no outcome, score or return. Raises DataError for a turn of an unknown task.
    """
    order = {task.id: i for i, task in enumerate(tasks)}
    unknown = sorted({t.task_id for t in turns} - order.keys())
    if unknown:
        raise DataError(f"turns of tasks that are not in the tasks file: {', '.join(unknown[:5])}")
    ordered = sorted(turns, key=lambda t: (order[t.task_id], t.trajectory, t.turn))
    asked = [tasks[order[t.task_id]] for t in ordered]
    added: dict[str, Any] = {
        "policy": policy,
        "split": split,
        "level": [task.level for task in asked],
        "flawed": [bool(task.flaws) for task in asked],
        "kernel_digest": [t.kernel.digest if t.kernel is not None else None for t in ordered],
        "similarity": [_similarity(before, t) for before, t in zip([None, *ordered], ordered, strict=False)],
        "expected_opening": [opening_is_expected(t.completion) for t in ordered],
    }
    return _scored(turns_frame(ordered).assign(**added), config, f"{policy} on {split}")


SCORE_COLUMNS = {
    "task_id": "str",
    "level": "int64",
    "flawed": "bool",
    "trajectory": "int64",
    "turn": "int64",
    "outcome": "str",
    "reason": "str",
    "speedup": "float64",
    "score": "float64",
    "return": "float64",
    "kernel_digest": "str",
    "similarity": "float64",
    "verdict_key": "str",
    "num_prompt_tokens": "int64",
    "num_completion_tokens": "int64",
    "finish_reason": "str",
    "expected_opening": "bool",
}


def _similarity(before: Turn | None, turn: Turn) -> float | None:
    """To the kernel of the turn before, where that is of the same trajectory."""
    if before is None or (before.task_id, before.trajectory) != (turn.task_id, turn.trajectory):
        return None
    if before.kernel is None or turn.kernel is None:
        return None
    return similarity(before.kernel.source, turn.kernel.source)


def score_rollouts(turns: Path, tasks: Path, out: Path, *, study: Study, policy: str, split: str) -> Path:
    """Score one rollout file; see `score_frame`. Returns ``out``."""
    found, meta = read_turns(turns)
    frame = score_frame(found, read_tasks(tasks, split), study.reward, policy=policy, split=split)
    missing = int(frame["outcome"].isna().sum())
    if missing:
        logger.warning(
            "%s: %d of %d turns have no verdict (the harness failed) and are left out", turns, missing, len(frame)
        )
    write_parquet(out, frame, KIND, provenance(study.digest, policy=policy, split=split, rollouts=meta))
    return out


def read_scores(paths: Sequence[Path], study: Study) -> pd.DataFrame:
    """Score files as one frame, policies in the order of ``study.evaluate``, the ceiling last.

    A ``.csv`` is a file of `write_answers`, with any number of policies and splits.
    Raises DataError without files, or when two of them hold the same policy and split.
    """
    frames: list[pd.DataFrame] = []
    for path in paths:
        if path.suffix == ".csv":
            frames += [own for strategy, own in read_answers(path, study.reward) if strategy is None]
        else:
            frames.append(read_parquet(path, KIND)[0])
    if not frames:
        named = ", ".join(map(str, paths)) or "no files"
        raise DataError(f"no scores in {named}; the study's are made by: snakemake (rule score_turns)")
    heads = [(f["policy"].iloc[0], f["split"].iloc[0]) for f in frames if len(f)]
    if len(set(heads)) != len(heads):
        raise DataError("two of these score files hold the same policy and split: " + ", ".join(map(str, paths)))
    frame = pd.concat(frames, ignore_index=True)
    rank = {name: i for i, name in enumerate(policy_order(list(frame["policy"].unique()), study))}
    return frame.sort_values("policy", key=lambda s: s.map(rank), kind="stable", ignore_index=True)


def hardware(paths: Sequence[Path], study: Study) -> str:
    """What the kernels behind these score files ran on: GPUs or processors by name."""
    return joined_names(machines(paths, study))


def machines(paths: Sequence[Path], study: Study) -> list[tuple[str, ...]]:
    """GPUs, or the processor, of each kind of machine on which the rollouts behind these score files were judged."""
    found: dict[tuple[str, ...], None] = {}
    for path in paths:
        if path.suffix == ".csv":
            own = told_machines(path, study.judge.device)
        else:
            meta = read_metadata(path, KIND).get("rollouts", {})
            devices: list[tuple[str, ...]] = [(str(name),) for name in meta.get("judged_on") or ()]
            own = devices or [machine_names(meta, study.judge.device)]
        found |= dict.fromkeys(names or (UNKNOWN_MACHINE,) for names in own)
    return list(found)


def read_verdict(store: Path, key: str) -> Verdict | None:
    """None where the store does not have it. Raises DataError for a damaged file."""
    path = verdict_path(store, key)
    try:
        return Verdict.model_validate_json(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValidationError as e:
        raise DataError(f"{path}: not a verdict of this version ({e.error_count()} problems); delete it") from None


# --- how alike two kernels are ------------------------------------------------------------------------------------


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PYTHON_COMMENT = re.compile(r"#(?!\s*(?:include|define|undef|pragma|ifn?def|if|elif|else|endif|error)\b)[^\n]*")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\S")

NEAR_COPY = 0.95
"""From this similarity on a kernel counts as a copy of the one before: one or two decisions differ, or nothing."""


@lru_cache(maxsize=16)  # a kernel is compared with the one before it, and then with the next
def tokens(source: str) -> tuple[str, ...]:
    """Names, numbers and signs of C++, CUDA or Python, without comments and layout."""
    return tuple(_TOKEN.findall(_PYTHON_COMMENT.sub(" ", _COMMENT.sub(" ", source))))


def similarity(a: str, b: str) -> float:
    """2 L / T in [0, 1]: L tokens of the longest common subsequence of the two sources, T tokens of both.

    1 means the same program, comments and layout apart.
    """
    return float(Indel.normalized_similarity(tokens(a), tokens(b)))


# --- published answers --------------------------------------------------------------------------------------------


_DERIVED = ("score", "return", "verdict_key")
KERNEL_DIGITS = 12
"""Of a kernel's digest: they tell a task's kernels apart."""
_NEEDED = ("policy", "split", "task_id", "trajectory", "turn", "outcome", "speedup", "num_completion_tokens")


def write_answers(
    scores: pd.DataFrame,
    out: Path,
    machines: Sequence[tuple[str, ...]],
    study: Study,
) -> None:
    """Write ``out`` (CSV), and beside it what the kernels ran on, under its name as ``.json``.

    Args:
        scores, machines: as `read_scores` and `machines` give them; scores of ``search`` have a column ``strategy``.
    """
    frame = scores.drop(columns=list(_DERIVED))
    write_csv(out, frame.assign(kernel_digest=frame["kernel_digest"].str[:KERNEL_DIGITS]))
    told = {
        "hardware": joined_names(machines),
        "machines": machines,
        "config_digest": study.digest,
        "seed": study.seed,
        "num_answers": len(frame),
    }
    write_text(out.with_suffix(".json"), strict_json(told, indent=1) + "\n")


_WORDS = {"int64": "whole number", "float64": "number", "bool": "True or False"}


def read_answers(path: Path, config: RewardConfig) -> Iterator[tuple[str | None, pd.DataFrame]]:
    """Scores of each policy and split of a file that `write_answers` made, in its order; before those of ``search``
    their strategy.

    What the file lacks is absent from every row, but for the level, which the split tells; an older one tells nothing
    of flawed tasks. Raises DataError where the file cannot be read, or lacks what scores follow from.
    """
    frame = answers_frame(path)
    known = {o.value for o in Outcome}
    if strange := sorted(set(frame["outcome"].dropna()) - known):
        raise DataError(f"{path}: unknown outcome {strange[0]!r}; there are {', '.join(sorted(known))}")
    for name, first in (("trajectory", 0), ("turn", 1)):
        if (frame[name] < first).any():
            raise DataError(f"{path}: {name} {frame[name].min()}, and they are counted from {first}")
    told = _told(path).get("num_answers", len(frame))
    if told != len(frame):
        raise DataError(f"{path}: {len(frame)} answers, and {told} were published")
    absent = {"bool": False, "int64": 0}
    added: dict[str, Any] = {name: absent.get(kind) for name, kind in SCORE_COLUMNS.items()} | {"strategy": None}
    added["level"] = [int(s[5:]) if s.startswith("level") else 2 for s in frame["split"]]
    frame = frame.assign(**{name: value for name, value in added.items() if name not in frame})
    for (_, _, strategy), part in frame.groupby(["policy", "split", "strategy"], sort=False, dropna=False):
        scored = _scored(part, config, str(path)).reset_index(drop=True)
        yield (strategy if isinstance(strategy, str) else None), scored


def answers_frame(path: Path, *columns: str) -> pd.DataFrame:
    """The rows of such a file as they stand. Raises DataError as `read_answers`, also where one of ``columns`` is not
    there.
    """
    return read_typed(path, "answers of `kevin publish`", SCORE_COLUMNS, (*_NEEDED, *columns))


def read_typed(path: Path, what: str, kinds: Mapping[str, str], needed: Sequence[str] = ()) -> pd.DataFrame:
    """A CSV of known types, in which names stay text.

    Args:
        kinds: types of columns, as far as they are there; all others are text.
        needed: columns that have to be there.

    Raises:
        DataError: the file cannot be read, lacks a column, or one holds something else.
    """
    try:
        frame = _read_as(path, defaultdict(lambda: "str", kinds))
    except UnicodeDecodeError as e:
        raise DataError(f"{path}: not UTF-8 at byte {e.start}") from None
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{path}: an empty file, no {what}") from None
    except (OSError, ValueError) as e:
        raise DataError(f"{path}: {_column_at_fault(path, kinds) or f'{what} cannot be read: {e}'}") from None
    if lacking := [name for name in needed if name not in frame]:
        raise DataError(f"{path}: these are no {what}: no column {', '.join(lacking)}")
    return frame


def _read_as(path: Path, kinds: Mapping[str, str], columns: Callable[[str], bool] | None = None) -> pd.DataFrame:
    return pd.read_csv(path, dtype=kinds, usecols=columns, keep_default_na=False, na_values=[""])


def _column_at_fault(path: Path, kinds: Mapping[str, str]) -> str | None:
    """What is wrong with the first column that is not of its kind, which pandas tells by its number at most."""
    if not path.is_file():
        return None
    for column, kind in kinds.items():
        try:
            _read_as(path, {column: kind}, [column].__contains__)
        except ValueError:
            return f"column {column} holds something that is no {_WORDS.get(kind, kind)}"
    return None


def _told(path: Path) -> dict[str, Any]:
    """What `write_answers` wrote beside answers, nothing where it did not. Raises DataError where it is damaged."""
    beside = path.with_suffix(".json")
    if not beside.exists():
        return {}
    try:
        told = dict(json.loads(beside.read_text("utf-8")))
        return told | {"machines": [tuple(map(str, names)) for names in told["machines"]]}
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{beside}: does not say what the kernels ran on; take it away, or publish again") from None


def told_machines(path: Path, device: str) -> list[tuple[str, ...]]:
    """What `write_answers` wrote beside answers, or what a ``provenance.json`` there names."""
    if told := _told(path):
        return list(told["machines"])
    return [machine_names(read_provenance(path.parent, path.name), device)]


def joined_names(machines: Sequence[tuple[str, ...]]) -> str:
    """Each name once, for people."""
    return ", ".join(dict.fromkeys(name for machine in machines for name in machine))


def _scored(part: pd.DataFrame, config: RewardConfig, where: str) -> pd.DataFrame:
    """`SCORE_COLUMNS`, ``score`` and ``return`` of every turn among them, behind ``policy`` and ``split``.

    Raises DataError, naming ``where``, for a turn that has none.
    """
    rows: list[int] = []
    scores: list[float | None] = []
    returns: list[float | None] = []
    outcomes = [None if pd.isna(outcome) else Outcome(outcome) for outcome in part["outcome"]]
    turns, speedups = part["turn"].tolist(), part["speedup"].tolist()
    tokens = part["num_completion_tokens"].astype(int).tolist()
    places: dict[tuple[str, int], list[int]] = {}
    for n, key in enumerate(zip(part["task_id"], part["trajectory"], strict=True)):
        places.setdefault(key, []).append(n)
    for (task_id, trajectory), at in places.items():
        if any(turns[later] <= turns[earlier] for earlier, later in pairwise(at)):
            raise DataError(f"{where}: turns of {task_id}, trajectory {trajectory}, are not in order, each once")
        try:
            own = [configured_score(outcomes[n], speedups[n], config) for n in at]
        except ValueError as e:
            raise DataError(f"{where}: {task_id}, trajectory {trajectory}: {e}") from None
        rows += at
        scores += own
        returns += configured_returns(own, [tokens[n] for n in at], config)
    found = pd.DataFrame({"score": scores, "return": returns}, part.index[rows], dtype="float64")
    scored = part.assign(**found)
    return scored[["policy", "split", *SCORE_COLUMNS]].astype(SCORE_COLUMNS)
