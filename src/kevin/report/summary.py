"""The study in a few lines of text, from its written tables: what a person reads at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import read_table
from kevin.core.types import Outcome
from kevin.report.captions import TrainingSummary, read_summaries, study_note
from kevin.report.catalogue import SPLITS
from kevin.report.claims import NOT_MEASURED, PRIMARY
from kevin.report.diff import read_origin
from kevin.report.forms import percent, signed, times
from kevin.report.paper import OURS
from kevin.report.recipes import ALL_TASKS, CEILING, first_seed, policy_label, split_label
from kevin.report.tables import COMPILE_POLICY, EAGER
from kevin.report.training import trained_policies

_WIDTH = 22


def summary_text(study: Study) -> str:
    """A line for each number that matters, with its name; what the study does not have is left out.

    Policies as they were before training, then, behind an arrow, the trained ones; of seeds the mean. Raises DataError
    when no level table is there.
    """
    results = Path(study.results)
    paths = {split: results / "tables" / f"{split}.csv" for split in SPLITS}
    levels = {level: _own_rows(path) for level, path in paths.items() if path.exists()}
    if not levels:
        raise DataError(f"{paths['level1']}: there is no such table yet; make the study with: snakemake")
    trained = trained_policies(study)
    gain_path = results / "tables" / "rl_gain.csv"
    gain = _each_seed(read_table(gain_path)) if trained and gain_path.exists() else None
    folders = [results / "base_model"]
    folders += [results / "train" / Path(study.policies[policy].model).name for policy in trained]
    trainings = read_summaries([folder / "summary.json" for folder in folders])
    lines = {
        "primary endpoint": _primary(results / "tables" / "claims.csv"),
        **_correct(levels, gain, study),
        "kernels that compile": _compile(results / "figures" / "outcomes.csv", study),
        "speedup over eager": "; ".join(_speedups(levels, study)),
        "share of the ceiling": "; ".join(_ceiling_shares(levels, study)),
        "gain in mean score": "" if gain is None else "; ".join(_gains(gain, study)),
        "judged": _judged(levels, trainings),
        "note": study_note(trainings, study) or "",
        "report": str(results / "report.html"),
    }
    return "".join(f"{name:<{_WIDTH}}{text}\n" for name, text in lines.items() if text)


def study_record(study: Study) -> dict[str, Any]:
    """What ``provenance.json`` says of a study: what its files record, and in how many minutes a step of it ran."""
    results = Path(study.results)
    kinds: dict[str, list[Path]] = {}
    for path in (results / "benchmarks").glob("*.tsv"):
        kinds.setdefault("search_minutes" if "search" in path.stem else "minutes", []).append(path)
    record = read_origin(results).provenance | {kind: _minutes(paths) for kind, paths in kinds.items()}
    return {key: value for key, value in record.items() if key not in ("kind", "schema_version")}


def _minutes(benchmarks: Sequence[Path]) -> int:
    """In which one of these steps ran, by the files that Snakemake writes at the end of each."""
    ends = [(path.stat().st_mtime, float(pd.read_csv(path, sep="\t")["s"].sum())) for path in benchmarks]
    seconds = reached = 0.0
    for begun, ended in sorted((ended - took, ended) for ended, took in ends):
        seconds += max(0.0, ended - max(begun, reached))
        reached = max(reached, ended)
    return round(seconds / 60)


def _primary(path: Path) -> str:
    """``0.98 (95 % interval 0.90 to 1.05), not shown``, or why it was not measured."""
    if not path.exists():
        return ""
    for row in read_table(path).to_dict("records"):
        if row.get("kind") == PRIMARY:
            if row["verdict"] == NOT_MEASURED:
                return f"not measured: {row['why']}"
            ends = f"{row['ours_low']:.2f} to {row['ours_high']:.2f}"
            return f"{row['claim']}: {times(row['ours'])} (95 % interval {ends}), {row['verdict']}"
    return ""


def _own_rows(path: Path) -> pd.DataFrame:
    """This study's rows of a level table, over eager and of all tasks, by policy."""
    table = read_table(path)
    own = table[(table["source"] == OURS) & (table["baseline"] == EAGER) & (table["subset"] == ALL_TASKS)]
    return _each_seed(own[own["policy"] != COMPILE_POLICY]).set_index("policy")


def _each_seed(table: pd.DataFrame) -> pd.DataFrame:
    """Without the rows of several seeds together."""
    return table[~(table["num_seeds"] > 1)]


def _listed(values: Mapping[Any, float], show: Callable[[float], str], study: Study) -> str:
    """``base model 28 % -> multi-turn RL 37 %``: compared policies in their order."""
    kinds: dict[str, list[float]] = {}
    for policy in (p for p in study.evaluate if p in values):
        kinds.setdefault(first_seed(policy, study), []).append(float(values[policy]))
    sides: dict[bool, list[str]] = {False: [], True: []}
    trained = trained_policies(study)
    for kind, seeds in kinds.items():
        sides[kind in trained].append(f"{policy_label(kind, study, len(seeds))} {show(sum(seeds) / len(seeds))}")
    return " -> ".join(", ".join(side) for side in sides.values() if side)


def _correct(levels: Mapping[str, pd.DataFrame], gain: pd.DataFrame | None, study: Study) -> dict[str, str]:
    """Of kernels where training was measured; of trajectories, all that the level tables say, where not."""
    if gain is not None:
        shares = dict(zip(gain["baseline"], gain["baseline_correct"], strict=True))
        shares |= dict(zip(gain["policy"], gain["policy_correct"], strict=True))
        return {"correct kernels": _listed(shares, percent, study)}
    rows = pd.concat(levels.values())
    total = (rows["correct_avg"] * rows["num_tasks"]).groupby(level=0).sum()
    shares = (total / rows["num_tasks"].groupby(level=0).sum()).to_dict()
    return {"correct trajectories": _listed(shares, percent, study)}


def _compile(path: Path, study: Study) -> str:
    """Of all answers with a verdict, by the numbers behind the figure of outcomes."""
    if not path.exists():
        return ""
    rows = read_table(path)
    compiled = rows[[Outcome(outcome).compiles for outcome in rows["outcome"]]]
    shares = compiled.groupby("policy")["num"].sum() / rows.groupby("policy")["num"].sum()
    return _listed(shares.dropna().to_dict(), percent, study)


def _speedups(levels: Mapping[str, pd.DataFrame], study: Study) -> Iterator[str]:
    for level, rows in levels.items():
        size = rows.loc[rows.index != CEILING, "trajectories"].max()
        yield f"{split_label(level)}, best@{size:.0f}: {_listed(rows['speedup_best'].to_dict(), times, study)}"


def _ceiling_shares(levels: Mapping[str, pd.DataFrame], study: Study) -> Iterator[str]:
    """Mean best speedup as a share of the ceiling's."""
    for level, rows in levels.items():
        if CEILING in rows.index:
            shares = rows["speedup_best"] / rows["speedup_best"][CEILING]
            yield f"{split_label(level)}: {_listed(shares.to_dict(), percent, study)}"


def _gains(gain: pd.DataFrame, study: Study) -> Iterator[str]:
    for row in gain.to_dict("records"):
        interval = f"{signed(row['ci_low'])} to {signed(row['ci_high'])}"
        label = policy_label(str(row["policy"]), study)
        yield f"{label} {signed(row['mean_score_gain'])} (95 % interval {interval}, {row['num_tasks']} tasks)"


def _judged(levels: Mapping[str, pd.DataFrame], trainings: Sequence[TrainingSummary]) -> str:
    rows = pd.concat(levels.values())
    known, missing = int(rows["num_turns"].sum()), int(rows["num_turns_missing"].sum())
    text = f"{known + missing:,} turns on held-out tasks, {known:,} with a verdict"
    training = sum(t.num_kernels or 0 for t in trainings)
    return text + (f"; {training:,} kernels in training" if training else "")
