"""What people see of each table: which columns of its file, under which heads, in which units.

`kevin.report.forms` writes them as Markdown, LaTeX and HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.report.claims import NOT_SHOWN
from kevin.report.forms import (
    Column,
    Head,
    Row,
    Show,
    Shown,
    interval,
    is_missing,
    label_of,
    number,
    percent,
    plain,
    points,
    records,
    said,
    seed_of,
    shown,
    signed,
    significant,
    split_of,
    text,
    times,
    times_more,
    with_small,
    word,
)
from kevin.report.paper import OURS
from kevin.report.primary import PRIMARY
from kevin.report.recipes import CEILING, OUTCOMES, policy_label
from kevin.report.tables import METRICS, SHARES
from kevin.report.training import KIND_NAMES
from kevin.report.turns import ANY_ERROR

# --- tables with rows of others -----------------------------------------------------------------------------------

_MARKS = "¹²³⁴⁵⁶"


def _with_theirs(frame: pd.DataFrame, columns: Mapping[Head, Column], tasks: str | None, **more: Any) -> Shown:
    """Our rows, then those of others: marked, and in the notes by whom and of which tasks (column ``tasks``)."""
    rows = records(frame)
    sources = [None if row["source"] == OURS else (row["source"], row[tasks] if tasks else None) for row in rows]
    marks = dict(zip(dict.fromkeys(filter(None, sources)), _MARKS, strict=False))
    notes = [
        f"{mark} Not comparable, other tasks, models and hardware: {', '.join(filter(None, source))}."
        for source, mark in marks.items()
    ]
    for row, source in zip(rows, sources, strict=True):
        row["label"] = f"{row['label']} {marks.get(source, '') if source else ''}".rstrip()
    theirs = [source is not None for source in sources]
    notes.append(more.pop("notes", ""))
    return shown(rows, columns, theirs=theirs if any(theirs) else (), notes=" ".join(filter(None, notes)), **more)


def _choices(frame: pd.DataFrame, columns: Mapping[str, str]) -> list[str]:
    """Heads of those columns that have several values."""
    return [head for head, column in columns.items() if frame[column].nunique() > 1]


def policies(frame: pd.DataFrame, study: Study, *, measures: Sequence[str] | None = None) -> Shown:
    thresholds = [c.removesuffix("_best") for c in frame.columns if c.startswith("fast_") and c.endswith("_best")]
    every = ["correct", "speedup", *(t for t in thresholds if t != "fast_0"), "geomean"]
    names = {"correct": "Correct", "speedup": "Speedup", "geomean": "Geometric mean speedup, correct only"}
    columns: dict[Head, Column] = {
        "Policy": text("label"),
        "Over": text("baseline"),
        "Which": lambda row: str(row["subset"]) if row["source"] == OURS else "",
        "Tasks": number("num_tasks"),
        "Seeds": number("num_seeds"),
        "Trajectories": number("trajectories"),
        "Turns": number("turns"),
    }
    for name in every if measures is None else [name for name in every if name in measures]:
        show = times if name in ("speedup", "geomean") else percent
        columns |= {(names.get(name, name), of): interval(f"{name}_{of}", show) for of in ("best", "avg")}
    ours = frame[frame["source"] == OURS]
    filters = _choices(ours, {"Over": "baseline", "Which": "subset"})
    for head in {"Over", "Which"} - set(filters):
        del columns[head]
    return _with_theirs(frame, columns, "subset", filters=filters)


def table1(frame: pd.DataFrame, study: Study) -> Shown:
    """Its measures are those of the paper's Table 1."""
    return policies(frame, study, measures=("correct", "speedup", "fast_1", "fast_1.5"))


def budget(frame: pd.DataFrame, study: Study, *, by_split: bool = True) -> Shown:
    columns: dict[Head, Column] = {
        "Policy": text("label"),
        "Tasks": split_of if by_split else number("num_tasks"),
        "Seeds": number("num_seeds"),
        "Kernels a task": number("budget"),
        "Trajectories × turns": _ways,
        "Speedup over eager": interval("speedup", times),
        "Tasks solved": interval("correct", percent),
    }
    return _with_theirs(frame, columns, "split")


def table2(frame: pd.DataFrame, study: Study) -> Shown:
    return budget(frame, study, by_split=False)


def _ways(row: Row) -> str:
    return "" if is_missing(row["trajectories"]) else f"{row['trajectories']:.0f} × {row['turns']:.0f}"


def primary(frame: pd.DataFrame, study: Study) -> Shown:
    """A row for each recipe, number of kernels and split; the page shows one number of kernels at a time."""
    config = study.report.primary
    named = "declared before any kernel was judged" if config.declared else "named after these had been seen"
    against = policy_label(config.against, study) if config.against else "single-turn RL"
    first = config.trajectories * config.turns
    columns: dict[Head, Column] = {
        "Policy": lambda row: with_small(row["label"], "primary endpoint" if row["endpoint"] == PRIMARY else ""),
        "Kernels a task": number("kernels"),
        "Trajectories × turns": _ways,
        ("Speedup over eager", "mean"): interval("speedup", times),
        ("Speedup over eager", "geometric mean"): interval("geomean", times),
        ("Share of tasks", "as fast"): interval("fast_1", percent),
        ("Share of tasks", "solved"): interval("solved", percent),
        ("Ratio to first answers", "its own"): interval("over_first", times),
        ("Ratio to first answers", against): interval("over_reference", times),
        "Tasks": number("num_tasks"),
    }
    sizes = frame["kernels"]
    ordered = frame.assign(first=(sizes != first) & sizes.notna() & (frame["source"] == OURS))
    ordered = ordered.sort_values("first", kind="stable").drop(columns="first")
    last = ordered["kernels"].isna() & (ordered["source"] == OURS)
    theirs = ordered["source"] != OURS
    ordered = pd.concat([ordered[~last & ~theirs], ordered[last], ordered[theirs]])
    notes = (
        f"The primary endpoint ({named}) is the ratio to the first answers of {against}, with {first} kernels as "
        f"{config.trajectories} × {config.turns}; every other number is exploratory."
    )
    return _with_theirs(ordered, columns, None, filters=["Kernels a task"], notes=notes)


# --- tables of policies -------------------------------------------------------------------------------------------


def differences(frame: pd.DataFrame, study: Study) -> Shown:
    """A row for each pair of policies, a column for each measure."""
    rows = []
    for _, own in frame.groupby(["policy", "against", "split", "subset"], sort=False):
        by_metric = {str(row["metric"]): row for row in records(own)}
        rows.append({**records(own)[0], "num_tasks": own["num_tasks"].max(), "by_metric": by_metric})

    def measured(metric: str) -> Column:
        show = times_more if metric.startswith("speedup") else points

        def column(row: Row) -> str:
            own = row["by_metric"][metric]
            cell = interval("difference", show)(own)
            undecided = not own["excludes_zero"] and not is_missing(own["detectable"])
            return f"{cell}; from {show(own['detectable'])}" if undecided else cell

        return column

    columns: dict[Head, Column] = {
        "Policy": label_of("policy", study),
        "Against": lambda row: policy_label(str(row["against"]), study, int(row["num_seeds_against"])),
        "Split": split_of,
        "Which": text("subset"),
        "Tasks": number("num_tasks"),
    }
    for metric in METRICS:
        name, _, of = metric.rpartition("_")
        head = ("Turns", metric) if metric in SHARES else (name if name == "fast_1" else name.capitalize(), of)
        columns[head] = measured(metric)
    return shown(rows, columns, filters=_choices(frame, {"Split": "split", "Which": "subset"}))


_UNITS: dict[str, Show] = {"share": percent, "points": points, "times": times, "times more": times_more}


def claims(frame: pd.DataFrame, study: Study) -> Shown:
    """Each claim of the paper, its number, ours, and what ours says of it."""

    def why(row: Row) -> str:
        text = word(row["why"])
        if row["verdict"] != NOT_SHOWN or is_missing(row["detectable"]):
            return text
        return f"{text}; from {_UNITS[row['unit']](row['detectable'])} on it could have been shown"

    def seeds(row: Row) -> str:
        return ", ".join(f"{row[c]:.0f}" for c in ("num_seeds", "num_seeds_against") if not is_missing(row[c]))

    columns: dict[Head, Column] = {
        "Claim": lambda row: f"{row['claim']}\n{row['kind']}: {row['measure']}",
        "Paper": lambda row: with_small(said(row["paper"], _UNITS[row["unit"]]), word(row["paper_setting"])),
        "Ours": lambda row: interval("ours", _UNITS[row["unit"]])(row),
        "Verdict": lambda row: with_small(str(row["verdict"]), why(row)),
        "Policies": text("policies"),
        "Kernels a task": text("setting"),
        "Seeds": seeds,
        "Tasks": number("num_tasks"),
    }
    if frame.empty:
        return shown(frame, columns)
    notes = f"Ours are of the {frame['scale'].iloc[0]} scale, {frame['hardware'].iloc[0]}."
    return shown(frame, columns, notes=notes)


_OF_TURNS = {
    "Of all": ("correct",),
    "Of wrong": ("mended",),
    "Of correct": ("kept", "faster", "slower", "repeated"),
    "Of all kernels": ("copied",),
    "Beats the trajectory's best": ("improved", "fresh"),
}


def turns(frame: pd.DataFrame, study: Study) -> Shown:
    columns: dict[Head, Column] = {
        "Policy": seed_of(study),
        **({"Strategy": text("strategy")} if "strategy" in frame else {}),
        "Tasks": split_of,
        "Turn": lambda row: "all" if is_missing(row["turn"]) else significant(row["turn"]),
        "Kernels": number("num_kernels"),
        ("Best so far", "of all"): interval("best_speedup", times),
        ("Best so far", "of one"): interval("trajectory_speedup", times),
    }
    for group, names in _OF_TURNS.items():
        columns |= {(group, name): interval(name, percent) for name in names}
    columns["Beats the trajectory's best", "improved − fresh"] = interval("over_fresh", points)
    return shown(frame, columns)


def mended(frame: pd.DataFrame, study: Study) -> Shown:
    labels = {ANY_ERROR: "any error"} | {o.value: style.label for o, style in OUTCOMES.items()}
    columns: dict[Head, Column] = {
        "Policy": seed_of(study),
        "Tasks": split_of,
        "Error": lambda row: labels[str(row["error"])],
        "Wrong kernels": number("num_kernels"),
        "mended": interval("mended", percent),
        "fresh": interval("fresh", percent),
        "mended − fresh": interval("over_fresh", points),
        "copied": interval("copied", percent),
    }
    return shown(frame, columns)


def pass_at_k(frame: pd.DataFrame, study: Study) -> Shown:
    columns: dict[Head, Column] = {
        "Policy": seed_of(study),
        "Tasks": split_of,
        "k": number("k"),
        "Number of tasks": number("num_tasks"),
        "pass@k": interval("correct", percent),
        "fast_1@k": number("fast_1", percent),
    }
    return shown(frame, columns)


def tasks(frame: pd.DataFrame, study: Study) -> Shown:
    """A row for each task, a column for each policy."""
    labels = dict(zip(frame["policy"], frame["label"], strict=True))
    rows = []
    for _, own in frame.groupby(["split", "task_id"], sort=False):
        rows.append({**records(own)[0], "by_policy": {row["policy"]: row for row in records(own)}})

    def best(policy: str) -> Column:
        def column(row: Row) -> str:
            own = row["by_policy"].get(policy)
            value = said(own["speedup_best"] if own and own["correct_best"] else None, times)
            return with_small(value, f"{percent(own['correct_avg'])} correct" if own and policy != CEILING else "")

        return column

    columns: dict[Head, Column] = {
        "Task": lambda row: with_small(str(row["task_id"]), "known flaw" if row["flawed"] else ""),
        "Split": split_of,
        "PyTorch eager (ms)": number("eager_us", lambda value_us: f"{value_us / 1000:.3g}"),
        "torch.compile": number("compile_speedup", times),
        **{label: best(policy) for policy, label in labels.items()},
    }
    return shown(rows, columns, viewer=True)


# --- training, search, systems, attacks ---------------------------------------------------------------------------


def rl_gain(frame: pd.DataFrame, study: Study) -> Shown:
    columns: dict[Head, Column] = {
        "Policy": label_of("policy", study),
        "Trained from": label_of("baseline", study),
        "Tasks": number("num_tasks"),
        ("Mean score", "gain"): lambda row: said(row["mean_score_gain"], signed, row["ci_low"], row["ci_high"]),
        ("Mean score", "before"): number("baseline_score", "{:,.2f}".format),
        ("Mean score", "after"): number("policy_score", "{:,.2f}".format),
        ("Correct kernels", "before"): number("baseline_correct", percent),
        ("Correct kernels", "after"): number("policy_correct", percent),
    }
    return shown(frame, columns)


def step_time(frame: pd.DataFrame, study: Study) -> Shown:
    parts = {"step_s": "all", "generate_s": "generation", "judge_s": "judging", "model_s": "model", "own_s": "the rest"}
    columns: dict[Head, Column] = {
        "Run": label_of("run", study),
        "Steps": number("num_steps"),
        **{("Seconds a step", head): number(name, "{:,.2f}".format) for name, head in parts.items()},
        "Rest of all": number("own_share", percent),
        "Kernels judged a minute": number("kernels_per_minute", "{:,.0f}".format),
    }
    return shown(frame, columns)


def search(frame: pd.DataFrame, study: Study) -> Shown:
    columns: dict[Head, Column] = {
        "Policy": seed_of(study),
        "Strategy": text("strategy"),
        "Kernels a task": number("kernels"),
        "Device seconds a task": number("gpu_seconds"),
        "Speedup over eager": interval("speedup", times),
        "Tasks solved": interval("correct", percent),
    }
    return shown(frame, columns)


def field(frame: pd.DataFrame, study: Study) -> Shown:
    """A row for each system: ours, and what its authors published."""

    def published(row: Row) -> str:
        where = [word(row[f"published_{c}"]).strip("–") for c in ("source", "tasks", "hardware")]
        return with_small(word(row["published"]) or "–", ", ".join(filter(None, where)))

    columns: dict[Head, Column] = {
        "System": text("label", "here"),
        ("Kernels", "in training"): number("kernels_training"),
        ("Kernels", "a task at test"): number("kernels_test"),
        "Tasks": number("num_tasks"),
        ("Ours", "Correct"): interval("correct", percent),
        ("Ours", "Speedup"): interval("speedup", times),
        ("Ours", "fast_1"): interval("fast_1", percent),
        "Published": published,
    }
    return shown(frame, columns)


_GUARDS = {"on": "all rules enforced", "off": "no rule enforced", "some": "some rules enforced"}


def audit(frame: pd.DataFrame, study: Study) -> Shown:
    """All steps of a run together; the file has each of them too."""
    columns: dict[Head, Column] = {
        "Run": lambda row: f"{policy_label(str(row['run']), study)}\n{_GUARDS[str(row['guards'])]}",
        "Kind": lambda row: KIND_NAMES.get(str(row["kind"]), plain(row["kind"])),
        ("Kernels", "number"): number("num_kernels"),
        ("Kernels", "share"): interval("share", lambda value: f"{100 * value:.1f} %"),
        ("Paid", "here"): number("paid"),
        ("Paid", "without guards"): number("paid_unguarded"),
        ("Paid", "not measured"): number("num_unmeasured"),
    }
    return shown(frame[frame["step"].isna()], columns)


def attacks(frame: pd.DataFrame, study: Study | None = None) -> Shown:
    """What each attack on the judge earns, and what an honest kernel for the same reference does."""

    def judged(outcome: str, speedup: str, reason: str | None = None) -> Column:
        def column(row: Row) -> str:
            why = "" if reason is None else plain(word(row[reason]))
            small = why if is_missing(row[speedup]) else times(float(row[speedup]))
            return with_small("not measured" if is_missing(row[outcome]) else plain(row[outcome]), small)

        return column

    columns: dict[Head, Column] = {
        "Attack": text("attack", "tries"),
        "Dialect": lambda row: f"{row['dialect']}, {row['language']}",
        ("This judge", "attack"): judged("outcome", "speedup", "reason"),
        ("This judge", "honest"): judged("control_outcome", "control_speedup"),
        ("KernelBench", "attack"): judged("kernelbench", "kernelbench_speedup"),
        ("KernelBench", "honest"): judged("control_kernelbench", "control_kernelbench_speedup"),
    }
    return shown(frame, columns)
