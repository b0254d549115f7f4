"""Every table and figure of the study by name: of which files it is made, what makes it, and how people see it.

The commands `kevin table` and `kevin figure`, the rules and the page read it. What is said of each stands in
``captions.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError, UsageError
from kevin.core.files import read_parquet, read_table, read_tasks
from kevin.core.types import Task
from kevin.report import paper, show
from kevin.report.budgets import read_plain_search
from kevin.report.captions import NOTE, captions, read_note, read_summaries
from kevin.report.claims import claims_table
from kevin.report.field import field_table, read_rollouts
from kevin.report.forms import Shown, write_table
from kevin.report.primary import primary_table
from kevin.report.scores import hardware, read_scores
from kevin.report.search import SearchRollout, read_search, search_table, search_turns_table
from kevin.report.tables import (
    compile_speedups,
    differences_table,
    pass_at_k_table,
    policies_table,
    read_baselines,
    serial_parallel_table,
    table2,
    tasks_table,
)
from kevin.report.training import AUDIT_KIND, audit_table, rl_gain_table, step_time_table
from kevin.report.turns import mended_table, turns_table
from kevin.report.viewer import files_by_policy


class Given:
    """The files that tables or figures are made of, by their names, each read when it is first asked for.

    ``scores``: of `kevin.report.scores.score_rollouts`, or ``answers.csv`` of `kevin publish`; any policies and splits.
    ``turns``: ``<policy>-<split>/turns.parquet``. ``search``: rollouts of strategies, or ``answers.csv``. ``runs``:
    folders of trainings. ``kernels``: of `kevin audit kernels`. ``summaries``: ``summary.json`` of the trainings behind
    all of these, see `kevin.report.captions`. Of each one file: ``tasks``; ``baselines``; ``store``, the folder of
    verdicts; ``table``, a written one of the figure's own name.
    """

    def __init__(self, files: Mapping[str, Any], study: Study) -> None:
        self.files, self.study = files, study
        self.runs: Sequence[Path] = files.get("runs", ())
        self.store: Path | None = files.get("store")

    @cached_property
    def scores(self) -> pd.DataFrame:
        return read_scores(self.files["scores"], self.study)

    @cached_property
    def turns(self) -> dict[str, list[Path]]:
        return files_by_policy(self.files["turns"], self.study)

    @cached_property
    def search(self) -> pd.DataFrame:
        """Of strategies that change the number of turns alone."""
        return read_plain_search(self.files.get("search", ()), self.study)

    @cached_property
    def rollouts(self) -> list[SearchRollout]:
        """Of all strategies."""
        return read_search(self.files["search"], self.files["tasks"], self.study)

    @cached_property
    def baselines(self) -> pd.DataFrame:
        return read_baselines(self.files.get("baselines"))

    @cached_property
    def tasks(self) -> list[Task]:
        return read_tasks(self.files["tasks"]) if "tasks" in self.files else []

    @cached_property
    def table(self) -> pd.DataFrame:
        return read_table(self.files["table"]).drop(columns=NOTE, errors="ignore")

    @cached_property
    def note(self) -> str | None:
        """What must be said of the study as a whole; of a written table what is said there."""
        if "table" in self.files and NOTE in (said := read_table(self.files["table"])) and len(said):
            return str(said[NOTE].iloc[0])
        return read_note(self.files.get("summaries", ()), self.study, self.files.get("scores", ()))


class Table(NamedTuple):
    reads: str
    """Names of files, see `Given`; after a question mark those without which it can be made."""
    make: Callable[[Given], pd.DataFrame]
    show: Callable[[pd.DataFrame, Study], Shown]


class Figure(NamedTuple):
    reads: str
    module: str
    """Of `kevin.report.figures`; its function of the figure's name draws it, from what it reads and the study."""


SPLITS = ("level1", "level2", "level3", "level4", "unseen")
"""Each with a table of its name."""


def _split(split: str) -> Table:
    def make(given: Given) -> pd.DataFrame:
        scores = given.scores
        own = scores[scores["split"] == split]
        if own.empty:
            raise DataError(f"table {split}: none of the score files holds the split {split}")
        return policies_table(own, given.baselines, given.study, paper.level(split))

    return Table("scores ?baselines", make, show.policies)


def _of_scores(
    make: Callable[[pd.DataFrame, Study], pd.DataFrame], show: Callable[[pd.DataFrame, Study], Shown]
) -> Table:
    return Table("scores", lambda given: make(given.scores, given.study), show)


def _primary(given: Given) -> pd.DataFrame:
    return primary_table(given.scores, compile_speedups(given.baselines), given.study, given.search)


def _claims(given: Given) -> pd.DataFrame:
    return claims_table(given.scores, given.study, hardware(given.files["scores"], given.study), given.search)


def _table1(given: Given) -> pd.DataFrame:
    return policies_table(given.scores, given.baselines, given.study, paper.table1())


def _field(given: Given) -> pd.DataFrame:
    rollouts = read_rollouts(given.files["turns"], given.files["tasks"], given.study)
    return field_table(rollouts, read_summaries(given.files.get("summaries", ())), given.study)


def _audit(given: Given) -> pd.DataFrame:
    turns = pd.concat([read_parquet(path, AUDIT_KIND)[0] for path in given.files["kernels"]], ignore_index=True)
    if turns.empty:
        raise DataError("no judged turn of a training was given: is there a run under `runs`?")
    return audit_table(turns, given.study)


TABLES = {
    "primary": Table("scores ?baselines ?search", _primary, show.primary),
    "claims": Table("scores ?search", _claims, show.claims),
    "table1": Table("scores ?baselines", _table1, show.table1),
    "table2": Table("scores ?search", lambda given: table2(given.scores, given.study, given.search), show.table2),
    **{split: _split(split) for split in SPLITS},
    "differences": _of_scores(differences_table, show.differences),
    "serial_parallel": _of_scores(serial_parallel_table, show.budget),
    "turns": _of_scores(turns_table, show.turns),
    "mended": _of_scores(mended_table, show.mended),
    "pass_at_k": _of_scores(pass_at_k_table, show.pass_at_k),
    "tasks": Table("scores ?baselines", lambda g: tasks_table(g.scores, g.baselines, g.study), show.tasks),
    "rl_gain": _of_scores(rl_gain_table, show.rl_gain),
    "step_time": Table("runs", lambda given: step_time_table(given.runs), show.step_time),
    "search": Table("search tasks", lambda given: search_table(given.rollouts, given.study), show.search),
    "search_turns": Table("search tasks", lambda g: search_turns_table(g.rollouts, g.study), show.turns),
    "field": Table("turns tasks", _field, show.field),
    "audit": Table("kernels", _audit, show.audit),
}
FIGURES = {
    "primary": Figure("table", "scaling"),
    "serial_scaling": Figure("scores", "scaling"),
    "parallel_scaling": Figure("scores", "scaling"),
    "serial_parallel_map": Figure("scores", "split_map"),
    "fast_p": Figure("scores ?baselines", "scaling"),
    "roofline": Figure("scores store ?tasks", "roofline"),
    "outcomes": Figure("scores", "scaling"),
    "layernorm_case_study": Figure("turns ?baselines ?store", "case_study"),
    "search": Figure("table", "scaling"),
    "training": Figure("runs", "training"),
    "ablations": Figure("runs", "training"),
    "audit": Figure("table", "training"),
}
OF_SCORES = [name for name, table in TABLES.items() if "scores" in table.reads.split() and name != "rl_gain"]
"""Tables that every study has, those of splits that it lacks apart."""
OF_TRAINING = ("rl_gain", "step_time")
DRAWN_ALWAYS = [name for name, own in FIGURES.items() if own.module != "training" and name != "search"]
DRAWN_OF_TRAINING = ("training",)
REPLACED = {
    "stability": "the figure training shows the Not-Okay ratio, gradient norms and which of the remedies each run had",
    "training_turns": "metrics.jsonl of a run has the score of each turn, the figure training that of all",
    "turns": "the table turns has its numbers",
    "speedup_distribution": "the figure fast_p shows it",
}
"""Figures of earlier versions, and what is in their place."""


def reads(entry: Table | Figure) -> list[str]:
    """Names of the files that it is made of."""
    return entry.reads.replace("?", "").split()


def make_table(name: str, out: Path, *, study: Study, **files: Any) -> Path:
    """Write one of `TABLES` as CSV, and beside it as Markdown and LaTeX. Returns ``out``, the CSV.

    Raises UsageError for a name that is not known, or a file (see `Given`) that the table needs and was not given.
    """
    return write_table_of(name, out, _given("table", name, TABLES, files, study))


def write_table_of(name: str, out: Path, given: Given) -> Path:
    """The same, of what may have been read for another table."""
    entry, study = TABLES[name], given.study
    return write_table(out, entry.make(given), entry.show, study, captions()[f"tables/{name}"], given.note)


def make_figure(name: str, out_dir: Path, *, study: Study, **files: Any) -> list[Path]:
    """Write one of `FIGURES` as ``<name>.png``, ``.pdf`` and ``.csv`` into ``out_dir``; returns the three paths.

    Raises UsageError as `make_table`.
    """
    require_figure(name)
    given = _given("figure", name, FIGURES, files, study)
    look = import_module("kevin.report.figures.look")
    draw = getattr(import_module(f"kevin.report.figures.{FIGURES[name].module}"), name)
    with look.theme():
        figure, data = draw(*(getattr(given, option) for option in reads(FIGURES[name])), study)
        return list(look.save(figure, data, out_dir, name, captions()[f"figures/{name}"].title, given.note))


def require_figure(name: str) -> None:
    """Raises UsageError for a figure that was drawn once, with what is in its place."""
    if name in REPLACED:
        raise UsageError(f"there is no figure {name} any more: {REPLACED[name]}")


def _given(kind: str, name: str, known: Mapping[str, Table | Figure], files: dict[str, Any], study: Study) -> Given:
    if name not in known:
        raise UsageError(f"no {kind} {name!r}; there are {', '.join(known)}")
    given = {option: value for option, value in files.items() if value}
    needed = [option for option in known[name].reads.split() if not option.startswith("?")]
    if not given.keys() >= set(needed):
        options = " and ".join(f"--{OPTIONS.get(option, option)}" for option in needed)
        raise UsageError(f"{kind} {name} is made of the files that {options} name")
    return Given(given, study)


OPTIONS = {"runs": "run-dir"}
"""Options of the commands that are not called as their files here."""
