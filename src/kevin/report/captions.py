"""What people read of each table, figure and page, all in ``captions.yaml``; and docs/targets.md, made of it.

The page, the tables' Markdown and LaTeX, the figures' titles, and `snakemake --report` read the same file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.types import Frozen
from kevin.report.recipes import policy_label
from kevin.report.scores import UNKNOWN_MACHINE, machines

CATEGORIES = ("Tables", "Figures", "Training", "Turns", "Search", "Report")
FILE = Path(__file__).with_name("captions.yaml")


class Caption(Frozen):
    title: str
    """Of a figure the question that it answers."""
    category: str
    """Section of the report of Snakemake and of docs/targets.md."""
    text: str
    reading: str = ""
    """How a table is read."""
    config: str | None = None
    needs: str | None = None


@cache
def captions() -> Mapping[str, Caption]:
    """All, by ``tables/<name>``, ``figures/<name>``, ``pages/<name>``."""
    return {key: Caption.model_validate(value) for key, value in yaml.safe_load(FILE.read_text("utf-8")).items()}


def caption_key(output: str) -> str:
    """Under which name the caption of an output file stands."""
    path = PurePosixPath(output)
    return f"{'pages' if path.suffix == '.html' else path.parent.name}/{path.stem}"


def caption_of(output: str) -> Caption:
    """Of an output file of the workflow. Raises DataError with the file to write it in where there is none."""
    key = caption_key(output)
    if key not in captions():
        raise DataError(f"{output} has no caption: write {key} in src/kevin/report/captions.yaml")
    return captions()[key]


def labels_of(output: str) -> dict[str, str]:
    """What the report's list says of an output file. Raises DataError as `caption_of`."""
    kind = caption_key(output).partition("/")[0]
    return {"result": caption_of(output).title, "form": kind.removesuffix("s")}


# --- docs/targets.md ----------------------------------------------------------------------------------------------

_ENDINGS = {"tables": "tables/{}.csv", "figures": "figures/{}.png", "pages": "{}.html"}
_HEAD = """# Every file of the study, and the command that makes it

Generated from `src/kevin/report/captions.yaml` (`make schema`), which says more of each. A command makes what is
missing before its file and nothing else; `snakemake --dry-run FILE` says what that would be. Each table stands as `.md`
and `.tex` beside its `.csv`, each figure as `.pdf` and, as `.csv`, exactly what was plotted. At another scale the
folder is that of its configuration: `snakemake results/gpu/tables/primary.csv --configfile config/gpu.yaml`. With
`search: {compared: [parallel, serial]}` the page has the search's table and figure too.
"""


def target_of(key: str, caption: Caption, configs: Path) -> tuple[str, str]:
    """File and command of what a caption is of.

    Args:
        configs: folder of the configurations, which say where results go.
    """
    kind, _, name = key.partition("/")
    overlay = f"config/{caption.config}.yaml" if caption.config else None
    results = "results"
    if overlay is not None:
        results = str(yaml.safe_load((configs / f"{caption.config}.yaml").read_text("utf-8")).get("results", results))
    file = f"{results}/{_ENDINGS[kind].format(name)}"
    return file, f"snakemake {file}" + (f" --configfile {overlay}" if overlay else "")


def targets_page(configs: Path) -> str:
    """docs/targets.md: a list of each category, then what has no caption."""
    lines = [_HEAD]
    for category in CATEGORIES:
        lines.append(f"## {category}\n")
        for key, caption in captions().items():
            if caption.category == category:
                _, command = target_of(key, caption, configs)
                needs = f"; needs `{caption.needs}`" if caption.needs else ""
                lines.append(f"- `{command}`: {caption.title}{needs}")
        lines.append("")
    lines.append("## To publish\n")
    lines.append("- `snakemake results/published`: Models, answers, kernels and tables, for others to use and check")
    return "\n".join(lines) + "\n"


# --- what must be said of a study as a whole ----------------------------------------------------------------------


NOTE = "note"
"""Column of a table, there only where something is to be said."""
MINIATURE = "A miniature of the study, to see that every step of it runs: no number here means anything."
REHEARSAL = "A rehearsal with random weights and recorded answers: no number here means anything, but times and memory."


class TrainingSummary(BaseModel):
    """What a training says of its end: ``base_model/summary.json`` (no ``run``) or ``train/<run>/summary.json``.

    Keys that an older file lacks are absent.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: str | None = None
    num_steps: int | None = None
    planned_steps: int | None = None
    budget_bit: bool = False
    """A time budget ended it before its planned steps."""
    correct_share: float | None = None
    expected_correct_share: float | None = None
    """Of the base model's kernels: measured, and what is expected at least."""
    num_kernels: int | None = None
    """Judged while a run trained."""


def read_summaries(paths: Sequence[Path]) -> list[TrainingSummary]:
    """The summaries that exist; an older study has none. Raises DataError for a file that is none."""
    found = []
    for path in paths:
        if not path.exists():
            continue
        try:
            summary = TrainingSummary.model_validate_json(path.read_bytes())
        except ValidationError as e:
            problem = e.errors()[0]
            where = ".".join(map(str, problem["loc"])) or "the file"
            raise DataError(f"{path}: not a summary of a training ({where}: {problem['msg']}); train again") from None
        if not summary.model_fields_set:
            raise DataError(f"{path}: not a summary of a training (it says nothing of one); train again")
        found.append(summary)
    return found


def study_note(summaries: Sequence[TrainingSummary], study: Study) -> str | None:
    """For every table and figure; None where there is nothing to say."""
    rehearsed = any(policy.random_shapes for policy in study.policies.values())
    said = [REHEARSAL if rehearsed else MINIATURE] if study.report.miniature else []
    if cut := [_cut(s, study) for s in summaries if s.budget_bit]:
        listed = cut[0] if len(cut) == 1 else f"{', '.join(cut[:-1])} and {cut[-1]}"
        said.append(
            f"Made under a time budget that cut the training of {listed}; with all steps the numbers would differ."
        )
    return " ".join(said) or None


def _cut(summary: TrainingSummary, study: Study) -> str:
    name = "the base model" if summary.run is None else policy_label(summary.run, study)
    text = name if summary.num_steps is None else f"{name} to {summary.num_steps:,}"
    if summary.num_steps is not None:
        text += f" of {summary.planned_steps:,} steps" if summary.planned_steps is not None else " steps"
    if summary.correct_share is not None and summary.expected_correct_share is not None:
        shares = [f"{100 * share:.0f} %" for share in (summary.correct_share, summary.expected_correct_share)]
        text += f" ({shares[0]} of its kernels correct, at least {shares[1]} expected)"
    return text


def read_note(paths: Sequence[Path], study: Study, scores: Sequence[Path] = ()) -> str | None:
    """`study_note` of the summaries in these files, and `machines_note` of the scores in those."""
    said = [study_note(read_summaries(paths), study), machines_note(scores, study)]
    return " ".join(filter(None, said)) or None


def machines_note(scores: Sequence[Path], study: Study) -> str | None:
    """None where all kernels were judged on machines of one kind, as far as is known."""
    kinds = [" and ".join(names) for names in machines(scores, study) if names != (UNKNOWN_MACHINE,)]
    if len(kinds) < 2:
        return None
    return (
        f"Kernels were judged on different hardware ({'; '.join(kinds)}): a speedup is over PyTorch where the "
        f"kernel was judged, and those of several stand side by side."
    )


def with_note(frame: pd.DataFrame, note: str | None) -> pd.DataFrame:
    """The table, with a column that says the note where there is one."""
    return frame if note is None else frame.assign(**{NOTE: note})
