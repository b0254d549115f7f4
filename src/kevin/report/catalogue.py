"""Every table and figure of the study by name: of which files it is made, what makes it, and how people see it.

The commands `kevin table` and `kevin figure`, the rules and the page read it. What is said of each stands in
``captions.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.core.errors import DataError, UsageError
from kevin.core.files import read_parquet, read_table, read_tasks
from kevin.report import paper, show
from kevin.report.audit import AUDIT_KIND, audit_table
from kevin.report.budgets import read_plain_search
from kevin.report.captions import captions
from kevin.report.cells import Shown
from kevin.report.claims import claims_table
from kevin.report.differences import differences_table
from kevin.report.field import field_table, read_rollouts
from kevin.report.forms import write_table
from kevin.report.notes import NOTE, read_note, read_summaries
from kevin.report.pass_at_k import pass_at_k_table
from kevin.report.primary import primary_table
from kevin.report.scores import hardware, read_scores
from kevin.report.search import read_search, search_table, search_turns_table
from kevin.report.tables import (
    compile_speedups,
    policies_table,
    read_baselines,
    serial_parallel_table,
    table2,
    tasks_table,
)
from kevin.report.training import rl_gain_table, step_time_table
from kevin.report.trajectories import turns_by_policy
from kevin.report.turns import mended_table, turns_table
from kevin.report.verdicts import traffic_bytes


class Files(NamedTuple):
    """Of which tables and figures are made; each needs some of these."""

    scores: Sequence[Path] = ()
    """Of `kevin.report.scores.score_rollouts`, or ``answers.csv`` of `kevin publish`; any policies and splits."""
    turns: Sequence[Path] = ()
    """``<policy>-<split>/turns.parquet``."""
    search: Sequence[Path] = ()
    """Rollouts of strategies, or ``answers.csv``."""
    runs: Sequence[Path] = ()
    """Folders of trainings."""
    kernels: Sequence[Path] = ()
    """What `kevin audit kernels` wrote."""
    summaries: Sequence[Path] = ()
    """``summary.json`` of the trainings behind all of these, see `kevin.report.notes`."""
    tasks: Path | None = None
    baselines: Path | None = None
    store: Path | None = None
    """Verdicts."""
    table: Path | None = None
    """A written table of the figure's own name."""


Maker = Callable[[Files, Study], pd.DataFrame]


class Table(NamedTuple):
    reads: str
    """Names of `Files`; after a question mark those without which it can be made."""
    make: Maker
    show: Callable[[pd.DataFrame, Study], Shown]


class Figure(NamedTuple):
    reads: str
    module: str
    """Of `kevin.report.figures`; its function of the figure's name draws it."""


SPLITS = ("level1", "level2", "level3", "level4", "unseen")
"""Each with a table of its name."""


def _of_scores(make: Callable[[pd.DataFrame, Study], pd.DataFrame]) -> Maker:
    return lambda files, study: make(read_scores(files.scores, study), study)


def _primary(files: Files, study: Study) -> pd.DataFrame:
    compiled = compile_speedups(read_baselines(files.baselines))
    return primary_table(read_scores(files.scores, study), compiled, study, read_plain_search(files.search, study))


def _claims(files: Files, study: Study) -> pd.DataFrame:
    frame, search = read_scores(files.scores, study), read_plain_search(files.search, study)
    return claims_table(frame, study, hardware(files.scores, study), search)


def _table2(files: Files, study: Study) -> pd.DataFrame:
    return table2(read_scores(files.scores, study), study, read_plain_search(files.search, study))


def _table1(files: Files, study: Study) -> pd.DataFrame:
    return policies_table(read_scores(files.scores, study), read_baselines(files.baselines), study, paper.table1())


def _of_split(split: str) -> Maker:
    def make(files: Files, study: Study) -> pd.DataFrame:
        frame = read_scores(files.scores, study)
        own = frame[frame["split"] == split]
        if own.empty:
            raise DataError(f"table {split}: none of the score files holds the split {split}")
        return policies_table(own, read_baselines(files.baselines), study, paper.level(split))

    return make


def _tasks(files: Files, study: Study) -> pd.DataFrame:
    return tasks_table(read_scores(files.scores, study), read_baselines(files.baselines), study)


def _search(make: Callable[..., pd.DataFrame]) -> Maker:
    def of_rollouts(files: Files, study: Study) -> pd.DataFrame:
        assert files.tasks is not None
        return make(read_search(files.search, files.tasks, study), study)

    return of_rollouts


def _field(files: Files, study: Study) -> pd.DataFrame:
    assert files.tasks is not None
    return field_table(read_rollouts(files.turns, files.tasks, study), read_summaries(files.summaries), study)


def _audit(files: Files, study: Study) -> pd.DataFrame:
    frames = [read_parquet(path, AUDIT_KIND)[0] for path in files.kernels]
    turns = pd.concat(frames, ignore_index=True)
    if turns.empty:
        raise DataError("no judged turn of a training was given: is there a run under `runs`?")
    return audit_table(turns, study)


TABLES = {
    "primary": Table("scores ?baselines ?search", _primary, show.primary),
    "claims": Table("scores ?search", _claims, show.claims),
    "table1": Table("scores ?baselines", _table1, show.table1),
    "table2": Table("scores ?search", _table2, show.table2),
    **{split: Table("scores ?baselines", _of_split(split), show.policies) for split in SPLITS},
    "differences": Table("scores", _of_scores(differences_table), show.differences),
    "serial_parallel": Table("scores", _of_scores(serial_parallel_table), show.budget),
    "turns": Table("scores", _of_scores(turns_table), show.turns),
    "mended": Table("scores", _of_scores(mended_table), show.mended),
    "pass_at_k": Table("scores", _of_scores(pass_at_k_table), show.pass_at_k),
    "tasks": Table("scores ?baselines", _tasks, show.tasks),
    "rl_gain": Table("scores", _of_scores(rl_gain_table), show.rl_gain),
    "step_time": Table("runs", lambda files, study: step_time_table(files.runs), show.step_time),
    "search": Table("search tasks", _search(search_table), show.search),
    "search_turns": Table("search tasks", _search(search_turns_table), show.turns),
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
    "outcomes": Figure("scores", "turns"),
    "turns": Figure("scores", "turns"),
    "layernorm_case_study": Figure("turns ?baselines ?store", "case_study"),
    "search": Figure("table", "scaling"),
    "training": Figure("runs", "training"),
    "training_turns": Figure("runs", "training"),
    "stability": Figure("runs", "training"),
    "ablations": Figure("runs", "training"),
    "audit": Figure("table", "training"),
}
OF_SCORES = [name for name, table in TABLES.items() if "scores" in table.reads.split() and name != "rl_gain"]
"""Tables that every study has, those of splits that it lacks apart."""
OF_TRAINING = ("rl_gain", "step_time")
DRAWN_ALWAYS = [name for name, own in FIGURES.items() if own.module != "training" and name != "search"]
DRAWN_OF_TRAINING = ("training", "training_turns", "stability")


def reads(entry: Table | Figure) -> list[str]:
    """Names of the `Files` that it is made of."""
    return entry.reads.replace("?", "").split()


def make_table(name: str, out: Path, *, study: Study, **files: Any) -> Path:
    """Write one of `TABLES` as CSV, and beside it as Markdown and LaTeX. Returns ``out``, the CSV.

    Raises UsageError for a name that is not known, or a file of `Files` that the table needs and was not given.
    """
    given = _given("table", name, TABLES, files)
    frame = TABLES[name].make(given, study)
    note = read_note(given.summaries, study, given.scores)
    return write_table(out, frame, TABLES[name].show, study, captions()[f"tables/{name}"], note)


def make_figure(name: str, out_dir: Path, *, study: Study, **files: Any) -> list[Path]:
    """Write one of `FIGURES` as ``<name>.png``, ``.pdf`` and ``.csv`` into ``out_dir``; returns the three paths.

    Raises UsageError as `make_table`.
    """
    given = _given("figure", name, FIGURES, files)
    look = import_module("kevin.report.figures.look")
    draw = getattr(import_module(f"kevin.report.figures.{FIGURES[name].module}"), name)
    note = read_note(given.summaries, study, given.scores)
    if given.table is not None and NOTE in (said := read_table(given.table)) and len(said):
        note = str(said[NOTE].iloc[0])
    with look.theme():
        figure, data = draw(*_read(name, given, study), study)
        return list(look.save(figure, data, out_dir, name, captions()[f"figures/{name}"].title, note))


def _read(name: str, files: Files, study: Study) -> list[Any]:
    """What the function that draws a figure takes before the study."""
    readers: dict[str, Callable[[], Any]] = {
        "scores": lambda: read_scores(files.scores, study),
        "turns": lambda: turns_by_policy(files.turns, study),
        "runs": lambda: files.runs,
        "table": lambda: read_table(files.table or Path()).drop(columns=NOTE, errors="ignore"),
        "store": lambda: files.store,
        "baselines": lambda: read_baselines(files.baselines),
        "tasks": lambda: traffic_bytes(read_tasks(files.tasks)) if files.tasks else {},
    }
    return [readers[option]() for option in reads(FIGURES[name])]


def _given(kind: str, name: str, known: dict[str, Any], files: dict[str, Any]) -> Files:
    if name not in known:
        raise UsageError(f"no {kind} {name!r}; there are {', '.join(known)}")
    given = Files(**{option: value for option, value in files.items() if value is not None})
    needed = [option for option in known[name].reads.split() if not option.startswith("?")]
    if any(not getattr(given, option) for option in needed):
        options = " and ".join(f"--{OPTIONS.get(option, option)}" for option in needed)
        raise UsageError(f"{kind} {name} is made of the files that {options} name")
    return given


OPTIONS = {"runs": "run-dir"}
"""Options of the commands that are not called as their `Files`."""
