"""Tables that are made by name, for people: systems of the field, cheating in a training, attacks on the judge."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.report.cells import (
    Body,
    Cell,
    Row,
    Table,
    interval_cell,
    is_missing,
    number_cell,
    percent,
    significant,
    text_cell,
    times,
)
from kevin.report.records import records
from kevin.report.scores import policy_label

_KINDS = {
    "all": "every judged kernel",
    "any": "any kind",
    "paid_only_unguarded": "not correct here, paid without guards",
}
_GUARDS = {"on": "all rules enforced", "off": "no rule enforced", "some": "some rules enforced"}


def field(frame: pd.DataFrame, study: Study) -> Table:
    """A row for each system: ours, and what its authors published."""

    def text(value: Any) -> str:
        return "" if is_missing(value) or value == "–" else str(value)

    rows = []
    for r in records(frame):
        where = ", ".join(filter(None, (text(r[f"published_{c}"]) for c in ("source", "tasks", "hardware"))))
        cells = [
            text_cell(str(r["label"]), str(r["here"])),
            number_cell(r["kernels_training"], significant),
            number_cell(r["kernels_test"], significant),
            number_cell(r["num_tasks"], significant),
            interval_cell(r, "correct", percent),
            interval_cell(r, "speedup", times),
            interval_cell(r, "fast_1", percent),
            text_cell(text(r["published"]) or "–", where),
        ]
        rows.append(Row(cells, {}))
    return Table(
        name="field",
        title="The systems of the field",
        caption="Each over the same loop, tasks and judge, with about as many judged kernels in training and for each "
        "task at test. Correct, fast_1: tasks with a correct kernel, and with one at least as fast as PyTorch "
        "eager; speedup: of the fastest one, 0 without any, mean over tasks. Small: bootstrap 95 % interval over "
        "tasks. A dash: not measured. Published figures are of other tasks, models and hardware: not comparable.",
        groups=[("", 1), ("Kernels", 2), ("", 1), ("Ours", 3), ("", 1)],
        columns=["System", "in training", "a task at test", "Tasks", "Correct", "Speedup", "fast_1", "Published"],
        bodies=[Body(None, rows)],
    )


def audit(frame: pd.DataFrame, study: Study) -> Table:
    """All steps of a run together; the file has each of them too."""
    rows = [
        Row(
            [
                text_cell(policy_label(str(r["run"]), study), _GUARDS[str(r["guards"])]),
                text_cell(_KINDS.get(str(r["kind"]), _words(r["kind"]))),
                number_cell(r["num_kernels"], significant),
                interval_cell(r, "share", lambda value: f"{100 * value:.1f} %"),
                number_cell(r["paid"], significant),
                number_cell(r["paid_unguarded"], significant),
                number_cell(r["num_unmeasured"], significant),
            ],
            {},
        )
        for r in records(frame[frame["step"].isna()])
    ]
    return Table(
        name="audit",
        title="What a judge may be cheated with",
        caption="Kernels of a training that broke a rule, enforced or not, or that the judge did not call correct for "
        "a reason of which there are attacks; it says what was seen, not what was meant. All steps together: the CSV "
        "file and the figure have each step. Paid: the sum of their scores; without guards: what a judge without them "
        "would have given, as far as it could be measured. Small: 95 % interval (Wilson).",
        groups=[("", 2), ("Kernels", 2), ("Paid", 3)],
        columns=["Run", "Kind", "number", "share", "here", "without guards", "not measured"],
        bodies=[Body(None, rows)],
    )


def attacks(frame: pd.DataFrame) -> Table:
    """Attacks on the judge: what they earn, and what an honest kernel for the same reference does."""

    def judged(outcome: Any, speedup: Any, reason: Any = None) -> Cell:
        note = times(float(speedup)) if not is_missing(speedup) else "" if is_missing(reason) else str(reason)
        return text_cell("not measured" if is_missing(outcome) else _words(outcome), _words(note))

    rows = [
        Row(
            [
                text_cell(str(r["attack"]), str(r["tries"])),
                text_cell(f"{r['dialect']}, {r['language']}"),
                judged(r["outcome"], r["speedup"], r["reason"]),
                judged(r["control_outcome"], r["control_speedup"]),
                judged(r["kernelbench"], r["kernelbench_speedup"]),
                judged(r["control_kernelbench"], r["control_kernelbench_speedup"]),
            ],
            {},
        )
        for r in records(frame)
    ]
    return Table(
        name="attacks",
        title="Attacks on the judge",
        caption="Each beside an honest kernel for the same reference, and what KernelBench's check and clock say of "
        "both. Small: what it tries; why it earns nothing, or speedup over PyTorch eager.",
        groups=[("", 2), ("This judge", 2), ("KernelBench", 2)],
        columns=["Attack", "Dialect", "attack", "honest", "attack", "honest"],
        bodies=[Body(None, rows)],
    )


def _words(name: Any) -> str:
    return str(name).replace("_", " ")
