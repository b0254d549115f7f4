"""What a trainer left, step by step; what training gained on held-out tasks over the model it started from; where the
time of its steps goes; and how often its kernels did what a judge may be cheated with.

``metrics.jsonl`` holds one JSON object a line, with ``step`` and numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.texts import split_lines
from kevin.core.types import Outcome
from kevin.report.metrics import by_seed, mean_estimate, minus, with_ends
from kevin.report.recipes import recipes


def read_records(path: Path) -> list[dict[str, Any]]:
    """One record a step, in order. Raises DataError for a file that cannot be read, a line that is no record, or a step
    that is missing. A step may be there again.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as e:
        raise DataError(f"{path}: cannot be read ({e.strerror})") from None
    records: list[dict[str, Any]] = []
    for number, line in enumerate(split_lines(text), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            record["step"] = int(record["step"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}, line {number}: not a JSON object with a step") from None
        if records and record["step"] > (due := records[-1]["step"] + 1):
            raise DataError(f"{path}, line {number}: step {record['step']}, where step {due} belongs")
        records.append(record)
    return records


def read_step_turns(run: Path, steps: Sequence[int], columns: Sequence[str]) -> pd.DataFrame | None:
    """These columns of all turns of these steps of a run; None where a step's file is not there any more.

    Raises DataError for a file that cannot be read.
    """
    paths = [run / "turns" / f"step_{step:05d}.parquet" for step in steps]
    if not paths or not all(path.exists() for path in paths):
        return None
    frames: list[pd.DataFrame] = []
    for path in paths:
        try:
            frames.append(pq.read_table(path, columns=list(columns)).to_pandas())
        except (pa.ArrowInvalid, OSError) as e:
            raise DataError(f"{path}: cannot be read ({e}); train again: rm -r {run}") from None
    return pd.concat(frames, ignore_index=True)


# --- gain ---------------------------------------------------------------------------------------------------------


GAIN_COLUMNS = [
    *("policy", "baseline", "mean_score_gain", "ci_low", "ci_high", "num_tasks"),
    *("policy_score", "baseline_score", "policy_correct", "baseline_correct", "num_seeds"),
]
"""Gain and its bootstrap 95 % interval over tasks and seeds; then the means that it is the difference of."""


def trained_policies(study: Study) -> dict[str, str]:
    """Compared policies that a run made, each with the key of the policy that the run started from."""
    return {p: study.for_run(run).train.init for p in study.evaluate if (run := study.made_by(p)) is not None}


def rl_gain_table(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each trained policy, and of several seeds one for all. ``scores``: of any policies and splits.

    A task's value is the mean score of all its turns that have a verdict; policies and baseline share the tasks.
    Raises DataError when no trained policy and its baseline are in the scores.
    """
    judged = scores[scores["score"].notna()]
    by_task = judged.assign(correct=(judged["outcome"] == "correct").astype(float)).groupby(["policy", "task_id"])
    values, correct = by_task["score"].mean(), by_task["correct"].mean()
    trained = trained_policies(study)
    known = set(judged["policy"])
    rows: list[list[object]] = []
    for recipe in recipes((p for p in trained if p in known and trained[p] in known), study):
        for seeds in (row.seeds for row in recipe.rows()):
            started = [trained[policy] for policy in seeds]
            started = started if len(set(started)) > 1 else started[:1]
            gained = by_seed([values[policy] for policy in seeds])
            before = by_seed([values[policy] for policy in started])
            shared = gained.dropna(how="all").index.intersection(before.index)
            gain = minus(mean_estimate(gained.loc[shared], study), mean_estimate(before.loc[shared], study)).interval
            means = [
                float(by_seed([column[policy] for policy in group]).loc[shared].mean().mean())
                for column in (values, correct)
                for group in (seeds, started)
            ]
            rows.append([seeds[0], started[0], *gain, len(shared), *means, len(seeds)])
    if not rows:
        raise DataError("none of the score files holds a trained policy and the one it started from")
    return pd.DataFrame(rows, columns=GAIN_COLUMNS)


# --- time ---------------------------------------------------------------------------------------------------------

PARTS = ("generate", "judge", "model")
TIME_COLUMNS = ["run", "num_steps", "step_s", *(f"{p}_s" for p in PARTS), "own_s", "own_share", "kernels_per_minute"]
"""Means over the steps. ``model``: forward and backward passes and the optimiser; ``own``: everything that is none of
the three, checkpoints and logs included. Judging beside generation counts as generation. Kernels a minute of judging,
those that the verdict store knew among them."""


def step_time_table(runs: Sequence[Path]) -> pd.DataFrame:
    """One row for each folder of a training run. Raises DataError where its metrics say nothing of it."""
    return pd.DataFrame([_row(run) for run in runs], columns=TIME_COLUMNS)


def _row(run: Path) -> list[object]:
    path = run / "metrics.jsonl"
    records = read_records(path)
    if not records or any(p not in r.get("seconds", ()) for r in records for p in PARTS):
        raise DataError(f"{path}: holds no times, or is of an older version; train again: rm -r {run}")
    times = pd.DataFrame([r["seconds"] for r in records])
    means = times.mean()
    own = means["step"] - sum(means[p] for p in PARTS)
    kernels = sum(r["num_kernels"] for r in records)
    judge_s = sum(float(times[name].sum()) for name in ("judge", "beside") if name in times)
    rate = 60 * kernels / judge_s if judge_s > 0 else float("nan")
    return [run.name, len(records), means["step"], *(means[p] for p in PARTS), own, own / means["step"], rate]


# --- audit --------------------------------------------------------------------------------------------------------

# Step by step, and what each would have paid. A *kind* is a rule that a kernel broke, enforced or not, or a reason for
# which the judge, having run it, did not call it correct. It says what was seen, not what was meant: a loop that ends
# too early leaves its output unwritten as well.

AUDIT_KIND = "audit"
"""Kind of the files that `kevin audit kernels` writes, a row for each judged turn of a training."""
REASONS = frozenset(
    [
        "clock_disagrees",
        "early_exit",
        "fallback_after_failed_build",
        "faster_than_possible",
        "forbidden_call",
        "input_mutated",
        "library_kernels",
        "not_written",
        "protocol_abuse",
        "work_after_return",
        "wrong_after_timing",
        "wrong_aliasing",
        "wrong_dtype",
        "wrong_strides",
        "wrong_tiny_values",
        "wrong_type",
    ]
)
"""Those of which there are attacks; what is merely wrong, or crashes, is none."""
ALL, ANY, PAID = "all", "any", "paid_only_unguarded"
"""Every judged turn; those of at least one kind; those that are not correct here, and paid without guards."""
KIND_NAMES = {ALL: "every judged kernel", ANY: "any kind", PAID: "not correct here, paid without guards"}
_Z = 1.959963984540054
AUDIT_COLUMNS = [
    *("run", "guards", "step", "kind", "num_kernels", "num_judged", *with_ends("share")),
    *("paid", "paid_unguarded", "num_unmeasured"),
]


def wilson(count: int, of: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927, without continuity correction); of none counted it is not empty.

    It takes kernels for independent of each other, which those of one task and step are not quite.
    """
    if of == 0:
        return math.nan, math.nan
    share, z2 = count / of, _Z**2 / of
    middle = (share + z2 / 2) / (1 + z2)
    half = _Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of)) / (1 + z2)
    return (0.0 if count == 0 else middle - half), (1.0 if count == of else middle + half)


def kinds_of(turns: pd.DataFrame) -> pd.Series:
    """The kinds of each turn, as sets."""
    flags = turns["flags"].fillna("").str.split()
    reasons = turns["reason"].where(turns["reason"].isin(REASONS))
    refused = turns["outcome"] != Outcome.CORRECT.value
    paid = refused & (turns["unguarded"] == True)  # noqa: E712  (absent where it is not known)
    return pd.Series(
        [
            {ALL}
            | ({*rules, *([] if pd.isna(reason) else [reason])})
            | ({ANY} if rules or not pd.isna(reason) else set())
            | ({PAID} if is_paid else set())
            for rules, reason, is_paid in zip(flags, reasons, paid, strict=True)
        ],
        index=turns.index,
        dtype=object,
    )


def guards(rules: str, study: Study) -> str:
    """``on``: all rules of the study were enforced; ``off``: none; ``some``."""
    own = set(rules.split())
    if not own:
        return "off"
    return "on" if own >= set(study.judge.rules) else "some"


def audit_table(turns: pd.DataFrame, study: Study) -> pd.DataFrame:
    """One row for each run, step and kind that any of the runs shows; without a step: all steps of the run together.

    ``num_kernels`` of ``num_judged`` turns are of the kind, a ``share`` with its 95 % interval (`wilson`). ``paid``:
    the sum of their scores; ``paid_unguarded``: of those that a judge without guards would have given them, as far as
    that is known: ``num_unmeasured`` could not be measured.
    """
    turns = turns.assign(kinds=kinds_of(turns))
    found = turns["kinds"].explode().value_counts()
    own = sorted(set(found.index) - {ALL, ANY, PAID}, key=lambda k: (-found[k], k))
    rows = []
    for run, of_run in turns.groupby("run", sort=False):
        how = guards(str(of_run["rules"].iloc[0]), study)
        steps = [*of_run.groupby("step"), (pd.NA, of_run)]
        for step, judged in steps:
            for kind in (ALL, ANY, PAID, *own):
                chosen = judged[[kind in kinds for kinds in judged["kinds"]]]
                share = (len(chosen) / len(judged), *wilson(len(chosen), len(judged)))
                unguarded = chosen["unguarded_score"]
                paid = (chosen["score"].sum(), unguarded.sum(), unguarded.isna().sum())
                rows.append([run, how, step, kind, len(chosen), len(judged), *share, *paid])
    return pd.DataFrame(rows, columns=AUDIT_COLUMNS).astype({"step": "Int64"})
