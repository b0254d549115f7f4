"""Tables for people: CSV files of `kevin.report.tables` as rows of short texts, sortable by the numbers behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd

from kevin.report.scores import CEILING, split_label
from kevin.report.tables import OURS


class Cell(NamedTuple):
    text: str
    sort: float | str = ""
    """What the column is sorted by: a number, or the text in lower case."""
    note: str = ""
    """Small print under the text: an interval."""
    link: str | None = None

    @property
    def is_number(self) -> bool:
        return isinstance(self.sort, float)


class Row(NamedTuple):
    cells: list[Cell]
    tags: dict[str, str]
    """Values that the page's filters choose by."""


class Body(NamedTuple):
    """Rows that are sorted among themselves, under a heading of their own where they are not this study's."""

    heading: str | None
    rows: list[Row]


class Table(NamedTuple):
    name: str
    title: str
    caption: str
    groups: list[tuple[str, int]]
    """Upper header: label and number of columns."""
    columns: list[str]
    bodies: list[Body]
    filters: dict[str, list[str]]

    @property
    def numeric(self) -> list[bool]:
        """For each column, whether it holds numbers."""
        rows = [row for body in self.bodies for row in body.rows]
        return [bool(rows) and rows[0].cells[i].is_number for i in range(len(self.columns))]


# --- numbers ------------------------------------------------------------------------------------------------------


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def times(value: float) -> str:
    return f"{value:.2f}×" if value < 100 else f"{value:.0f}×"


def milliseconds(value_us: float) -> str:
    return f"{value_us / 1000:.3g}"


def significant(value: float) -> str:
    """Four significant digits, integers whole."""
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def number_cell(value: Any, show: Callable[[float], str], low: Any = None, high: Any = None) -> Cell:
    """A dash where there is no number."""
    if _missing(value):
        return Cell("–", -math.inf)
    note = "" if _missing(low) or _missing(high) else f"{_bare(show(float(low)))}–{_bare(show(float(high)))}"
    return Cell(show(float(value)), float(value), note)


def text_cell(text: str, note: str = "", link: str | None = None) -> Cell:
    return Cell(text, text.lower(), note, link)


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _bare(text: str) -> str:
    return text.removesuffix(" %").removesuffix("×")


# --- the study's tables -------------------------------------------------------------------------------------------


def display_table(name: str, frame: pd.DataFrame) -> Table:
    """The display form of a table file by its name; a name that is not known here shows every column."""
    if name.startswith("level"):
        return _level(name, frame)
    if name == "serial_parallel":
        return _serial_parallel(frame)
    if name == "tasks":
        return _tasks(frame)
    return _any(name, frame)


def _bodies(frame: pd.DataFrame, make_row: Callable[[dict[str, Any]], Row]) -> list[Body]:
    bodies = []
    for source, rows in frame.groupby("source", sort=False):
        heading = None if source == OURS else f"Not comparable, other tasks and hardware: {source}"
        bodies.append(Body(heading, [make_row(r) for r in rows.to_dict("records")]))
    return bodies


def _level(name: str, frame: pd.DataFrame) -> Table:
    thresholds = [c.removesuffix("_best") for c in frame.columns if c.startswith("fast_") and c.endswith("_best")]
    shown = ["correct", "speedup", *(t for t in thresholds if t != "fast_0"), "geomean"]
    labels = {"correct": "Correct", "speedup": "Speedup", "geomean": "Geometric mean, correct only"}
    counts = [("Tasks", "num_tasks"), ("Traj.", "trajectories"), ("Turns", "turns")]

    def make_row(r: dict[str, Any]) -> Row:
        note = f"over {r['baseline']} · {r['subset']}" if r["source"] == OURS else ""
        cells = [text_cell(str(r["label"]), note)]
        cells += [number_cell(r[c], significant) for _, c in counts]
        for value in shown:
            show = times if value in ("speedup", "geomean") else percent
            cells += [
                number_cell(r[f"{value}_{of}"], show, r[f"{value}_{of}_low"], r[f"{value}_{of}_high"])
                for of in ("best", "avg")
            ]
        tags = {"baseline": str(r["baseline"]), "subset": str(r["subset"])} if r["source"] == OURS else {}
        return Row(cells, tags)

    ours = frame[frame["source"] == OURS]
    filters = {c: list(dict.fromkeys(ours[c].astype(str))) for c in ("baseline", "subset")}
    return Table(
        name=name,
        title=f"{split_label(name)}: held-out tasks",
        caption="best: of the task's trajectories; avg: their mean; both then averaged over tasks. A trajectory's "
        "speedup is that of its fastest correct kernel, 0 if it has none; fast_p counts those of at least p. Small: "
        "bootstrap 95 % interval over tasks. The ceiling is a search through the kernel writer's first mistake-free "
        "plans (its avg is the mean over them); torch.compile is shown as if a policy had written its kernels.",
        groups=[("", 1 + len(counts)), *((labels.get(v, v), 2) for v in shown)],
        columns=["Policy", *(label for label, _ in counts), *(of for _ in shown for of in ("best", "avg"))],
        bodies=_bodies(frame, make_row),
        filters={k: v for k, v in filters.items() if len(v) > 1},
    )


def _serial_parallel(frame: pd.DataFrame) -> Table:
    def make_row(r: dict[str, Any]) -> Row:
        split = "" if _missing(r["split"]) else split_label(str(r["split"]))
        return Row(
            [
                text_cell(str(r["label"])),
                text_cell(split or "–"),
                number_cell(r["budget"], significant),
                Cell(f"{r['trajectories']:.0f} × {r['turns']:.0f}", float(r["turns"])),
                number_cell(r["speedup"], times, r["speedup_low"], r["speedup_high"]),
                number_cell(r["correct"], percent, r["correct_low"], r["correct_high"]),
            ],
            {},
        )

    return Table(
        name="serial_parallel",
        title="One budget, serial or parallel",
        caption="The same number of kernels a task, spent on more trajectories or on more turns of each: best of the "
        "drawn trajectories within their first turns (unbiased estimate), then the mean over tasks.",
        groups=[],
        columns=["Policy", "Tasks", "Kernels a task", "Trajectories × turns", "Speedup", "Correct"],
        bodies=_bodies(frame, make_row),
        filters={},
    )


def _tasks(frame: pd.DataFrame) -> Table:
    policies = frame.drop_duplicates("policy").set_index("policy")["label"]
    rows = []
    for (split, task), own in frame.groupby(["split", "task_id"], sort=False):
        by_policy, first = own.set_index("policy"), own.iloc[0]
        cells = [
            text_cell(str(task), "known flaw" if first["flawed"] else "", link=f"#view/{task}"),
            text_cell(split_label(str(split))),
            number_cell(first["eager_us"], milliseconds),
            number_cell(first["compile_speedup"], times),
        ]
        for policy in policies.index:
            here = by_policy.loc[policy] if policy in by_policy.index else None
            best = None if here is None or not here["correct_best"] else here["speedup_best"]
            share = "" if here is None or policy == CEILING else f"{percent(here['correct_avg'])} correct"
            cells.append(number_cell(best, times)._replace(note=share))
        rows.append(Row(cells, {}))
    return Table(
        name="tasks",
        title="Task by task",
        caption="Speedup over PyTorch eager of the fastest correct kernel that each policy wrote; small: share of its "
        "trajectories that hold a correct kernel. A dash: no correct kernel.",
        groups=[],
        columns=["Task", "Split", "Eager (ms)", "torch.compile", *policies],
        bodies=[Body(None, rows)],
        filters={},
    )


def _any(name: str, frame: pd.DataFrame) -> Table:
    def cell(value: Any) -> Cell:
        if isinstance(value, str | bool):
            return text_cell(str(value))
        return number_cell(value, significant)

    rows = [Row([cell(v) for v in record], {}) for record in _records(frame)]
    title = name.replace("_", " ").capitalize()
    return Table(name, title, "", [], [str(c) for c in frame.columns], [Body(None, rows)], {})


def _records(frame: pd.DataFrame) -> Iterable[Sequence[Any]]:
    return frame.astype(object).itertuples(index=False, name=None)
