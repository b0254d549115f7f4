"""The study's tables for people: the CSV files of `kevin.report`, under heads that say what they hold, with units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.report import display_policies, display_systems
from kevin.report.cells import (
    Body,
    Cell,
    Row,
    Table,
    fixed,
    is_missing,
    number_cell,
    percent,
    points,
    signed,
    significant,
    text_cell,
    times,
)
from kevin.report.cells import interval_cell as _interval_cell
from kevin.report.notes import NOTE
from kevin.report.palette import OUTCOMES
from kevin.report.records import records
from kevin.report.scores import policy_label, split_label
from kevin.report.turns import ANY_ERROR


def display_table(name: str, frame: pd.DataFrame, study: Study) -> Table:
    """The display form of a table file by its name; a name that is not known here shows every column.

    A column ``note`` is not among them: it says of every row what the caption says.
    """
    frame = frame.drop(columns=NOTE, errors="ignore")
    table = _table(name, frame, study)
    return table._replace(caption=f"{table.caption} {_seeds_note(frame)}".strip())


def _seeds_note(frame: pd.DataFrame) -> str:
    """What intervals are over, where the table says of how many seeds its rows are."""
    if "num_seeds" not in frame or frame["num_seeds"].isna().all():
        return ""
    if frame["num_seeds"].max() > 1:
        return "Rows of several seeds (trainings): their mean, with an interval over tasks and seeds."
    return "Each policy is one training: intervals are over tasks and do not say what another seed would give."


def _table(name: str, frame: pd.DataFrame, study: Study) -> Table:
    of_policies = {
        "table2": display_policies.budget,
        "serial_parallel": display_policies.budget,
        "tasks": display_policies.tasks,
    }
    if name == "table1" or {"baseline", "subset", "speedup_best"} <= set(frame.columns):
        return display_policies.policies(name, frame)
    if name in of_policies:
        return of_policies[name](name, frame)
    labelled = {
        "claims": display_policies.claims,
        "primary": display_policies.primary,
        "differences": display_policies.differences,
        "turns": _turns,
        "mended": _mended,
        "pass_at_k": _pass_at_k,
        "rl_gain": _rl_gain,
        "step_time": _step_time,
        "search": _search,
        "field": display_systems.field,
        "audit": display_systems.audit,
    }
    if name in labelled:
        return labelled[name](frame, study)
    return _any(name, frame)


def _seed_cell(r: Mapping[str, Any], study: Study) -> Cell:
    """The policy, and which of its seeds, the first one apart; or how many of them."""
    num_seeds = int(r.get("num_seeds", 1))
    label = policy_label(str(r["policy"]), study, num_seeds)
    return text_cell(label, f"seed {r['seed']:.0f}" if num_seeds == 1 and r["seed"] else "")


def _turns(frame: pd.DataFrame, study: Study) -> Table:
    names = ("correct", "mended", "kept", "faster", "slower", "repeated", "copied", "improved", "fresh")
    rows = [
        Row(
            [
                _seed_cell(r, study),
                text_cell(split_label(str(r["split"]))),
                text_cell("all") if is_missing(r["turn"]) else number_cell(r["turn"], significant),
                number_cell(r["num_kernels"], significant),
                *(_interval_cell(r, name, times) for name in ("best_speedup", "trajectory_speedup")),
                *(_interval_cell(r, name, percent) for name in names),
                _interval_cell(r, "over_fresh", points),
            ],
            {},
        )
        for r in records(frame)
    ]
    return Table(
        name="turns",
        title="What turns are worth",
        caption="Best so far: fastest correct kernel up to this turn, of all trajectories or of one, mean over tasks. "
        "Mended: of kernels that were wrong one turn before, those now correct. Of correct ones: kept are those "
        "still correct, faster and slower those whose speed changed by more than 5 %, repeated the same program. "
        "Copied: of all kernels, those at least 95 % alike to the answer before (matching tokens of both, without "
        "comments and layout). Improved: of turns with a correct kernel before them, those that beat the best of their "
        "trajectory by more than 5 %; fresh: first answers of the task's other trajectories that would have beaten it "
        "too; and the difference in percentage points (pp), below 0 where drawing again is worth more than going on. "
        "Exploratory. Shares are over the kernels of all tasks; small: bootstrap 95 % interval over tasks.",
        groups=[
            *(("", 4), ("Best so far", 2), ("Of all", 1), ("Of wrong", 1), ("Of correct", 4), ("Of all", 1)),
            ("Beats the trajectory's best", 3),
        ],
        columns=["Policy", "Tasks", "Turn", "Kernels", "of all", "of one", *names, "improved − fresh"],
        bodies=[Body(None, rows)],
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
                *(_interval_cell(r, name, percent) for name in ("mended", "fresh")),
                _interval_cell(r, "over_fresh", points),
                _interval_cell(r, "copied", percent),
            ],
            {},
        )
        for r in records(frame)
    ]
    return Table(
        name="mended",
        title="What becomes of wrong kernels",
        caption="Of wrong kernels that had a next turn: those that it made correct; those that would be correct if a "
        "first answer to the task, as the policy's other trajectories gave them, stood in its place; the difference "
        "in percentage points (pp), below 0 where a wrong kernel in the prompt is worse than none; and those that "
        "the next turn gave again at least 95 % alike. All turns together. Small: bootstrap 95 % interval over tasks.",
        columns=["Policy", "Tasks", "Error", "Wrong kernels", "mended", "fresh", "mended − fresh", "copied"],
        bodies=[Body(None, rows)],
    )


def _pass_at_k(frame: pd.DataFrame, study: Study) -> Table:
    rows = [
        Row(
            [
                _seed_cell(r, study),
                text_cell(split_label(str(r.get("split", f"level{r['level']}")))),
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
        columns=["Policy", "Tasks", "k", "Number of tasks", "pass@k", "fast_1@k"],
        bodies=[Body(None, rows)],
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
        columns=["Policy", "Strategy", "Kernels a task", "Device seconds a task", "Speedup over eager", "Tasks solved"],
        bodies=[Body(None, rows)],
    )


def _rl_gain(frame: pd.DataFrame, study: Study) -> Table:
    rows = [
        Row(
            [
                text_cell(policy_label(str(r["policy"]), study, int(r.get("num_seeds", 1)))),
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
    return Table(name, column_head(name), "", [column_head(str(c)) for c in frame.columns], [Body(None, rows)])
