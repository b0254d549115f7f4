"""The study's tables for people: the CSV files of `kevin.report`, under heads that say what they hold, with units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import pandas as pd

from kevin.core.config import Study
from kevin.report import paper
from kevin.report.cells import (
    Body,
    Cell,
    Row,
    Table,
    fixed,
    milliseconds,
    number_cell,
    percent,
    signed,
    significant,
    text_cell,
    times,
)
from kevin.report.notes import NOTE
from kevin.report.palette import OUTCOMES
from kevin.report.records import records
from kevin.report.scores import CEILING, policy_label, split_label
from kevin.report.tables import OURS
from kevin.report.turns import ANY_ERROR


def display_table(name: str, frame: pd.DataFrame, study: Study) -> Table:
    """The display form of a table file by its name; a name that is not known here shows every column.

    A column ``note`` is not among them: it says of every row what the caption says.
    """
    frame = frame.drop(columns=NOTE, errors="ignore")
    if name.startswith("level"):
        return _level(name, frame)
    known = {"serial_parallel": _serial_parallel, "tasks": _tasks}
    if name in known:
        return known[name](frame)
    labelled = {
        "turns": _turns,
        "mended": _mended,
        "pass_at_k": _pass_at_k,
        "rl_gain": _rl_gain,
        "step_time": _step_time,
        "search": _search,
    }
    if name in labelled:
        return labelled[name](frame, study)
    return _any(name, frame)


_NOT_COMPARABLE = "Not comparable, other tasks, models and hardware"


def _bodies(frame: pd.DataFrame, make_row: Callable[[dict[str, Any]], Row]) -> list[Body]:
    bodies = []
    for source, rows in frame.groupby("source", sort=False):
        own = [make_row(r) for r in records(rows)]
        bodies.append(Body(None, own) if source == OURS else Body(f"{_NOT_COMPARABLE}: {source}, {paper.TASKS}", own))
    return bodies


def _level(name: str, frame: pd.DataFrame) -> Table:
    thresholds = [c.removesuffix("_best") for c in frame.columns if c.startswith("fast_") and c.endswith("_best")]
    shown = ["correct", "speedup", *(t for t in thresholds if t != "fast_0"), "geomean"]
    labels = {"correct": "Correct", "speedup": "Speedup", "geomean": "Geometric mean speedup, correct only"}
    counts = [("Tasks", "num_tasks"), ("Trajectories", "trajectories"), ("Turns", "turns")]

    def make_row(r: dict[str, Any]) -> Row:
        cells = [text_cell(str(r["label"]), f"over {r['baseline']} · {r['subset']}")]
        cells += [number_cell(r[c], significant) for _, c in counts]
        for value in shown:
            show = times if value in ("speedup", "geomean") else percent
            cells += [
                number_cell(r[f"{value}_{of}"], show, r[f"{value}_{of}_low"], r[f"{value}_{of}_high"])
                for of in ("best", "avg")
            ]
        tags = {"baseline": str(r["baseline"])} | ({"subset": str(r["subset"])} if r["source"] == OURS else {})
        return Row(cells, tags)

    ours = frame[frame["source"] == OURS]
    filters = {c: list(dict.fromkeys(ours[c].astype(str))) for c in ("baseline", "subset")}
    bodies = []
    for body in _bodies(frame, make_row):
        if body.heading is None:
            bodies.append(body)
            continue
        bodies.append(body._replace(heading=f"{body.heading}; over PyTorch eager", tags={"baseline": paper.BASELINE}))
        others = [b for b in filters["baseline"] if b != paper.BASELINE]
        bodies += [Body(f"The paper gives no speedups over {b}", [], {"baseline": b}) for b in others]
    return Table(
        name=name,
        title=f"{split_label(name)}: held-out tasks",
        caption="best: of the task's trajectories; avg: their mean; both then averaged over tasks. A trajectory's "
        "speedup is that of its fastest correct kernel, 0 if it has none; fast_p counts those of at least p. Small: "
        "bootstrap 95 % interval over tasks. The ceiling is a search through the kernel writer's first mistake-free "
        "plans (its avg is the mean over them); torch.compile is shown as if a policy had written its kernels.",
        groups=[("", 1 + len(counts)), *((labels.get(v, v), 2) for v in shown)],
        columns=["Policy", *(label for label, _ in counts), *(of for _ in shown for of in ("best", "avg"))],
        bodies=bodies,
        filters={k: v for k, v in filters.items() if len(v) > 1},
    )


def _serial_parallel(frame: pd.DataFrame) -> Table:
    def make_row(r: dict[str, Any]) -> Row:
        return Row(
            [
                text_cell(str(r["label"])),
                text_cell(split_label(str(r["split"]))),
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
        columns=["Policy", "Tasks", "Kernels a task", "Trajectories × turns", "Speedup over eager", "Tasks solved"],
        bodies=_bodies(frame, make_row),
        filters={},
    )


def _seed_cell(r: Mapping[str, Any], study: Study) -> Cell:
    """The policy, and which of its seeds, the first one apart."""
    return text_cell(policy_label(str(r["policy"]), study), f"seed {r['seed']}" if r["seed"] else "")


def _interval_cell(r: Mapping[str, Any], name: str, show: Callable[[float], str]) -> Cell:
    return number_cell(r[name], show, r[f"{name}_low"], r[f"{name}_high"])


def _turns(frame: pd.DataFrame, study: Study) -> Table:
    names = ("correct", "mended", "kept", "faster", "slower", "repeated", "copied")
    rows = [
        Row(
            [
                _seed_cell(r, study),
                text_cell(split_label(str(r["split"]))),
                number_cell(r["turn"], significant),
                number_cell(r["num_kernels"], significant),
                _interval_cell(r, "best_speedup", times),
                *(_interval_cell(r, name, percent) for name in names),
            ],
            {},
        )
        for r in records(frame)
    ]
    return Table(
        name="turns",
        title="What turns are worth",
        caption="Best so far: fastest correct kernel of all trajectories up to this turn, mean over tasks. Mended: of "
        "kernels that were wrong one turn before, those now correct. Of kernels that were correct: kept are those "
        "still correct, faster and slower those whose speed changed by more than 5 %, repeated the same program. "
        "Copied: of all kernels, those at least 95 % alike to the answer before (matching tokens of both, without "
        "comments and layout). Shares are over the kernels of all tasks; small: bootstrap 95 % interval over tasks.",
        groups=[("", 5), ("Of all", 1), ("Of wrong", 1), ("Of correct", 4), ("Of all", 1)],
        columns=["Policy", "Tasks", "Turn", "Kernels", "Best so far", *names],
        bodies=[Body(None, rows)],
        filters={},
    )


def _mended(frame: pd.DataFrame, study: Study) -> Table:
    labels = {ANY_ERROR: "any error"} | {o.value: style.label for o, style in OUTCOMES.items()}
    rows = [
        Row(
            [
                _seed_cell(r, study),
                text_cell(split_label(str(r["split"]))),
                text_cell(labels[str(r["error"])]),
                number_cell(r["num_kernels"], significant),
                _interval_cell(r, "mended", percent),
                _interval_cell(r, "copied", percent),
            ],
            {},
        )
        for r in records(frame)
    ]
    return Table(
        name="mended",
        title="What becomes of wrong kernels",
        caption="Of wrong kernels that had a next turn: those that it made correct, and those that it gave again at "
        "least 95 % alike. All turns together. Small: bootstrap 95 % interval over tasks.",
        groups=[],
        columns=["Policy", "Tasks", "Error", "Wrong kernels", "mended", "copied"],
        bodies=[Body(None, rows)],
        filters={},
    )


def _pass_at_k(frame: pd.DataFrame, study: Study) -> Table:
    rows = [
        Row(
            [
                _seed_cell(r, study),
                number_cell(r["level"], significant),
                number_cell(r["k"], significant),
                number_cell(r["num_tasks"], significant),
                _interval_cell(r, "correct", percent),
                number_cell(r["fast_1"], percent),
            ],
            {},
        )
        for r in records(frame)
    ]
    return Table(
        name="pass_at_k",
        title="First answers",
        caption="Share of tasks that k first answers solve, without any feedback (unbiased estimate from all first "
        "answers), and of those solved at least as fast as PyTorch eager. Small: bootstrap 95 % interval over tasks.",
        groups=[],
        columns=["Policy", "Level", "k", "Tasks", "pass@k", "fast_1@k"],
        bodies=[Body(None, rows)],
        filters={},
    )


def _search(frame: pd.DataFrame, study: Study) -> Table:
    rows = [
        Row(
            [
                _seed_cell(r, study),
                text_cell(str(r["strategy"])),
                number_cell(r["kernels"], significant),
                number_cell(r["gpu_seconds"], significant),
                _interval_cell(r, "speedup", times),
                _interval_cell(r, "correct", percent),
            ],
            {},
        )
        for r in records(frame)
    ]
    return Table(
        name="search",
        title="Ways to spend the same kernels",
        caption="The fastest correct kernel of a task after so many kernels, mean over tasks (0 without any), and "
        "share of tasks with a correct one. Device seconds a task: generating answers, checking and timing kernels. "
        "Small: bootstrap 95 % interval over tasks.",
        groups=[],
        columns=["Policy", "Strategy", "Kernels a task", "Device seconds a task", "Speedup over eager", "Tasks solved"],
        bodies=[Body(None, rows)],
        filters={},
    )


def _tasks(frame: pd.DataFrame) -> Table:
    policies = frame.drop_duplicates("policy").set_index("policy")["label"]
    rows = []
    for (split, task), own in frame.groupby(["split", "task_id"], sort=False):
        by_policy, first = own.set_index("policy"), own.iloc[0]
        cells = [
            text_cell(str(task), "known flaw" if first["flawed"] else "", link=f"#view/{quote(str(task))}"),
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
        columns=["Task", "Split", "PyTorch eager (ms)", "torch.compile", *policies],
        bodies=[Body(None, rows)],
        filters={},
    )


def _rl_gain(frame: pd.DataFrame, study: Study) -> Table:
    rows = [
        Row(
            [
                text_cell(policy_label(str(r["policy"]), study)),
                text_cell(policy_label(str(r["baseline"]), study)),
                number_cell(r["num_tasks"], significant),
                number_cell(r["mean_score_gain"], signed, r["ci_low"], r["ci_high"]),
                number_cell(r["baseline_score"], fixed),
                number_cell(r["policy_score"], fixed),
                number_cell(r["baseline_correct"], percent),
                number_cell(r["policy_correct"], percent),
            ],
            {},
        )
        for r in records(frame)
    ]
    return Table(
        name="rl_gain",
        title="What training gained on held-out tasks",
        caption="Score of a kernel: its speedup over PyTorch eager and a bonus if it is correct, 0 if not (`reward` in "
        "the configuration). Means over every judged kernel of a task, then over the tasks that both policies "
        "answered. Small: bootstrap 95 % interval over these tasks, in pairs.",
        groups=[("", 3), ("Mean score", 3), ("Correct kernels", 2)],
        columns=["Policy", "Trained from", "Tasks", "gain", "before", "after", "before", "after"],
        bodies=[Body(None, rows)],
        filters={},
    )


def _step_time(frame: pd.DataFrame, study: Study) -> Table:
    parts = {"step_s": "all", "generate_s": "generation", "judge_s": "judging", "model_s": "model", "own_s": "the rest"}
    rows = [
        Row(
            [
                text_cell(policy_label(str(r["run"]), study)),
                number_cell(r["num_steps"], significant),
                *(number_cell(r[column], fixed) for column in parts),
                number_cell(r["own_share"], percent),
                number_cell(r["kernels_per_minute"], lambda value: f"{value:,.0f}"),
            ],
            {},
        )
        for r in records(frame)
    ]
    return Table(
        name="step_time",
        title="Where a training step's time goes",
        caption="Means over the steps of a run. Model: forward and backward passes and the optimizer; the rest: what "
        "is none of the three, checkpoints and logs included. Judging beside generation counts as generation. Kernels "
        "that the verdict store knew count as judged.",
        groups=[("", 2), ("Seconds a step", len(parts)), ("", 2)],
        columns=["Run", "Steps", *parts.values(), "Rest of all", "Kernels judged a minute"],
        bodies=[Body(None, rows)],
        filters={},
    )


_UNITS = {"us": "µs", "ms": "ms", "s": "s", "mb": "MB", "gb": "GB", "share": "share"}


def column_head(column: str) -> str:
    """A column's name as people read it: ``num_tasks`` -> ``Tasks``, ``step_s`` -> ``Step (s)``."""
    name, _, unit = column.rpartition("_")
    if not name or unit not in _UNITS:
        name, unit = column, ""
    text = name.removeprefix("num_").replace("_", " ")
    return text[:1].upper() + text[1:] + (f" ({_UNITS[unit]})" if unit else "")


def _any(name: str, frame: pd.DataFrame) -> Table:
    def cell(value: Any) -> Cell:
        return text_cell(str(value)) if isinstance(value, str | bool) else number_cell(value, significant)

    records = frame.astype(object).itertuples(index=False, name=None)
    rows = [Row([cell(v) for v in record], {}) for record in records]
    return Table(name, column_head(name), "", [], [column_head(str(c)) for c in frame.columns], [Body(None, rows)], {})
