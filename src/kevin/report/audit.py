"""How often kernels of a training did what a judge may be cheated with, step by step, and what that would have paid.

A *kind* is a rule that a kernel broke, enforced or not, or a reason for which the judge, having run it, did not call it
correct. It says what was seen, not what was meant: a loop that ends too early leaves its output unwritten as well.
"""

from __future__ import annotations

import math

import pandas as pd

from kevin.core.config import Study
from kevin.core.types import Outcome
from kevin.report.metrics import with_ends

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
_Z = 1.959963984540054
COLUMNS = [
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
    return pd.DataFrame(rows, columns=COLUMNS).astype({"step": "Int64"})
