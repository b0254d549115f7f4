"""All scored answers of a study as one CSV, of which whoever has it makes the tables again, without a GPU.

Those of rollouts of ``search`` name their ``strategy``, which no others have. What was written stands beside them
(`kevin.report.published`), by its digest. Scores and returns are not in it: they follow from outcomes and speedups by
the configuration's ``reward``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from kevin.core.errors import DataError
from kevin.core.files import write_csv, write_text
from kevin.core.provenance import machine_names, read_provenance
from kevin.core.reward import configured_returns, configured_score
from kevin.core.texts import strict_json
from kevin.core.types import Outcome

if TYPE_CHECKING:
    from kevin.core.config import RewardConfig, Study

_DERIVED = ("score", "return", "verdict_key")
KERNEL_DIGITS = 12
"""Of a kernel's digest: they tell a task's kernels apart."""
_NEEDED = ("policy", "split", "task_id", "trajectory", "turn", "outcome", "speedup", "num_completion_tokens")
_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "int64": ("whole number", int),
    "float64": ("number", float),
    "bool": ("True or False", {"True": True, "False": False}.__getitem__),
}


def write_answers(
    scores: pd.DataFrame,
    out: Path,
    machines: Sequence[tuple[str, ...]],
    study: Study,
) -> None:
    """Write ``out`` (CSV), and beside it what the kernels ran on, under its name as ``.json``.

    Args:
        scores, machines: as `kevin.report.scores.read_scores` and `kevin.report.scores.machines` give them; scores of
            ``search`` have a column ``strategy``.
    """
    frame = scores.drop(columns=list(_DERIVED))
    write_csv(out, frame.assign(kernel_digest=frame["kernel_digest"].str[:KERNEL_DIGITS]))
    told = {
        "hardware": joined_names(machines),
        "machines": machines,
        "config_digest": study.digest,
        "seed": study.seed,
    }
    write_text(out.with_suffix(".json"), strict_json(told, indent=1) + "\n")


def read_answers(path: Path, columns: dict[str, str], config: RewardConfig) -> list[pd.DataFrame]:
    """Scores of each policy and split of a file that `write_answers` made, in its order; those of ``search`` left out.

    Args:
        columns: of scores, with their types. What the file lacks is absent from every row, but for the level, which
            the split tells; an older one tells nothing of flawed tasks.

    Raises:
        DataError: the file cannot be read, or lacks what scores follow from.
    """
    return [part for strategy, part in _parts(path, columns, config) if strategy is None]


def read_search_answers(path: Path, columns: dict[str, str], config: RewardConfig) -> list[tuple[str, pd.DataFrame]]:
    """The same of the rollouts of ``search`` in such a file, each with its strategy."""
    return [(strategy, part) for strategy, part in _parts(path, columns, config) if strategy is not None]


def _parts(path: Path, columns: dict[str, str], config: RewardConfig) -> Iterator[tuple[str | None, pd.DataFrame]]:
    frame = read_typed(path, "answers", columns)
    if lacking := [name for name in _NEEDED if name not in frame]:
        raise DataError(f"{path}: these are no answers of `kevin publish`: no column {', '.join(lacking)}")
    known = {o.value for o in Outcome}
    if strange := sorted(set(frame["outcome"].dropna()) - known):
        raise DataError(f"{path}: unknown outcome {strange[0]!r}; there are {', '.join(sorted(known))}")
    if "level" not in frame:
        frame["level"] = frame["split"].map(_level)
    if "strategy" not in frame:
        frame["strategy"] = None
    frame = frame.assign(**{name: _absent(kind) for name, kind in columns.items() if name not in frame})
    for (_, _, strategy), part in frame.groupby(["policy", "split", "strategy"], sort=False, dropna=False):
        scored = _scored(part, config, path)[["policy", "split", *columns]].astype(columns).reset_index(drop=True)
        yield (strategy if isinstance(strategy, str) else None), scored


def read_strategies(path: Path) -> pd.DataFrame:
    """Verdicts of the rollouts of ``search`` in such a file: its rows that name a strategy.

    Columns policy, strategy, task_id, trajectory, turn, outcome, speedup. Raises DataError as `read_answers`.
    """
    columns = ["policy", "strategy", "task_id", "trajectory", "turn", "outcome", "speedup"]
    frame = read_typed(path, "answers", {"trajectory": "int64", "turn": "int64", "speedup": "float64"})
    if lacking := [name for name in columns if name not in frame]:
        raise DataError(f"{path}: holds no rollouts of strategies: no column {', '.join(lacking)}")
    return frame.loc[frame["strategy"].notna(), columns]


def read_typed(path: Path, what: str, kinds: Mapping[str, str]) -> pd.DataFrame:
    """A CSV with every number exactly as it was written, which pandas' own reader does not promise.

    Args:
        kinds: types of columns, as far as they are there; all others are text.

    Raises:
        DataError: the file cannot be read, or a column holds something else.
    """
    try:
        frame = pd.read_csv(path, dtype="str", keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as e:
        raise DataError(f"{path}: {what} cannot be read: {e}") from None
    for name in frame.columns.intersection([name for name, kind in kinds.items() if kind in _KINDS]):
        said, convert = _KINDS[kinds[name]]
        try:
            frame[name] = pd.Series([convert(value) for value in frame[name]], index=frame.index, dtype=kinds[name])
        except (ValueError, KeyError):
            raise DataError(f"{path}: column {name} holds something that is no {said}") from None
    return frame


def told_machines(path: Path, device: str) -> list[tuple[str, ...]]:
    """What `write_answers` wrote beside answers, or what a ``provenance.json`` there names."""
    told = _read_json(path.with_suffix(".json"))
    if "machines" in told:
        return [tuple(map(str, names)) for names in told["machines"]]
    if "hardware" in told:
        return [(str(told["hardware"]),)]
    return [machine_names(read_provenance(path.parent, path.name), device)]


def joined_names(machines: Sequence[tuple[str, ...]]) -> str:
    """Each name once, for people."""
    return ", ".join(dict.fromkeys(name for machine in machines for name in machine))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text("utf-8")))
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
            own = [configured_score(_outcome(row), row["speedup"], config) for row in turns]
        except ValueError as e:
            raise DataError(f"{path}: {task_id}, trajectory {trajectory}: {e}") from None
        scores += own
        returns += configured_returns(own, [int(row["num_completion_tokens"]) for row in turns], config)
    part = part.copy()
    part["score"], part["return"] = scores, returns
    return part


def _outcome(row: dict[Any, Any]) -> Outcome | None:
    return Outcome(row["outcome"]) if isinstance(row["outcome"], str) else None
