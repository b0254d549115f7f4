"""The study's figures. Each is made of a data frame that is written beside it: the CSV is exactly what was plotted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError, UsageError
from kevin.core.files import read_table, read_tasks, read_turns
from kevin.core.types import Turn
from kevin.report.notes import read_note
from kevin.report.scores import CEILING, policy_order, read_scores
from kevin.report.tables import read_baselines
from kevin.report.verdicts import traffic_bytes

FIGURES = (
    "primary",
    "serial_scaling",
    "parallel_scaling",
    "serial_parallel_map",
    "fast_p",
    "speedup_distribution",
    "roofline",
    "outcomes",
    "turns",
    "layernorm_case_study",
)


def make_figure(
    name: str,
    out_dir: Path,
    *,
    study: Study,
    scores: Sequence[Path] = (),
    turns: Sequence[Path] = (),
    summaries: Sequence[Path] = (),
    baselines: Path | None = None,
    store: Path | None = None,
    tasks: Path | None = None,
    table: Path | None = None,
) -> list[Path]:
    """Write ``<name>.png``, ``<name>.pdf`` and ``<name>.csv`` into ``out_dir``; returns the three paths.

    Args:
        name: one of `FIGURES`.
        scores: score files; read by every figure but the case study.
        turns: ``<policy>-<split>/turns.parquet`` files; read by ``layernorm_case_study``.
        summaries: of the trainings behind them, see `kevin.report.notes`.
        baselines: torch.compile in ``speedup_distribution`` and the case study; left out where absent.
        store: verdict store, which ``roofline`` needs; without it the case study has no line of the memory's speed.
        tasks: tasks.parquet, for ``roofline``: the bytes that a task's tensors hold.
        table: primary.csv, of which alone ``primary`` is drawn.
    """
    from kevin.report.figures import budget_map, case_study, curves, distribution, outcomes, style
    from kevin.report.figures import primary as primary_figure
    from kevin.report.figures import roofline as roofline_figure
    from kevin.report.figures import turns as turns_figure

    if name not in FIGURES:
        raise UsageError(f"no figure {name!r}; there are {', '.join(FIGURES)}")
    if name == "roofline" and store is None:
        raise UsageError("roofline is drawn from verdicts: name their store with --store")
    if name == "primary" and table is None:
        raise UsageError("primary is drawn from a table: name primary.csv with --table")
    note = read_note(summaries, study, scores)
    with style.look():
        if name == "primary" and table is not None:
            data = primary_figure.primary_data(read_table(table))
            if data.empty:
                raise DataError(f"{table}: holds no kernels of a policy: there is nothing to plot")
            return style.save(primary_figure.plot_primary(data), data, out_dir, name, note=note)
        if name == "layernorm_case_study":
            measured = read_baselines(baselines)
            data = case_study.case_study_data(turns_by_policy(turns, study), study, baselines=measured, store=store)
            return style.save(case_study.plot_case_study(data), data, out_dir, name, note=note)
        frame = _policy_scores(scores, study)
        splits = [str(split) for split in frame["split"].unique()]
        if name == "speedup_distribution":
            data = distribution.speedup_distribution_data(frame, read_baselines(baselines), study)
            figure = distribution.plot_speedup_distribution(data, splits)
        elif name == "roofline" and store is not None:
            traffic = traffic_bytes(read_tasks(tasks)) if tasks is not None else {}
            data = roofline_figure.roofline_data(frame, store, study, traffic=traffic)
            figure = roofline_figure.plot_roofline(data, splits)
        else:
            make_data, plot = {
                "serial_scaling": (curves.serial_scaling_data, curves.plot_serial_scaling),
                "parallel_scaling": (curves.parallel_scaling_data, curves.plot_parallel_scaling),
                "serial_parallel_map": (budget_map.budget_map_data, budget_map.plot_budget_map),
                "fast_p": (curves.fast_p_data, curves.plot_fast_p),
                "outcomes": (outcomes.outcomes_data, outcomes.plot_outcomes),
                "turns": (turns_figure.turns_data, turns_figure.plot_turns),
            }[name]
            data = make_data(frame, study)
            figure = plot(data)
        return style.save(figure, data, out_dir, name, note=note)


def _policy_scores(paths: Sequence[Path], study: Study) -> pd.DataFrame:
    frame = read_scores(paths, study)
    if frame.loc[frame["policy"] != CEILING, "outcome"].isna().all():
        raise DataError("none of the score files holds a verdict of a policy: there is nothing to plot")
    return frame


def split_name(turns: Path) -> tuple[str, str]:
    """(policy, split) of ``<policy>-<split>/turns.parquet``. Raises DataError for another name."""
    policy, dash, split = turns.parent.name.rpartition("-")
    if not dash:
        raise DataError(f"{turns}: its folder should be named <policy>-<split>")
    return policy, split


def files_by_policy(paths: Sequence[Path], study: Study) -> dict[str, list[Path]]:
    """Files of turns by policy, in the study's order, without the ceiling."""
    files: dict[str, list[Path]] = {}
    for path in paths:
        files.setdefault(split_name(path)[0], []).append(path)
    return {policy: files[policy] for policy in policy_order([p for p in files if p != CEILING], study)}


def turns_by_policy(paths: Sequence[Path], study: Study) -> dict[str, list[Turn]]:
    """Turns of each policy over all its files, in the study's order, without the ceiling."""
    files = files_by_policy(paths, study)
    return {policy: [t for path in own for t in read_turns(path)[0]] for policy, own in files.items()}
