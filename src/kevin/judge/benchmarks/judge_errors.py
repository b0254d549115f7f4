"""How often the judge errs: of wrong kernels those that it would pay, of right ones those that it refuses.

Kernels come from `kevin.judge.benchmarks.mutants`. They are judged without rules; what broke one that training refuses
by is not paid either, so a flag of such a rule counts as refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kevin.core.errors import UsageError
from kevin.core.files import write_csv, write_text
from kevin.core.protocol import JudgeProtocol, Rule
from kevin.core.texts import strict_json
from kevin.core.types import Outcome, Verdict
from kevin.judge.benchmarks.kernel_answers import Answers, Asked, kernel_answers
from kevin.judge.benchmarks.mutants import Mutant, as_tasks
from kevin.judge.device.judging import Judging

ALL = "all"
"""Kinds together."""


def error_rows(
    mutants: Sequence[Mutant],
    open_judging: Callable[[], Judging],
    protocol: JudgeProtocol,
    store: Path,
    *,
    refused_by: Sequence[Rule],
    checkout: Path | None = None,
    before: Path | None = None,
) -> list[dict[str, Any]]:
    """A row for each kernel; arguments and errors beside these as of `kernel_answers`.

    Args:
        refused_by: rules whose flags keep a correct kernel from being paid.
        before: rows of an earlier judge, whose outcome goes beside this one's.
    """
    tasks = as_tasks(mutants)
    asked = [Asked(task=tasks[m.task], kernel=m.kernel) for m in mutants]
    answers = kernel_answers(asked, open_judging, protocol, store, checkout=checkout)
    earlier = _earlier(before) if before is not None else {}
    return [
        _row(m, a, is_paid(a.verdict, refused_by), earlier.get(m.name)) for m, a in zip(mutants, answers, strict=True)
    ]


def is_paid(verdict: Verdict, refused_by: Sequence[Rule]) -> bool:
    """Whether training would pay for it."""
    return verdict.outcome is Outcome.CORRECT and not set(verdict.flags) & set(refused_by)


def _earlier(path: Path) -> dict[str, bool]:
    """By file, whether it was paid. Raises UsageError."""
    try:
        frame = pd.read_csv(path)
        return {str(name): bool(paid) for name, paid in zip(frame["file"], frame["paid"], strict=True)}
    except (OSError, ValueError, KeyError) as e:
        raise UsageError(f"{path}: cannot be read as the rows of an earlier judge: {e}") from None


def _row(m: Mutant, answers: Answers, paid: bool, earlier: bool | None) -> dict[str, Any]:
    verdict = answers.verdict
    return {
        "file": m.name,
        "task": m.task,
        "dialect": m.kernel.dialect,
        "language": m.language,
        "kind": m.kind,
        "expect": m.expect,
        "outcome": str(verdict.outcome),
        "reason": verdict.reason,
        "flags": " ".join(verdict.flags),
        "speedup": verdict.speedup,
        "paid": paid,
        "as_expected": paid == (m.expect == "right"),
        "paid_before": earlier,
        **answers.kernelbench(),
    }


_COUNTS = ("number", "paid", "errors", "paid_before", "kernelbench_passed")


def error_table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Numbers of kernels by language, what they are, and kind; the kind ``all`` is of all kinds together."""
    frame = pd.DataFrame(rows)
    counted = pd.DataFrame(
        {
            **{name: frame[name] for name in ("language", "expect", "kind")},
            "number": 1,
            "paid": frame["paid"].astype(int),
            "errors": (~frame["as_expected"].astype(bool)).astype(int),
            "paid_before": frame["paid_before"].astype("boolean").astype("Int64"),
            "kernelbench_passed": (frame["kernelbench"] == "passed").astype(int),
        }
    )
    together = counted.assign(kind=ALL)
    groups = pd.concat([together, counted]).groupby(["language", "expect", "kind"])
    # a sum over nothing known is unknown, not zero
    sums = groups[list(_COUNTS)].sum(min_count=1).reset_index()
    order = sums["kind"].ne(ALL)
    return sums.assign(order=order).sort_values(["language", "expect", "order", "kind"]).drop(columns="order")


def write_errors(out: Path, rows: Sequence[dict[str, Any]], provenance: dict[str, Any]) -> list[Path]:
    """Into ``out``: ``judge_errors`` as CSV, Markdown and LaTeX, ``judge_errors_rows.csv``, and where they are from."""
    paths = [out / f"judge_errors{ending}" for ending in (".csv", ".md", ".tex", "_rows.csv", ".provenance.json")]
    table = error_table(rows)
    write_csv(paths[0], table)
    write_text(paths[1], table.to_markdown(index=False) + "\n")
    write_text(paths[2], table.to_latex(index=False, escape=True, na_rep=""))
    write_csv(paths[3], pd.DataFrame(rows))
    write_text(paths[4], strict_json(provenance, indent=1, sort_keys=True) + "\n")
    return paths


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the table says, in lines."""
    lines = []
    for expect, verb in (("wrong", "paid"), ("right", "refused")):
        known = [r for r in rows if r["expect"] == expect]
        missed = [r for r in known if not r["as_expected"]]
        lines.append(f"{len(missed)} of {len(known)} {expect} kernels are {verb}")
        lines += [
            f"{verb}: {r['file']} ({r['kind']}): {r['outcome']}" + (f", {r['reason']}" if r["reason"] else "")
            for r in missed
        ]
    return lines
