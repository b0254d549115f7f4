"""How often the judge errs: of wrong kernels those that it would pay, of right ones those that it refuses.

Kernels whose worth is known are plain files. A folder holds ``tasks/<name>.py``, references in KernelBench's format,
and kernels anywhere below it: ``.cpp`` and ``.cu`` with a launcher of the ``c_abi`` dialect, and modules for
``load_inline``, ``cpp_*.py`` and ``cuda_*.py``. The first lines of a kernel are comments that say ``key: value``.

They are judged without rules; what broke one that training refuses by is not paid either, so a flag of such a rule
counts as refused. What is paid is judged again by protocols that look for more, which a user can ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import Field, ValidationError

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import UsageError
from kevin.core.files import write_csv, write_text
from kevin.core.protocol import JudgeProtocol, Rule
from kevin.core.provenance import record_tables
from kevin.core.texts import split_lines
from kevin.core.types import Device, Frozen, Kernel, Language, Outcome, Task, Verdict, digest
from kevin.judge.benchmarks.kernel_answers import Answers, Asked, judged, kernel_answers
from kevin.tasks.format import inspect_task

TASKS = "tasks"
ALL = "all"
"""Kinds together."""
STRICTER = ("shapes", "memcheck")
"""What a judge may look for beside its default; `stricter_protocols`."""
_OTHERS = (*STRICTER, "before")
"""Judges whose answer stands beside the default's."""
_NUM_SHAPES = 2


class Mutant(Frozen):
    """A kernel with what is known of it."""

    name: str
    """Its path below the folder."""
    task: str
    expect: Literal["right", "wrong"]
    kind: str
    """Of mistake, or of oddity."""
    why: str
    shown: Literal["values", "by construction"] = "values"
    """What proves a wrong one: values that differ by more than the tolerance, or what it does beside them."""
    calls: int = Field(default=2, ge=1)
    """In so many calls its mistake shows."""
    note: str = ""
    """Where a judge may err about it all the same: why, and what would see it."""
    source: str
    task_source: str

    @property
    def language(self) -> Language:
        file = Path(self.name).name
        return "cuda" if file.endswith(".cu") or file.startswith("cuda_") else "cpp"

    @property
    def device(self) -> Device:
        return "cuda" if self.language == "cuda" else "cpu"

    @property
    def kernel(self) -> Kernel:
        dialect: Literal["load_inline", "c_abi"] = "load_inline" if self.name.endswith(".py") else "c_abi"
        return Kernel(dialect=dialect, language=self.language, source=self.source)

    @property
    def digest(self) -> str:
        """Of both sources, 12 hexadecimal digits."""
        return digest(self.source, self.task_source)[:12]


def read_mutants(folder: Path) -> list[Mutant]:
    """All of a folder, in order of their names. Raises UsageError: there are none, or one does not say what it is."""
    tasks = {path.stem: path.read_text("utf-8") for path in sorted((folder / TASKS).glob("*.py"))}
    found = []
    for path in sorted(p for p in folder.glob("*/*") if p.suffix in (".cpp", ".cu", ".py")):
        if path.parent.name == TASKS:
            continue
        source = path.read_text("utf-8")
        said = _header(source)
        name = path.relative_to(folder).as_posix()
        if said.get("task") not in tasks:
            raise UsageError(f"{path}: its first lines name no task of {folder / TASKS}")
        try:
            found.append(
                Mutant.model_validate({**said, "name": name, "source": source, "task_source": tasks[said["task"]]})
            )
        except ValidationError as e:
            raise UsageError(f"{path}: its first lines: {e.errors()[0]['loc'][0]}: {e.errors()[0]['msg']}") from None
    if not found:
        raise UsageError(f"{folder}: holds no kernels below it")
    return found


def _header(source: str) -> dict[str, str]:
    said = {}
    for line in split_lines(source):
        key, colon, value = line.lstrip("/# ").partition(":")
        if not line.startswith(("//", "#")) or not colon:
            break
        said[key] = value.strip()
    return said


def as_tasks(mutants: Sequence[Mutant]) -> dict[str, Task]:
    """Their tasks, by name."""
    sources = {m.task: m.task_source for m in mutants}
    return {
        name: Task(
            id=f"mutants/{name}", level=1, name=name, source=source, origin="user", spec=inspect_task(source, name)
        )
        for name, source in sources.items()
    }


def stricter_protocols(protocol: JudgeProtocol, *, has_sanitizer: bool) -> dict[str, JudgeProtocol]:
    """By what of `STRICTER` they add. They refuse what ``protocol`` refuses, and more."""
    found = {"shapes": protocol.model_copy(update={"shapes": max(_NUM_SHAPES, protocol.shapes)})}
    if protocol.device == "cuda" and has_sanitizer:
        found["memcheck"] = protocol.model_copy(update={"memcheck": True})
    return found


def error_rows(
    mutants: Sequence[Mutant],
    protocol: JudgeProtocol,
    store: Path,
    *,
    pool: JudgePoolConfig,
    refused_by: Sequence[Rule],
    stricter: Mapping[str, JudgeProtocol],
    checkout: Path | None = None,
    before: Path | None = None,
) -> list[dict[str, Any]]:
    """A row for each kernel; arguments and errors beside these as of `kernel_answers`.

    Args:
        refused_by: rules whose flags keep a correct kernel from being paid.
        stricter: by names of `STRICTER`. They judge what is paid; what is not is not paid by them either.
        before: rows of an earlier judge, whose outcome goes beside this one's.
    """
    tasks = as_tasks(mutants)
    asked = [Asked(task=tasks[m.task], kernel=m.kernel) for m in mutants]
    answers = kernel_answers(asked, protocol, store, pool=pool, checkout=checkout)
    paid = [i for i, a in enumerate(answers) if is_paid(a.verdict, refused_by)]
    earlier = _earlier(before) if before is not None else {}
    others: dict[str, dict[int, bool | None]] = {"before": {i: earlier.get(m.name) for i, m in enumerate(mutants)}}
    for name, own in stricter.items():
        others[name] = dict.fromkeys(range(len(asked)), False)
        for i, verdict in zip(paid, judged([asked[i] for i in paid], own, store, pool), strict=True):
            others[name][i] = is_paid(verdict, refused_by) if isinstance(verdict, Verdict) else None
    return [
        _row(m, answers[i], i in paid, {name: column[i] for name, column in others.items()})
        for i, m in enumerate(mutants)
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


def _row(m: Mutant, answers: Answers, paid: bool, others: Mapping[str, bool | None]) -> dict[str, Any]:
    """``others``: by which other judge it is paid, by names of `_OTHERS`."""
    return {
        "file": m.name,
        "task": m.task,
        "dialect": m.kernel.dialect,
        "language": m.language,
        "kind": m.kind,
        "expect": m.expect,
        **answers.ours(),
        "paid": paid,
        "as_expected": paid == (m.expect == "right"),
        **{f"paid_{name}": others.get(name) for name in _OTHERS},
        **answers.kernelbench(),
        "note": m.note,
    }


_PAID = tuple(f"paid_{name}" for name in _OTHERS)
_COUNTS = ("number", "paid", "errors", *_PAID, "kernelbench_passed")


def error_table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Numbers of kernels by language, what they are, and kind; the kind ``all`` is of all kinds together."""
    frame = pd.DataFrame(rows)
    counted = pd.DataFrame(
        {
            **{name: frame[name] for name in ("language", "expect", "kind")},
            "number": 1,
            "paid": frame["paid"].astype(int),
            "errors": (~frame["as_expected"].astype(bool)).astype(int),
            **{name: frame[name].astype("boolean").astype("Int64") for name in _PAID},
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
    paths = [out / f"judge_errors{ending}" for ending in (".csv", ".md", ".tex", "_rows.csv")]
    table = error_table(rows)
    write_csv(paths[0], table)
    write_text(paths[1], table.to_markdown(index=False) + "\n")
    write_text(paths[2], table.to_latex(index=False, escape=True, na_rep=""))
    write_csv(paths[3], pd.DataFrame(rows))
    return [*paths, record_tables(out, [paths[0].name, paths[3].name], provenance)]


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the table says, in lines."""
    lines = []
    for expect, verb in (("wrong", "paid"), ("right", "refused")):
        known = [r for r in rows if r["expect"] == expect]
        missed = [r for r in known if not r["as_expected"]]
        lines.append(f"{len(missed)} of {len(known)} {expect} kernels are {verb}")
        lines += [
            f"{verb}: {r['file']} ({r['kind']}): {r['outcome']}"
            + (f", {r['reason']}" if r["reason"] else "")
            + (f" ({r['note']})" if r["note"] else "")
            for r in missed
        ]
    return lines
