"""Tables that compare policies, for people: over all held-out tasks or one split, in pairs, with the paper's claims."""

from __future__ import annotations

from collections.abc import Callable
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
    interval_cell,
    is_missing,
    milliseconds,
    number_cell,
    percent,
    points,
    signed,
    significant,
    text_cell,
    times,
)
from kevin.report.claims import NOT_SHOWN
from kevin.report.differences import METRICS, SHARES
from kevin.report.paper import OURS
from kevin.report.primary import PRIMARY
from kevin.report.records import records
from kevin.report.scores import CEILING, policy_label, split_label

_NOT_COMPARABLE = "Not comparable, other tasks, models and hardware"


def _bodies(frame: pd.DataFrame, tasks: str, make_row: Callable[[dict[str, Any]], Row]) -> list[Body]:
    """Our rows; then those of others under their source and the tasks that they cover (column ``tasks``)."""
    ours = frame["source"] == OURS
    bodies = [Body(None, [make_row(r) for r in records(frame[ours])])]
    for (source, covered), rows in frame[~ours].groupby(["source", tasks], sort=False):
        heading = f"{_NOT_COMPARABLE}: {source}, {covered}"
        bodies.append(Body(heading, [make_row(r) for r in records(rows)]))
    return bodies


_TABLE1 = ("correct", "speedup", "fast_1", "fast_1.5")
"""Measures of the paper's Table 1."""


def policies(name: str, frame: pd.DataFrame) -> Table:
    thresholds = [c.removesuffix("_best") for c in frame.columns if c.startswith("fast_") and c.endswith("_best")]
    shown = ["correct", "speedup", *(t for t in thresholds if t != "fast_0"), "geomean"]
    if name == "table1":
        shown = [value for value in shown if value in _TABLE1]
    labels = {"correct": "Correct", "speedup": "Speedup", "geomean": "Geometric mean speedup, correct only"}
    counts = [("Tasks", "num_tasks"), ("Seeds", "num_seeds"), ("Trajectories", "trajectories"), ("Turns", "turns")]

    def make_row(r: dict[str, Any]) -> Row:
        cells = [text_cell(str(r["label"]), f"over {r['baseline']} · {r['subset']}")]
        cells += [number_cell(r[c], significant) for _, c in counts]
        for value in shown:
            show = times if value in ("speedup", "geomean") else percent
            cells += [interval_cell(r, f"{value}_{of}", show) for of in ("best", "avg")]
        tags = {"baseline": str(r["baseline"])} | ({"subset": str(r["subset"])} if r["source"] == OURS else {})
        return Row(cells, tags)

    ours = frame[frame["source"] == OURS]
    filters = {c: list(dict.fromkeys(ours[c].astype(str))) for c in ("baseline", "subset")}
    first, *theirs = _bodies(frame, "subset", make_row)
    bodies = [first]
    for body in theirs:
        bodies.append(body._replace(heading=f"{body.heading}; over PyTorch eager", tags={"baseline": paper.BASELINE}))
    others = [b for b in filters["baseline"] if b != paper.BASELINE] if theirs else []
    bodies += [Body(f"The paper gives no speedups over {b}", [], {"baseline": b}) for b in others]
    title = "All held-out tasks" if name == "table1" else f"{split_label(name)}: held-out tasks"
    return Table(
        name=name,
        title=title,
        caption="best: of the task's trajectories; avg: their mean; both then averaged over tasks. A trajectory's "
        "speedup is that of its fastest correct kernel, 0 if it has none; fast_p counts those of at least p. Small: "
        "bootstrap 95 % interval. The ceiling is a search through the kernel writer's first mistake-free "
        "plans (its avg is the mean over them); torch.compile is shown as if a policy had written its kernels.",
        groups=[("", 1 + len(counts)), *((labels.get(v, v), 2) for v in shown)],
        columns=["Policy", *(label for label, _ in counts), *(of for _ in shown for of in ("best", "avg"))],
        bodies=bodies,
        filters={k: v for k, v in filters.items() if len(v) > 1},
    )


def budget(name: str, frame: pd.DataFrame) -> Table:
    by_split = name != "table2"

    def make_row(r: dict[str, Any]) -> Row:
        tasks = text_cell(split_label(str(r["split"]))) if by_split else number_cell(r["num_tasks"], significant)
        return Row(
            [
                text_cell(str(r["label"])),
                tasks,
                number_cell(r["num_seeds"], significant),
                number_cell(r["budget"], significant),
                Cell(f"{r['trajectories']:.0f} × {r['turns']:.0f}", float(r["turns"])),
                interval_cell(r, "speedup", times),
                interval_cell(r, "correct", percent),
            ],
            {},
        )

    return Table(
        name=name,
        title="One budget, serial or parallel" + (", split by split" if by_split else ""),
        caption="The same number of kernels a task, spent on more trajectories or on more turns of each: best of the "
        "drawn trajectories within their first turns (unbiased estimate), then the mean over tasks. Small: bootstrap "
        "95 % interval.",
        columns=[
            *("Policy", "Tasks", "Seeds", "Kernels a task", "Trajectories × turns", "Speedup over eager"),
            "Tasks solved",
        ],
        bodies=_bodies(frame, "split", make_row),
    )


def differences(frame: pd.DataFrame, study: Study) -> Table:
    """A row for each pair of policies, a column for each measure."""
    keys = ["policy", "against", "split", "subset"]
    rows = []
    for (policy, against, split, subset), own in frame.groupby(keys, sort=False):
        by_metric = {str(r["metric"]): r for r in records(own)}
        seeds = [int(next(iter(by_metric.values()))[c]) for c in ("num_seeds", "num_seeds_against")]
        where = f"{split_label(str(split))} · {subset}"
        cells = [
            text_cell(policy_label(str(policy), study, seeds[0]), where),
            text_cell(policy_label(str(against), study, seeds[1])),
            number_cell(max(r["num_tasks"] for r in by_metric.values()), significant),
        ]
        for metric in METRICS:
            show = times_more if metric.startswith("speedup") else points
            cell = interval_cell(by_metric[metric], "difference", show)
            if not (row := by_metric[metric])["excludes_zero"] and not is_missing(row["difference"]):
                cell = cell._replace(note=f"{cell.note}; from {show(row['detectable'])}".lstrip("; "))
            cells.append(cell)
        rows.append(Row(cells, {"split": split_label(str(split)), "subset": str(subset)}))
    means = [m for m in METRICS if m not in SHARES]
    names = list(dict.fromkeys(m.rpartition("_")[0] for m in means))
    filters = {key: list(dict.fromkeys(row.tags[key] for row in rows)) for key in ("split", "subset")}
    return Table(
        name="differences",
        title="Policies against each other",
        caption="Each policy minus the other one on the tasks that both answered, paired task by task; columns as in "
        "the tables of policies, then shares of kernels that the next turn mends or keeps, and of turns that "
        "beat their trajectory's best by 5 % (all turns together). "
        "pp: percentage points. Exploratory. Small: bootstrap 95 % interval; where it holds 0, the sign is not shown, "
        "and behind it stands the smallest difference that four of five such studies would have shown.",
        groups=[
            ("", 3),
            *((name.capitalize() if name != "fast_1" else name, 2) for name in names),
            ("Turns", len(SHARES)),
        ],
        columns=["Policy", "Against", "Tasks", *(m.rpartition("_")[2] for m in means), *SHARES],
        bodies=[Body(None, rows)],
        filters={key: values for key, values in filters.items() if len(values) > 1},
    )


def times_more(value: float) -> str:
    return f"{signed(value)}×"


def claims(frame: pd.DataFrame, study: Study) -> Table:
    """The first screen of the page: each claim of the paper, its number, ours, and what ours says of it."""
    shows: dict[str, Callable[[float], str]] = {
        "share": percent,
        "points": points,
        "times": times,
        "times more": times_more,
    }

    def make_row(r: dict[str, Any]) -> Row:
        show = shows[str(r["unit"])]
        if r["verdict"] == NOT_SHOWN:
            r = r | {"why": f"{r['why']}; from {show(r['detectable'])} on it could have been shown"}
        policies, setting, why = ("" if is_missing(r[c]) else str(r[c]) for c in ("policies", "setting", "why"))
        seeds = [f"{r[c]:.0f}" for c in ("num_seeds", "num_seeds_against") if not is_missing(r[c])]
        return Row(
            [
                text_cell(str(r["claim"]), f"{r['kind']}: {r['measure']}"),
                number_cell(r["paper"], show)._replace(
                    note="" if is_missing(r["paper_setting"]) else str(r["paper_setting"])
                ),
                interval_cell(r, "ours", show),
                text_cell(str(r["verdict"]), why),
                text_cell(policies),
                text_cell(setting),
                text_cell(", ".join(seeds)),
                number_cell(r["num_tasks"], significant),
            ],
            {},
        )

    scale = frame["scale"].iloc[0] if len(frame) else study.scale
    hardware = f", {frame['hardware'].iloc[0]}" if len(frame) else ""
    return Table(
        name="claims",
        title="Claim by claim",
        caption="The study's primary endpoint; then, exploratory, the paper's claims about effects, and its levels as "
        f"thresholds, with its numbers (QwQ-32B on an H200) and ours at the {scale} scale{hardware}: other tasks, "
        "models and hardware, so verdicts are about this study alone; a level may be passed because tasks are easier. "
        "Shown: the 95 % interval excludes the contrary (for a level: being below it); refuted: it excludes the claim; "
        "not shown: it holds both, or a speedup is nearer than times are told apart, and then the smallest value "
        "stands there that four of five such studies would have shown. docs/statistics.md has the rules.",
        columns=["Claim", "Paper", "Ours", "Verdict", "Policies", "Kernels a task", "Seeds", "Tasks"],
        bodies=[Body(None, [make_row(r) for r in records(frame)])],
    )


def primary(frame: pd.DataFrame, study: Study) -> Table:
    """A row for each recipe, number of kernels and split; the page shows one number of kernels at a time."""

    def make_row(r: dict[str, Any]) -> Row:
        played = not is_missing(r["kernels"])
        is_primary = r["endpoint"] == PRIMARY
        cells = [
            text_cell(str(r["label"]), "primary endpoint" if is_primary else ""),
            number_cell(r["kernels"], significant),
            text_cell(f"{r['trajectories']:.0f} × {r['turns']:.0f}" if played else ""),
            *(interval_cell(r, name, times) for name in ("speedup", "geomean")),
            *(interval_cell(r, name, percent) for name in ("fast_1", "solved")),
            *(interval_cell(r, name, times) for name in ("over_first", "over_reference")),
            number_cell(r["num_tasks"], significant),
        ]
        return Row(cells, {"kernels": f"{r['kernels']:.0f}"} if played and r["source"] == OURS else {})

    config = study.report.primary
    ours = frame[(frame["source"] == OURS) & frame["kernels"].notna()]
    sizes = sorted({int(kernels) for kernels in ours["kernels"]})
    first = config.trajectories * config.turns
    bodies = [Body(None, [make_row(r) for r in records(frame[frame["source"] == OURS])])]
    for source, rows in frame[frame["source"] != OURS].groupby("source", sort=False):
        bodies.append(Body(f"{_NOT_COMPARABLE}: {source}", [make_row(r) for r in records(rows)]))
    named = "declared before any kernel was judged" if config.declared else "named after these had been seen"
    against = policy_label(config.against, study) if config.against else "single-turn RL"
    return Table(
        name="primary",
        title="Equal kernels, spent on turns or on first answers",
        caption="The fastest correct kernel of a task among so many, as trajectories × turns (1: first answers), its "
        "speedup over PyTorch eager (0 without one), the mean over tasks; the geometric mean with eager as the "
        "floor; share of tasks as fast as eager, and solved. Then the mean speedup over that of as many first answers "
        f"of the same policy, and the geometric mean over that of as many first answers of {against}. "
        f"The primary endpoint ({named}) is the last of these with {first} kernels as {config.trajectories} × "
        f"{config.turns}; every other number is exploratory. The last rows are what there is to find, compared with "
        f"{first} first answers. Small: bootstrap 95 % interval over tasks and seeds.",
        groups=[("", 3), ("Speedup over eager", 2), ("Share of tasks", 2), ("Ratio to first answers", 2), ("", 1)],
        columns=[
            *("Policy", "Kernels a task", "Trajectories × turns", "mean", "geometric mean", "as fast", "solved"),
            *("its own", against, "Tasks"),
        ],
        bodies=bodies,
        filters={"kernels": [str(size) for size in sorted(sizes, key=lambda size: (size != first, size))]},
    )


def tasks(name: str, frame: pd.DataFrame) -> Table:
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
        name=name,
        title="Task by task",
        caption="Speedup over PyTorch eager of the fastest correct kernel that each policy wrote; small: share of its "
        "trajectories that hold a correct kernel. A dash: no correct kernel.",
        columns=["Task", "Split", "PyTorch eager (ms)", "torch.compile", *policies],
        bodies=[Body(None, rows)],
    )
