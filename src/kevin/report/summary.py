"""The study in a few lines of text, from its written tables: what a person reads at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from kevin.report.forms import percent, records, signed, times
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
    levels = {split_label(level): _own_rows(path, study) for level, path in paths.items() if path.exists()}
    if not levels:
        raise DataError(f"{paths['level1']}: there is no such table yet; make the study with: snakemake")
    trained = trained_policies(study)
    gain = _read(results / "tables" / "rl_gain.csv" if trained else None)
    folders = [results / "base_model"]
    folders += [results / "train" / Path(study.policies[policy].model).name for policy in trained]
    trainings = read_summaries([folder / "summary.json" for folder in folders])
    lines = {
        "primary endpoint": _primary(_read(results / "tables" / "claims.csv")),
        **_correct(levels, gain, study),
        "kernels that compile": _compile(_read(results / "figures" / "outcomes.csv"), study),
        "speedup over eager": "; ".join(
            f"{level}, best@{rows.drop(index=CEILING, errors='ignore')['trajectories'].max():.0f}: "
            f"{_listed(rows['speedup_best'], times, rows['num_seeds'], study)}"
            for level, rows in levels.items()
        ),
        "share of the ceiling": "; ".join(
            f"{level}: {_listed(speedups / speedups[CEILING], percent, rows['num_seeds'], study)}"
            for level, rows in levels.items()
            if CEILING in (speedups := rows["speedup_best"])
        ),
        "gain in mean score": "; ".join(_gain(row, study) for row in records(gain) if row["num_seeds"] == 1),
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


def _read(path: Path | None) -> pd.DataFrame:
    """A written table; an empty one where it is not there."""
    return read_table(path) if path is not None and path.exists() else pd.DataFrame()


def _primary(claims: pd.DataFrame) -> str:
    """``0.98 (95 % interval 0.90 to 1.05), not shown``, or why it was not measured."""
    for row in records(claims):
        if row["kind"] == PRIMARY:
            if row["verdict"] == NOT_MEASURED:
                return f"not measured: {row['why']}"
            ends = f"{row['ours_low']:.2f} to {row['ours_high']:.2f}"
            return f"{row['claim']}: {times(row['ours'])} (95 % interval {ends}), {row['verdict']}"
    return ""


def _own_rows(path: Path, study: Study) -> pd.DataFrame:
    """This study's rows of a level table, over eager and of all tasks, by policy; of several seeds that of all."""
    table = read_table(path)
    own = table[(table["source"] == OURS) & (table["baseline"] == EAGER) & (table["subset"] == ALL_TASKS)]
    return _together(own[own["policy"] != COMPILE_POLICY], study)


def _together(table: pd.DataFrame, study: Study) -> pd.DataFrame:
    """By policy, the last row of each, which of several seeds is that of all."""
    firsts = table[[first_seed(policy, study) == policy for policy in table["policy"]]]
    return firsts.drop_duplicates("policy", keep="last").set_index("policy")


def _listed(
    values: pd.Series, show: Callable[[float], str], num_seeds: Mapping[Any, Any] | pd.Series, study: Study
) -> str:
    """``base model 28 % -> multi-turn RL 37 %``: compared policies in their order."""
    sides: dict[bool, list[str]] = {False: [], True: []}
    trained = trained_policies(study)
    for policy in (p for p in study.evaluate if p in values):
        label = policy_label(policy, study, int(num_seeds.get(policy, 1)))
        sides[policy in trained].append(f"{label} {show(values[policy])}")
    return " -> ".join(", ".join(side) for side in sides.values() if side)


def _correct(levels: Mapping[str, pd.DataFrame], gain: pd.DataFrame, study: Study) -> dict[str, str]:
    """Of kernels where training was measured; of trajectories, all that the level tables say, where not."""
    if len(gain):
        rows = _together(gain, study)
        before = gain.drop_duplicates("baseline").set_index("baseline")["baseline_correct"]
        shares = pd.concat([before.drop(index=rows.index, errors="ignore"), rows["policy_correct"]])
        return {"correct kernels": _listed(shares, percent, rows["num_seeds"], study)}
    rows = pd.concat(levels.values())
    total = (rows["correct_avg"] * rows["num_tasks"]).groupby(level=0).sum()
    shares = total / rows["num_tasks"].groupby(level=0).sum()
    return {"correct trajectories": _listed(shares, percent, rows["num_seeds"].groupby(level=0).max(), study)}


def _compile(outcomes: pd.DataFrame, study: Study) -> str:
    """Of all answers with a verdict, by the numbers behind the figure of outcomes."""
    if outcomes.empty:
        return ""
    compiled = outcomes[[Outcome(outcome).compiles for outcome in outcomes["outcome"]]]
    shares = compiled.groupby("policy")["num"].sum() / outcomes.groupby("policy")["num"].sum()
    return _listed(shares.dropna(), percent, {}, study)


def _gain(row: Mapping[str, Any], study: Study) -> str:
    interval = f"{signed(row['ci_low'])} to {signed(row['ci_high'])}"
    label = policy_label(str(row["policy"]), study)
    return f"{label} {signed(row['mean_score_gain'])} (95 % interval {interval}, {row['num_tasks']} tasks)"


def _judged(levels: Mapping[str, pd.DataFrame], trainings: Sequence[TrainingSummary]) -> str:
    rows = pd.concat(levels.values())
    known, missing = int(rows["num_turns"].sum()), int(rows["num_turns_missing"].sum())
    text = f"{known + missing:,} turns on held-out tasks, {known:,} with a verdict"
    training = sum(t.num_kernels or 0 for t in trainings)
    return text + (f"; {training:,} kernels in training" if training else "")
