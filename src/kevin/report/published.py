"""What a study publishes: one folder of which every table is made again, and every kernel judged again.

``answers.csv``, ``answers.json``: what was answered and what the judge found (`kevin.report.answers`), by the first
digits of a kernel's digest. ``kernels.parquet``: every distinct kernel that was judged for a held-out task, once, with
its source, outcome and times. ``tasks.parquet``: these tasks. ``baselines.csv``, ``search_seconds.csv``,
``trainings/``: what else the tables are made of. ``config.yaml``: the resolved configuration. ``tables/``, and a folder
for each trained model, where they are given. ``README.md``: a model card (`kevin.report.model_card`).
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import (
    link_or_copy,
    read_metadata,
    read_parquet,
    read_turns,
    verdict_path,
    whole_folder,
    write_csv,
    write_parquet,
    write_text,
)
from kevin.core.types import Kernel, Turn
from kevin.report.answers import write_answers
from kevin.report.catalogue import OF_SCORES, SPLITS, make_table
from kevin.report.model_card import ADAPTER, model_card
from kevin.report.notes import read_summaries
from kevin.report.scores import KIND, machines, read_scores
from kevin.report.search import SECONDS, read_search, write_seconds
from kevin.report.training import trained_policies

log = logging.getLogger(__name__)

KERNELS = "kernels"
"""Kind of the file of kernels."""
COLUMNS = [
    *("task_id", "kernel_digest", "dialect", "language", "outcome", "reason", "speedup", "median_us", "eager_us"),
    *("device_name", "protocol_digest", "source"),
]
_BASE_MODEL = "base_model"


class Published(NamedTuple):
    """Files of such a folder."""

    folder: Path

    @property
    def answers(self) -> Path:
        return self.folder / "answers.csv"

    @property
    def kernels(self) -> Path:
        return self.folder / "kernels.parquet"

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks.parquet"

    @property
    def baselines(self) -> Path:
        return self.folder / "baselines.csv"

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def summaries(self) -> list[Path]:
        return sorted(self.folder.glob("trainings/*/summary.json"))

    @property
    def runs(self) -> list[Path]:
        return [path.parent for path in sorted(self.folder.glob("trainings/*/metrics.jsonl"))]


def publish(
    out: Path,
    *,
    study: Study,
    scores: Sequence[Path],
    turns: Sequence[Path],
    search: Sequence[Path],
    tasks: Path,
    baselines: Path,
    store: Path,
    summaries: Sequence[Path] = (),
    tables: Sequence[Path] = (),
    models: Sequence[Path] = (),
) -> Path:
    """Write the folder, in one piece. Returns ``out``.

    Args:
        scores, turns: of all policies and held-out splits, the ceiling among them.
        search: rollouts of strategies, where there are any.
        store: the verdicts, which have the times.
        summaries: of the trainings behind these; ``metrics.jsonl`` is taken from beside each.
        tables: CSV files; Markdown and LaTeX are taken from beside each. The card shows ``primary``.
        models: folders, of which the adapter is taken where they have one. Files are linked where the system can.

    Raises:
        DataError: one of ``models`` is no model's folder.
    """
    with whole_folder(out) as folder:
        files = Published(folder)
        played = read_search(search, tasks, study)
        frames = [read_scores(scores, study), *(r.scores.assign(strategy=r.strategy) for r in played)]
        write_answers(pd.concat(frames, ignore_index=True), files.answers, machines(scores, study), study)
        write_seconds(played, folder / SECONDS)
        write_csv(files.baselines, read_parquet(baselines, "baselines")[0])
        judged = read_metadata(scores[0], KIND).get("rollouts", {})
        kernels = kernels_frame((turn for path in (*turns, *search) for turn in read_turns(path)[0]), store)
        write_parquet(files.kernels, kernels, KERNELS, _origin(judged), compression="zstd")
        every, meta = read_parquet(tasks, "tasks")
        write_parquet(files.tasks, every[every["split"] != "train"], "tasks", _origin(meta), compression="zstd")
        write_text(files.config, yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False))
        for path in summaries:
            _copy_training(path, folder / "trainings")
        for table in tables:
            _copy_table(table, folder / "tables")
        own = [_copy_model(model, folder) for model in models]
        shown = folder / "tables/primary.md"
        primary = shown.read_text("utf-8") if shown.exists() else None
        write_text(folder / "README.md", model_card(study, kernels, judged, own, primary))
    log.info("%s: nothing is uploaded; to publish it: hf upload YOUR_NAME/A_NAME %s", out, out)
    return out


def _copy_table(table: Path, into: Path) -> None:
    into.mkdir(exist_ok=True)
    for suffix in (".csv", ".md", ".tex"):
        if (file := table.with_suffix(suffix)).exists():
            shutil.copy(file, into / file.name)


def _copy_model(model: Path, into: Path) -> Path:
    """Its folder below ``into``, of its name, with the licence that an adapter has from its base."""
    source = model / "adapter" if (model / "adapter" / ADAPTER).exists() else model
    if not any((source / name).exists() for name in (ADAPTER, "config.json")):
        raise DataError(f"{model}: neither a model nor an adapter (no config.json, no {ADAPTER} in it)")
    own = into / model.name
    shutil.copytree(source, own, copy_function=link_or_copy)
    for licence in model.glob("LICENSE*"):
        if not (own / licence.name).exists():
            link_or_copy(licence, own / licence.name)
    return own


def _copy_training(path: Path, into: Path) -> None:
    """What a training says of its end and of its steps; nothing where an older one says nothing."""
    for summary in read_summaries([path]):
        own = into / (summary.run or _BASE_MODEL)
        own.mkdir(parents=True)
        for name in ("summary.json", "metrics.jsonl"):
            if (file := path.with_name(name)).exists():
                shutil.copy(file, own / name)


def _origin(meta: dict[str, Any]) -> dict[str, Any]:
    """Provenance of a file without what is said of the file itself."""
    return {key: value for key, value in meta.items() if key not in ("kind", "schema_version", "policy", "split")}


def kernels_frame(turns: Iterator[Turn], store: Path) -> pd.DataFrame:
    """Every distinct kernel of these turns for each task once, sorted; times of those whose verdict is in the store.

    A kernel that a harness failure left without a verdict is left out.
    """
    found: dict[tuple[str, str], list[Any]] = {}
    for turn in turns:
        if turn.kernel is None or turn.outcome is None:
            continue
        key = (turn.task_id, turn.kernel.digest)
        if key not in found:
            kernel, verdict = turn.kernel, _verdict(store, turn.verdict_key)
            times = [(verdict.get(name) or {}).get("median_us") for name in ("timing", "reference_timing")]
            origin = [verdict.get(name) for name in ("device_name", "protocol_digest")]
            head = [*key, kernel.dialect, kernel.language, turn.outcome.value, turn.reason, turn.speedup]
            found[key] = [*head, *times, *origin, kernel.source]
    frame = pd.DataFrame([found[key] for key in sorted(found)], columns=COLUMNS)
    return frame.astype(dict.fromkeys(["speedup", "median_us", "eager_us"], "float64"))


def _verdict(store: Path, key: str | None) -> dict[str, Any]:
    """As it was stored; nothing where it is not there."""
    try:
        return dict(json.loads(verdict_path(store, key or "none").read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def read_kernels(files: Published) -> list[tuple[dict[str, Any], Kernel]]:
    """Each row with its kernel. Raises DataError where one is not the kernel that its digest names."""
    frame, _ = read_parquet(files.kernels, KERNELS)
    pairs = []
    for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
        kernel = Kernel(dialect=row["dialect"], language=row["language"], source=row["source"])
        if kernel.digest != row["kernel_digest"]:
            raise DataError(f"{files.kernels}: {row['task_id']}: a kernel is not what its digest says")
        pairs.append(({str(name): value for name, value in row.items()}, kernel))
    return pairs


def make_published_tables(folder: Path, out: Path, study: Study) -> list[Path]:
    """Every table that such a folder holds, in ``out`` as CSV, Markdown and LaTeX. Raises DataError where it cannot."""
    own = Published(folder)
    splits = set(pd.read_csv(own.answers, usecols=["split"])["split"]) if own.answers.exists() else set()
    search = [own.answers] if len(read_search([own.answers], own.tasks, study)) else []
    names = [name for name in OF_SCORES if name in splits or name not in SPLITS]
    names += ["rl_gain"] if trained_policies(study) else []
    names += ["step_time"] if own.runs else []
    names += ["search", "search_turns"] if search else []
    given: dict[str, Any] = {"scores": [own.answers], "search": search, "runs": own.runs, "summaries": own.summaries}
    given |= {"tasks": own.tasks, "baselines": own.baselines}
    return [make_table(name, out / f"{name}.csv", study=study, **given) for name in names]
